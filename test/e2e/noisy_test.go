package e2e

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// testNoisy runs a service beside one that has far more work than it requests. The noisy one must have CPUs of its own, so
// that the other has the rest for itself, until it ends.
func testNoisy(t *testing.T, rt *runtime.Runtime) {
	if cpus := online(t).Size(); cpus < 2 {
		t.Skipf("%d CPU can't be divided", cpus)
	}
	s := loopSluice(t, rt, "control: {mode: on, noisy: {mode: on}}")
	service := func(name, does string) (*runtime.Pod, *runtime.Container) {
		spec := classed(name, "LS", runtime.Resources{CPURequest: 500})
		spec.Containers[0].Args = []string{"first", does}
		pod := run(t, rt, spec)
		return pod, pod.Container("c")
	}
	on := func(c *runtime.Container) cpuset.Set {
		cpus, err := c.CPUs()
		must(t, err)
		return cpus
	}
	_, web := service("web", "burn")
	time.Sleep(15 * time.Second) // which tell how it usually waits
	inAWhile := func() float64 {
		before, began := delay(t, web), time.Now()
		time.Sleep(5 * time.Second)
		return (delay(t, web) - before).Seconds() / time.Since(began).Seconds()
	}
	alone := inAWhile()
	pod, hog := service("hog", "burn=8")
	began := time.Now()
	beside := inAWhile()
	await(t, "the noisy pod is kept apart", func() bool { return !on(hog).Overlaps(on(web)) })
	t.Logf("after %v the noisy pod is on CPUs %s, the other on %s", time.Since(began).Round(time.Second/10), on(hog), on(web))
	await(t, "that helps", func() bool { return len(decided(t, s, "noisy", "confirm")) > 0 })
	apart := inAWhile()
	t.Logf("the other waits %.1f %% of the time alone, %.1f %% beside the noisy pod, and %.1f %% apart from it", 100*alone, 100*beside, 100*apart)
	if apart > beside/2 || on(hog).Overlaps(on(web)) {
		t.Errorf("apart the other waits %.3f of the time on %s, and %.3f beside the noisy pod, which is on %s", apart, on(web), beside, on(hog))
	}
	must(t, pod.Remove())
	await(t, "the other has all CPUs again", func() bool { return on(web) == online(t) })
	sound(t, s)
}
