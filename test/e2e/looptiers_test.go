package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
)

// settled is how long batch work runs before its shares are measured.
const settled = 4 * time.Second

// testTiers runs batch pods of each tier that use all CPU that they get. In the idle class, where the
// kernel knows no weights, the loop's quotas give each its part; elsewhere the pods' weights do. What a
// pod does not use, the others have.
func testTiers(t *testing.T, rt *runtime.Runtime) {
	const may = "\nauthorize: [{features: [system, tier], namespaces: [kube-system]}]"
	for _, round := range []struct {
		name, config string
		idle         bool
	}{
		{"in the idle class", squeeze(control.On, control.ByQuota) + may, true},
		{"by weight", "control: {mode: on, batch: {by: cpuset, thresholdPercent: 40, floorCPUs: 1, onlineWeight: 100}}\nclasses: {BE: {cpu-identity: 0}}" + may, false},
	} {
		t.Run(round.name, func(t *testing.T) {
			t.Cleanup(func() { must(t, rt.RemoveAll()) })
			s := loopSluice(t, rt, round.config)
			pods := map[workload.Tier]*runtime.Container{}
			for _, tier := range []workload.Tier{workload.TierFree, workload.TierBatch, workload.TierMid} {
				spec := classed(tier.String(), "BE", runtime.Resources{})
				spec.Annotations["tier.sluice.dev"] = tier.String()
				if !round.idle { // a weight follows the grant
					spec.Annotations["grant.sluice.dev"] = `{c: {cpu: "1"}}`
				}
				spec.Containers[0].Args = []string{"first", "burn=2"}
				pods[tier] = run(t, rt, spec).Container("c")
			}
			shares := func() (part map[workload.Tier]float64, cpus float64) {
				used, all := map[workload.Tier]time.Duration{}, time.Duration(0)
				for tier, c := range pods {
					before, err := c.CPUTime()
					must(t, err)
					used[tier] = -before
				}
				began := time.Now()
				time.Sleep(weighed)
				for tier, c := range pods {
					after, err := c.CPUTime()
					must(t, err)
					used[tier] += after
					all += used[tier]
				}
				part = map[workload.Tier]float64{}
				for tier := range pods {
					part[tier] = float64(used[tier]) / float64(all)
				}
				return part, all.Seconds() / time.Since(began).Seconds()
			}
			within := func(what string, got, want float64) {
				t.Helper()
				if got < want*0.7 || got > want*1.3+0.02 {
					t.Errorf("%s has %.1f %% of the CPU time of batch work, and is due %.1f %%", what, 100*got, 100*want)
				}
			}
			time.Sleep(settled)
			got, all := shares()
			t.Logf("of %.2f CPUs: mid %.1f %%, batch %.1f %%, free %.1f %%", all, 100*got[workload.TierMid], 100*got[workload.TierBatch], 100*got[workload.TierFree])
			for _, tier := range []workload.Tier{workload.TierFree, workload.TierBatch, workload.TierMid} {
				within(tier.String(), got[tier], float64(tier.Percent())/510)
			}
			must(t, pods[workload.TierMid].Signal(syscall.SIGSTOP))
			time.Sleep(settled)
			rest, left := shares()
			t.Logf("of %.2f CPUs beside an idle mid: batch %.1f %%, free %.1f %%", left, 100*rest[workload.TierBatch], 100*rest[workload.TierFree])
			within("batch beside an idle mid", rest[workload.TierBatch], 100.0/110)
			if left < all*0.85 {
				t.Errorf("batch work uses %.2f CPUs without mid, and %.2f with it", left, all)
			}
			must(t, pods[workload.TierMid].Signal(syscall.SIGCONT))
			for _, c := range statusOf(t, s).Containers {
				if c.Tier == nil || pods[*c.Tier] == nil || pods[*c.Tier].ID != c.ID {
					t.Errorf("the status has tier %v of %s", c.Tier, c.Ref)
				}
			}
			sound(t, s)
		})
	}
}
