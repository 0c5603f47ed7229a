package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/runtime"
)

// testBounds runs a service beside batch work that does not yield. The service names a bound on its
// waiting, which batch work breaks until it has less CPU; then it has all CPU again, because the service
// ends.
func testBounds(t *testing.T, rt *runtime.Runtime) {
	const bound = 0.15
	s := loopSluice(t, rt, "control: {mode: on, batch: {by: quota, thresholdPercent: 100, growPercent: 100, floorCPUs: 1}}\nclasses: {BE: {cpu-identity: 0}}")
	for _, name := range []string{"batch-0", "batch-1"} {
		spec := classed(name, "BE", runtime.Resources{CPURequest: 1000})
		spec.Containers[0].Args = []string{"first", "burn=2"}
		run(t, rt, spec)
	}
	web := classed("web", "LS", runtime.Resources{CPURequest: 500})
	web.Annotations["slo.sluice.dev"] = "{runDelay: 15%}"
	web.Containers[0].Args = []string{"first", "burn"}
	service := run(t, rt, web)

	waits := func() (now float64, batch status.Batch) {
		st := statusOf(t, s)
		for _, d := range st.Loop.Disturbed {
			if len(d.Bounds) == 1 {
				now = d.Bounds[0].WaitingFraction
			}
		}
		return now, st.Loop.Batch
	}
	await(t, "a broken bound squeezes batch work", func() bool { _, b := waits(); return b.BoundsPercent > 0 })
	broken, squeezed := waits()
	t.Logf("the service waits %.0f %%: %s", 100*broken, squeezed.BoundsWhy)
	await(t, "the bound is kept", func() bool { now, _ := waits(); return now < bound })
	kept, squeezed := waits()
	t.Logf("it waits %.0f %% while batch work has %d %% of its budget, %d of %d thousandths", 100*kept, squeezed.BoundsPercent, squeezed.Used, squeezed.Budget)
	if !strings.Contains(squeezed.BoundsWhy, "/web waits") || !strings.Contains(squeezed.BoundsWhy, "its bound is 15 %") {
		t.Errorf("why: %q", squeezed.BoundsWhy)
	}
	must(t, service.Remove())
	began := time.Now()
	await(t, "batch work has all again", func() bool { _, b := waits(); return b.BoundsPercent == 0 || b.BoundsPercent > squeezed.BoundsPercent })
	t.Logf("batch work had more %v after the service had gone", time.Since(began).Round(time.Second))
	sound(t, s)
}
