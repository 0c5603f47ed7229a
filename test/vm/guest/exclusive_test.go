package guest

import (
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestExclusivePools checks that exclusive pools follow their load: the online pool takes CPUs
// from batch work while a service is busy, and returns them afterwards. Both have whole cores all
// the time, and no CPU is in two pools.
func TestExclusivePools(t *testing.T) {
	rt := start(t, runtime.Options{})
	s, err := rt.StartSluice(runtime.SluiceOptions{Config: `
pools: {mode: exclusive}
control:
  mode: on
  pools: {lend: false, slowWindow: 2s, shrinkPause: 1s, newPodTime: 1s, shrinkCPUs: 4}
`})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			told, err := s.DecisionText()
			t.Logf("sluice log (%v):\n%s\nsluice's log ends:\n%s", err, tail(told, 80), tail(s.Log(), 80))
		}
	})
	pod := func(name, class string, request int, args ...string) *runtime.Pod {
		t.Helper()
		running, err := rt.Run(runtime.PodSpec{
			Name: name, Namespace: "kube-system", Annotations: map[string]string{"class.sluice.dev": class},
			Containers: []runtime.ContainerSpec{{Name: "c", Args: args, Resources: runtime.Resources{CPURequest: milli(request)}}},
		})
		must(t, err)
		return running
	}
	calm := pod("calm", "LS", 8, "first", "sleep")
	batch := pod("batch", "BE", 0, "first", "burn=2")
	cpus := func(p *runtime.Pod) cpuset.Set {
		t.Helper()
		set, err := p.Container("c").CPUs()
		must(t, err)
		return set
	}
	apart := func(what string) (online, be int) {
		t.Helper()
		await(t, func() error { // the two sets are read one after the other
			one, other := cpus(calm), cpus(batch)
			if one.Overlaps(other) || !wholeCores(one) || !wholeCores(other) {
				return fmt.Errorf("%s: services are on CPUs %s, batch work on %s", what, one, other)
			}
			online, be = one.Size(), other.Size()
			return nil
		})
		t.Logf("%s: %d CPUs for services, %d for batch work", what, online, be)
		return online, be
	}
	smaller := func(than int) func() error {
		return func() error {
			if now := cpus(calm).Size(); now >= than {
				return fmt.Errorf("services have %d CPUs, want fewer than %d", now, than)
			}
			return nil
		}
	}
	await(t, smaller(6))
	before, given := apart("calm")
	busy := pod("busy", "LS", 8, "first", "burn=6")
	await(t, func() error {
		if now := cpus(calm).Size(); now < before+4 {
			return fmt.Errorf("services have %d CPUs under load, as against %d", now, before)
		}
		return nil
	})
	if _, left := apart("busy"); left >= given {
		t.Errorf("batch work has %d CPUs under load, as against %d", left, given)
	}
	must(t, busy.Remove())
	await(t, func() error { // the CPUs return step by step
		if back := cpus(batch).Size(); back < given-2 {
			return fmt.Errorf("batch work has %d CPUs after load, as against %d", back, given)
		}
		return nil
	})
	apart("calm again")
	must(t, calm.Remove())
	must(t, batch.Remove())
	must(t, s.Stop())
}
