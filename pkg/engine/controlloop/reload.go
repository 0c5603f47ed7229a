package controlloop

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/groups"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Renew makes the controllers whose part of the configuration has changed again: they begin
// with what they find. The others go on with what they have learned.
func (l *Loop) Renew(before *config.Config) {
	l.Changed()
	l.short = l.short[:0]
	if !l.made {
		l.failed = ""
		return
	}
	l.keepLearned()
	old := l.Controllers
	next, err := old.Renew(l.loopSettings(before), l.loopSettings(l.Config), groups.SameRDT(before, l.Config))
	if err != nil { // its windows are checked with the file
		l.Log.WithError(err).Error("The control loop goes on by the configuration before")
		return
	}
	l.Controllers = next
	if next.Rules != old.Rules {
		l.ruleRefuses = ""
	}
	if next.Pools != old.Pools {
		l.poolSizes = control.PoolSizes{}
	}
	if next.Cache != old.Cache {
		l.Groups.ShareCache(control.CacheShare{})
	}
	if next.Eviction != old.Eviction {
		l.refusal, l.evicted = control.Refusal{}, 0
	}
	l.Refresh()
}

// GiveBack gives back, while the old configuration is in force, what the loop has
// set and won't set by the new one.
func (l *Loop) GiveBack(next *config.Config) {
	may := l.AuthorityBy(next)
	bounds := may.Acts(next.Control.Batch.Mode) && next.Pools.Mode != config.Exclusive
	quotas := may.Acts(next.Control.Burst.Mode) || may.Acts(next.Control.Demotion.Mode) || may.Writes && len(next.Control.Rules) > 0
	memory := may.Acts(next.Control.Memory.Mode)
	cache := may.Acts(next.Control.Cache.Mode)
	if !bounds {
		l.Settings.Want.ForgetBatchQuotas()
		clear(l.Settings.Want.LSWeights)
		l.shareOf = notShared
		l.budget = control.Budget{}
	}
	if !quotas {
		clear(l.Settings.Want.Containers)
	}
	l.Settings.Enforce()
	if !memory {
		l.Memory.Release()
	}
	if !cache {
		l.Groups.ShareCache(control.CacheShare{})
	}
	if may.Writes || !l.Authority().Writes {
		return
	}
	if l.Ledger.Sizes() != nil {
		l.Ledger.SetSizes(nil)
		l.CPUSets.TryApply()
	}
	if l.Failsafe != nil {
		l.safe = failsafePlan{}
		l.Failsafe.Keep(nil)
	}
}

// Inherit takes over, on the first Synchronize, the quotas and limits of
// batch work that an earlier run has left, so that a restart lifts no limit before the
// loop has decided.
func (l *Loop) Inherit() {
	may := l.Authority()
	if l.Inherited {
		return
	}
	l.Inherited = true
	l.View.BatchCgroups = colocation.FindBatchCgroups(l.Settings.Collect())
	quotas := may.Acts(l.Config.Control.Batch.Mode) && l.Config.Pools.Mode != config.Exclusive
	limits := may.Acts(l.Config.Control.Memory.Mode)
	for _, e := range l.Journal.All() {
		boxed := e.Object.Level == knobs.ClassLevel && l.View.BatchCgroups.Holds(e.Object.Path)
		switch wrote := e.Wrote.(type) {
		case knobs.CPUQuota:
			if boxed && quotas {
				l.Settings.Want.BatchCgroups[e.Object.Path] = qos.Loop{Quota: wrote, Why: colocation.BudgetWhy}
			} else if uid := l.batchPodAt(e.Object.Path); uid != "" && quotas {
				l.Settings.Want.Pods[uid] = qos.Loop{Quota: wrote, Why: colocation.BudgetWhy}
			}
		case knobs.Bytes:
			boxed = boxed || slices.Contains(l.View.BatchCgroups.Limited, e.Object.Path)
			if limits && e.Knob == knobs.MemoryMax && (boxed || e.Object.Level == knobs.PodLevel && l.batchPodAt(e.Object.Path) != "") {
				l.Memory.Inherit(e.Object.Path, wrote)
			}
		}
	}
	l.Settings.Reweigh()
	l.Settings.Inherit()
}

// batchPodAt is the UID of the pod with that cgroup, "" where it isn't batch as a
// whole, or in a batch cgroup.
func (l *Loop) batchPodAt(path string) (uid string) {
	for _, c := range l.Order {
		if c.PodPath != path {
			continue
		}
		h, ok := l.Ledger.Holder(c.ID)
		if !ok || h.Request.Class != workload.BE || l.View.BatchCgroups.Holds(c.Above) {
			return ""
		}
		uid = c.Pod.UID
	}
	return uid
}

// The names of what the loop keeps over a restart in the book.
const (
	benefitState = "benefit"
	peaksState   = "peaks"
)

// learned is what controllers have kept from an earlier run.
func (l *Loop) learned() (kept colocation.Learned) {
	l.Journal.State(benefitState, &kept.Benefit) //nolint:errcheck // what is lost begins anew
	l.Journal.State(peaksState, &kept.Peaks)     //nolint:errcheck // what is lost begins anew
	return kept
}

// keepLearned writes down what controllers keep over a restart.
func (l *Loop) keepLearned() {
	kept := l.Controllers.Learned()
	l.Journal.KeepState(benefitState, kept.Benefit) //nolint:errcheck // tried again
	l.Journal.KeepState(peaksState, kept.Peaks)     //nolint:errcheck // tried again
}

// keepCounts writes down what controllers have learned, every five minutes.
func (l *Loop) keepCounts() {
	const every = 5 * time.Minute
	if l.keptAt.IsZero() {
		l.keptAt = l.View.Now
	}
	if since := l.View.Now.Sub(l.keptAt); since >= 0 && since < every {
		return
	}
	l.keptAt = l.View.Now
	l.keepLearned()
}
