package agent

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// inherit takes over, at the first word of what runs here, the quotas and limits of
// batch work that an earlier run has left, so that a restart lifts no limit before the
// loop has decided.
func (a *Agent) inherit() {
	may := a.Authority()
	l := &a.loop
	if l.inherited {
		return
	}
	l.inherited = true
	l.view.BatchCgroups = colocation.FindBatchCgroups(a.podsettings.Collect())
	quotas := may.Acts(a.Config.Control.Batch.Mode) && a.Config.Pools.Mode != config.Exclusive
	limits := may.Acts(a.Config.Control.Memory.Mode)
	for _, e := range a.Journal.All() {
		boxed := e.Object.Level == knobs.ClassLevel && l.view.BatchCgroups.Holds(e.Object.Path)
		switch wrote := e.Wrote.(type) {
		case knobs.CPUQuota:
			if boxed && quotas {
				a.podsettings.Want.BatchCgroups[e.Object.Path] = qos.Loop{Quota: wrote, Why: colocation.BudgetWhy}
			} else if uid := a.batchPodAt(e.Object.Path); uid != "" && quotas {
				a.podsettings.Want.Pods[uid] = qos.Loop{Quota: wrote, Why: colocation.BudgetWhy}
			}
		case knobs.Bytes:
			boxed = boxed || slices.Contains(l.view.BatchCgroups.Limited, e.Object.Path)
			if limits && e.Knob == knobs.MemoryMax && (boxed || e.Object.Level == knobs.PodLevel && a.batchPodAt(e.Object.Path) != "") {
				a.memory.Inherit(e.Object.Path, wrote)
			}
		}
	}
	a.podsettings.Reweigh()
	a.podsettings.Inherit()
}

// batchPodAt is the UID of the pod with that cgroup, "" where it isn't batch as a
// whole, or in a batch cgroup.
func (a *Agent) batchPodAt(path string) (uid string) {
	for _, c := range a.Order {
		if c.PodPath != path {
			continue
		}
		h, ok := a.Ledger.Holder(c.ID)
		if !ok || h.Request.Class != workload.BE || a.loop.view.BatchCgroups.Holds(c.Above) {
			return ""
		}
		uid = c.Pod.UID
	}
	return uid
}
