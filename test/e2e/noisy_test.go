package e2e

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// testNoisy runs a service beside one that has work for two CPUs and asked for one. The noisy one must get a CPU of
// its own, so that the service has the other one for itself. Once the service is gone, the noisy one must have all CPUs
// again.
func testNoisy(t *testing.T, rt *runtime.Runtime) {
	s := loopSluice(t, rt, "control: {mode: on, noisy: {mode: on}}")
	all := online(t)
	burner := func(name, burn string, r runtime.Resources) *runtime.Pod {
		spec := classed(name, "LS", r)
		spec.Containers[0].Args = []string{"first", burn}
		return run(t, rt, spec)
	}
	pod := burner("web", "burn=1", runtime.Resources{CPURequest: 900})
	web := pod.Container("c")
	noisy := burner("noisy", "burn=2", runtime.Resources{CPURequest: 1000}).Container("c")
	began := time.Now()
	waits := func() float64 { // part of the time in which the service waits for a CPU
		before, began := delay(t, web), time.Now()
		time.Sleep(3 * time.Second)
		return (delay(t, web) - before).Seconds() / time.Since(began).Seconds()
	}
	beside := waits()
	const slow = 3 * time.Minute // it takes 60 to 95 s: what is usual is learned first
	awaitFor(t, slow, "the noisy pod is kept apart", func() bool { return len(decided(t, s, "noisy", "separate")) > 0 })
	t.Logf("apart after %s", time.Since(began).Round(time.Second/10))
	awaitFor(t, slow, "that has helped", func() bool { return len(decided(t, s, "noisy", "confirm")) > 0 })
	own, err := noisy.CPUs()
	must(t, err)
	if own.Size() != 1 {
		t.Errorf("the noisy pod is on CPUs %s, not on one", own)
	}
	isOn(t, web, cpuset.Difference(all, own))
	apart := waits()
	t.Logf("the service waits %.1f %% of the time, and waited %.1f %% beside the noisy pod", 100*apart, 100*beside)
	if apart > beside/2 {
		t.Errorf("the service waits %.1f %% of the time, and waited %.1f %% beside the noisy pod", 100*apart, 100*beside)
	}

	must(t, pod.Remove())
	await(t, "the noisy pod has all CPUs again", func() bool {
		cpus, err := noisy.CPUs()
		must(t, err)
		return cpus == all
	})
	sound(t, s)
}
