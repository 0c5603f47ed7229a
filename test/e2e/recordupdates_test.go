package e2e

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestRecordUpdates checks that the runtime's own record follows the kernel if the runtime's NRI
// is new enough for updates.
func TestRecordUpdates(t *testing.T) {
	const quick = "recordUpdates: {enabled: true, delay: 100ms}"
	t.Run("containerd 2", func(t *testing.T) {
		rt := start(t, runtime.Options{})
		s := startSluice(t, rt, runtime.SluiceOptions{Config: quick})
		if updates := statusOf(t, s).Runtime.RecordUpdates; updates != status.RecordUpdatesOn {
			t.Fatalf("updates of the record are %q, want on", updates)
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
		if n := statusOf(t, s).Counters; n.RecordUpdateFailures > 0 || n.RecordUpdates != 4 {
			t.Errorf("%d updates were sent and %d failed, want 4 and none", n.RecordUpdates, n.RecordUpdateFailures)
		}
		consistent(t, rt, s)
	})
	t.Run("containerd 1.7", func(t *testing.T) {
		rt := start(t, runtime.Options{Containerd: "1.7"})
		s := startSluice(t, rt, runtime.SluiceOptions{Config: quick})
		if why := statusOf(t, s).Runtime.RecordUpdatesWhy; !strings.Contains(why, "can deadlock") {
			t.Errorf("updates of the record are off because %q, want that the runtime's NRI can deadlock", why)
		}
	})
}
