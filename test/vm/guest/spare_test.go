package guest

import (
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestSpareCPUs checks that batch work runs on the CPUs that an idle pool does not need, and leaves
// them while the pool's services are busy, which keep their CPUs all the time.
func TestSpareCPUs(t *testing.T) {
	rt := start(t, runtime.Options{})
	s, err := rt.StartSluice(runtime.SluiceOptions{Config: `
pools: {mode: exclusive}
control:
  mode: on
  pools: {newPodTime: 1s, slowWindow: 1h}
`})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			told, err := s.DecisionText()
			t.Logf("sluice log (%v):\n%s\nsluice's log ends:\n%s", err, tail(told, 80), tail(s.Log(), 80))
		}
	})
	pod := func(name, class string, request int, args ...string) *runtime.Container {
		t.Helper()
		running, err := rt.Run(runtime.PodSpec{
			Name: name, Namespace: "kube-system", Annotations: map[string]string{"class.sluice.dev": class},
			Containers: []runtime.ContainerSpec{{Name: "c", Args: args, Resources: runtime.Resources{CPURequest: milli(request)}}},
		})
		must(t, err)
		t.Cleanup(func() { must(t, running.Remove()) })
		return running.Container("c")
	}
	service := pod("service", "LS", 8, "first", "sleep")
	job := pod("job", "BE", 0, "first", "burn=2")
	cpus := func(c *runtime.Container) cpuset.Set {
		t.Helper()
		set, err := c.CPUs()
		must(t, err)
		return set
	}
	has := cpus(service)
	await(t, func() error {
		// What the system runs there takes some CPUs of an emulated machine.
		if lent := cpuset.Intersect(has, cpus(job)); lent.IsEmpty() || !wholeCores(lent) {
			return fmt.Errorf("of the service's CPUs %s, batch work has %s", has, lent)
		}
		return nil
	})
	pod("busy", "LS", 4, "first", "burn=6")
	await(t, func() error {
		if lent := cpuset.Intersect(cpus(service), cpus(job)); lent.Size() > max(0, cpus(service).Size()-10) {
			return fmt.Errorf("of the busy services' CPUs %s, batch work has %s", cpus(service), lent)
		}
		return nil
	})
	if now := cpus(service); !has.SubsetOf(now) {
		t.Errorf("the service has CPUs %s, and had %s", now, has)
	}
	must(t, s.Stop())
}
