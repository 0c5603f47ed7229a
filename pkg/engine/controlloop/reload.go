package controlloop

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/groups"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Renew replaces the controllers whose part of the configuration has changed: the new ones
// start from the node's present state. The others keep what they have learned.
func (l *Loop) Renew(before *config.Config) {
	l.Changed()
	l.short = l.short[:0]
	if !separates(l.Authority(), l.Config) { // the new ledger has taken over who is kept apart
		l.Ledger.Separate(nil)
	}
	if !l.begun {
		l.failed = ""
		return
	}
	l.saveLearned()
	old := l.Controllers
	next, err := old.Renew(l.loopSettings(before), l.loopSettings(l.Config), groups.SameRDT(before, l.Config))
	if err != nil { // only invalid windows fail it, and those are rejected with the file
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
		l.refusal, l.evictedBefore = control.Refusal{}, 0
	}
	l.Refresh()
}

// GiveBack gives back what the loop has set and won't set under the next configuration. It must
// run while the old configuration is in force.
func (l *Loop) GiveBack(next *config.Config) {
	may := l.AuthorityBy(next)
	bounds := may.Acts(next.Control.Batch.Mode) && next.Pools.Mode != config.Exclusive
	quotas := may.Acts(next.Control.Burst.Mode) || may.Acts(next.Control.Demotion.Mode) || may.Writes && len(next.Control.Rules) > 0
	memory := may.Acts(next.Control.Memory.Mode)
	cache := may.Acts(next.Control.Cache.Mode)
	if !bounds {
		l.Settings.Want.ForgetBatchQuotas()
		clear(l.Settings.Want.LSWeights)
		l.dividedBudget = notDivided
		l.budget = control.Budget{}
	}
	if !quotas {
		clear(l.Settings.Want.Containers)
	}
	if !may.Acts(next.Control.Culprit.Mode) {
		clear(l.Settings.Want.Culprits)
	}
	l.Settings.Enforce()
	if !memory {
		l.Memory.Release()
	}
	if !cache {
		l.Groups.ShareCache(control.CacheShare{})
	}
	if !separates(may, next) {
		l.separate(nil)
	}
	if may.Writes || !l.Authority().Writes {
		return
	}
	if l.Ledger.Sizes() != nil {
		l.Ledger.SetSizes(nil)
		l.CPUSets.TryApply()
	}
	if l.Failsafe != nil {
		l.failsafePlan = failsafePlan{}
		l.Failsafe.Replace(nil)
	}
}

// separates reports whether noisy pods may be kept apart.
func separates(may node.Authority, cfg *config.Config) bool {
	return may.Acts(cfg.Control.Noisy.Mode) && may.Cpusets
}

// Inherit takes over, on the first Synchronize, the quotas and limits of batch work that an
// earlier run left, so that a restart lifts no limit before the loop has decided.
func (l *Loop) Inherit() {
	may := l.Authority()
	if l.Inherited {
		return
	}
	l.Inherited = true
	l.Settings.FindHosts()
	l.View.BatchCgroups = colocation.FindBatchCgroups(l.Settings.Collect())
	quotas := may.Acts(l.Config.Control.Batch.Mode) && l.Config.Pools.Mode != config.Exclusive
	limits := may.Acts(l.Config.Control.Memory.Mode)
	for _, e := range l.Journal.All() {
		boxed := e.Object.Level == knobs.ClassLevel && l.View.BatchCgroups.Bounds(e.Object.Path)
		switch wrote := e.Wrote.(type) {
		case knobs.CPUQuota:
			uid, within := l.batchPodAt(e.Object.Path)
			switch {
			case !quotas:
			case boxed:
				l.Settings.Want.BatchCgroups[e.Object.Path] = qos.Loop{Quota: wrote, Why: colocation.BudgetWhy}
			case within:
				l.Settings.Want.Parts[uid] = qos.Loop{Quota: wrote, Why: colocation.TierWhy}
			case uid != "":
				l.Settings.Want.Pods[uid] = qos.Loop{Quota: wrote, Why: colocation.BudgetWhy}
			}
		case knobs.Bytes:
			boxed = boxed || slices.Contains(l.View.BatchCgroups.Limited, e.Object.Path)
			uid, within := l.batchPodAt(e.Object.Path)
			if limits && e.Knob == knobs.MemoryMax && (boxed || e.Object.Level == knobs.PodLevel && uid != "" && !within) {
				l.Memory.Inherit(e.Object.Path, wrote)
			}
		}
	}
	l.Settings.Reweigh()
	l.Settings.Inherit()
}

// batchPodAt is the UID of the batch pod with that cgroup, and whether it is within a batch cgroup;
// "" if the pod isn't batch as a whole.
func (l *Loop) batchPodAt(path string) (uid string, within bool) {
	for _, c := range l.Order {
		if c.PodPath != path {
			continue
		}
		h, ok := l.Ledger.Holder(c.ID)
		if !ok || h.Request.Class != workload.BE {
			return "", false
		}
		uid, within = c.Pod.UID, l.View.BatchCgroups.Holds(c.Above)
	}
	return uid, within
}

// These are the names under which the journal keeps the controllers' state over a restart.
const (
	benefitState = "benefit"
	peaksState   = "peaks"
)

// learned reads from the journal what the controllers of an earlier run have learned.
func (l *Loop) learned() (kept colocation.Learned) {
	l.Journal.State(benefitState, &kept.Benefit) //nolint:errcheck // the controller learns again what is lost
	l.Journal.State(peaksState, &kept.Peaks)     //nolint:errcheck // the controller learns again what is lost
	kept.Usage = l.LearnedUsage
	return kept
}

// saveLearned writes what the controllers have learned to the journal.
func (l *Loop) saveLearned() {
	kept := l.Controllers.Learned()
	l.Journal.SaveState(benefitState, kept.Benefit) //nolint:errcheck // the next save tries again
	l.Journal.SaveState(peaksState, kept.Peaks)     //nolint:errcheck // the next save tries again
}

// saveRegularly calls saveLearned every five minutes.
func (l *Loop) saveRegularly() {
	const every = 5 * time.Minute
	if l.savedAt.IsZero() {
		l.savedAt = l.View.Now
	}
	if since := l.View.Now.Sub(l.savedAt); since >= 0 && since < every {
		return
	}
	l.savedAt = l.View.Now
	l.saveLearned()
}
