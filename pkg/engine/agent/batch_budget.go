package agent

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// bound gives batch work its budget, by CPU set, quota or both.
func (a *Agent) bound(b *control.Budget, all bool) {
	l := &a.loop
	by := a.podsettings.Mechanism()
	l.sizes = colocation.PoolSizesFor(l.sizes[:0], b, by, len(l.view.Pools))
	a.resizePools(l.sizes)
	if by == control.ByCPUSet || b.Unlimited {
		a.podsettings.Want.ForgetBatchQuotas()
		l.shareOf = notShared
		return
	}
	if all || b.Amount != l.shareOf || l.released != a.podsettings.Released() {
		l.shareOf = b.Amount
		a.share(b.Amount)
	}
}

// notShared is no budget.
const notShared workload.MilliCPU = -1

// share divides batch work's budget between the batch cgroups and the pods outside of them.
func (a *Agent) share(amount workload.MilliCPU) {
	l := &a.loop
	l.released = a.podsettings.Released()
	l.divider.Divide(&l.view, &colocation.Budget{
		Amount: amount, Floor: a.Config.Control.Batch.Floor(&l.view.View),
		Now: a.Now(), Resizing: a.podsettings.Resizing(), NestedQuotas: a.podsettings.NestsQuotas(),
	}, a.podsettings.InForce(), a.podsettings.Want)
}

// boundBeforeStart divides the budget anew before a container begins: a batch pod is bounded
// from its first instruction, and what isn't batch begins in no cgroup that
// bounds batch work.
func (a *Agent) boundBeforeStart() {
	l := &a.loop
	if !l.made || !a.podsettings.BoundsByQuota() {
		return
	}
	a.look()
	switch {
	case l.budget.Unlimited:
		return
	case l.budget.Amount > 0:
		l.shareOf = l.budget.Amount
		a.share(l.shareOf)
	default: // nothing was decided yet
		for dir := range a.podsettings.Want.BatchCgroups {
			if !slices.Contains(l.view.BatchCgroups.Dirs, dir) {
				delete(a.podsettings.Want.BatchCgroups, dir)
			}
		}
	}
	a.podsettings.Enforce()
}
