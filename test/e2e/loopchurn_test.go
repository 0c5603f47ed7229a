package e2e

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// testLoopChurn starts and ends batch containers, some of which end by themselves, while the
// budget changes. A container that ends between a decision and its write is no error.
func testLoopChurn(t *testing.T, rt *runtime.Runtime) {
	const workers, pods = 3, 5
	online := service(t, rt, "online", runtime.Resources{CPURequest: 1000})
	s := loopSluice(t, rt, squeeze(control.On, control.ByBoth))
	var all sync.WaitGroup
	var ended atomic.Int32
	errs := make([]error, workers)
	for w := range workers {
		all.Go(func() {
			defer ended.Add(1)
			for i := range pods {
				spec := classed(fmt.Sprintf("batch-%d-%d", w, i), "BE", runtime.Resources{})
				spec.Containers = []runtime.ContainerSpec{
					{Name: "short", Args: []string{"exit=0"}},
					{Name: "hog", Args: []string{"burn"}},
				}
				if i%2 == 1 { // outside of the batch cgroup
					spec.Containers[1].Resources = runtime.Resources{CPURequest: 100, CPULimit: 500}
				}
				pod, err := rt.Run(spec)
				if err == nil && i%3 == 0 {
					err = pod.Container("hog").Kill()
				}
				if err == nil {
					err = pod.Remove()
				}
				if err != nil {
					errs[w] = errors.Join(errs[w], err)
					return
				}
			}
		})
	}
	for ended.Load() < workers {
		before := len(decided(t, s, "batch", "squeeze"))
		load(t, online)
		await(t, "batch gives way", func() bool { return ended.Load() == workers || len(decided(t, s, "batch", "squeeze")) > before })
		before = len(decided(t, s, "batch", "grow"))
		unload(t, online)
		await(t, "batch may grow", func() bool { return ended.Load() == workers || len(decided(t, s, "batch", "grow")) > before })
	}
	all.Wait()
	must(t, errors.Join(errs...))
	await(t, "the containers are forgotten", func() bool { return len(statusOf(t, s).Containers) == 1 })
	left, err := rt.CPUSets()
	must(t, err)
	sandboxes, err := rt.Sandboxes()
	must(t, err)
	maps.DeleteFunc(left, func(id string, _ cpuset.Set) bool { return sandboxes[id] }) // CRI-O needs no pause container
	if len(left) != 1 {
		t.Errorf("containers are left: %v", left)
	}
	t.Logf("%d pods beside %d decisions to squeeze and %d to grow", workers*pods, len(decided(t, s, "batch", "squeeze")), len(decided(t, s, "batch", "grow")))
	sound(t, s)
}
