package e2e

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestSlowLane has the runtime's own record follow the kernel, where the
// runtime's NRI is new enough for it.
func TestSlowLane(t *testing.T) {
	const quick = "slowLane: {enabled: true, delay: 100ms}"
	t.Run("containerd 2", func(t *testing.T) {
		rt := start(t, runtime.Options{})
		s := startSluice(t, rt, runtime.SluiceOptions{Config: quick})
		if lane := statusOf(t, s).Runtime.SlowLane; lane != "open" {
			t.Fatalf("the slow lane is %q, want it open", lane)
		}
		limited := run(t, rt, classed("limited", "LS", runtime.Resources{CPURequest: 200, CPULimit: 700})).Container("c")
		free := run(t, rt, classed("free", "BE", runtime.Resources{})).Container("c")
		recorded := func(what string, want cpuset.Set) {
			t.Helper()
			for _, c := range []*runtime.Container{limited, free} {
				await(t, what, func() bool {
					record, err := c.Recorded()
					must(t, err)
					return record.GetCpusetCpus() == want.String()
				})
				isOn(t, c, want)
			}
			if got := limit(t, limited.File); got != 700 {
				t.Errorf("the limit is %d milli, want 700 as before", got)
			}
		}
		pod, cpu := pinOf(t, rt, "pin", "LSR")
		recorded("the record is without the pin's CPU", cpuset.Difference(online(t), cpu))
		must(t, pod.Remove())
		recorded("the record is all CPUs again", online(t))
		if n := statusOf(t, s).Counters; n.SlowFailures > 0 || n.SlowUpdates != 4 {
			t.Errorf("%d updates were sent and %d failed, want 4 and none", n.SlowUpdates, n.SlowFailures)
		}
		consistent(t, rt, s)
	})
	t.Run("containerd 1.7", func(t *testing.T) {
		rt := start(t, runtime.Options{Containerd: "1.7"})
		s := startSluice(t, rt, runtime.SluiceOptions{Config: quick})
		if lane := statusOf(t, s).Runtime.SlowLaneWhy; !strings.Contains(lane, "can deadlock") {
			t.Errorf("the slow lane is %q, want it shut as the runtime's NRI can deadlock", lane)
		}
	})
}
