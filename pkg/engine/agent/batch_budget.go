package agent

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// bound gives batch work its budget, by CPU set, quota or both.
func (a *Agent) bound(b *control.Budget, all bool) {
	l := &a.loop
	by := a.mechanism()
	l.sizes = colocation.PoolSizesFor(l.sizes[:0], b, by, len(l.view.Pools))
	a.resizePools(l.sizes)
	if by == control.ByCPUSet || b.Unlimited {
		l.want.ForgetBatchQuotas()
		l.shareOf = notShared
		return
	}
	if all || b.Amount != l.shareOf {
		l.shareOf = b.Amount
		a.share(b.Amount)
	}
}

// mechanism is how batch work that shares CPUs is kept to its budget.
func (a *Agent) mechanism() control.Mechanism {
	return colocation.Mechanism(a.Config.Control.Batch.By, a.nestsQuotas(), a.Ledger.Shared().Size(), a.Authority().Foreign)
}

// boundsByQuota reports whether batch work may be given quotas.
func (a *Agent) boundsByQuota() bool {
	return a.Authority().Acts(a.Config.Control.Batch.Mode) && a.Config.Pools.Mode != config.Exclusive && a.mechanism() != control.ByCPUSet
}

// notShared is no budget.
const notShared workload.MilliCPU = -1

// share divides batch work's budget between the batch cgroups and the pods outside of them.
func (a *Agent) share(amount workload.MilliCPU) {
	l := &a.loop
	l.divider.Divide(&l.view, &colocation.Budget{
		Amount: amount, Floor: a.Config.Control.Batch.Floor(&l.view.View),
		Now: a.Now(), Resizing: a.resizingPods(), NestedQuotas: a.nestsQuotas(),
	}, l.inForce, l.want)
}

// nestsQuotas reports whether the kernel refuses a quota above that of a cgroup above it,
// as cgroup v1 does.
func (a *Agent) nestsQuotas() bool { return !a.QoS.Features.Knobs[knobs.Quota].V2 }

// resizingPods are the UIDs of the pods that the kubelet is resizing; nil for none.
func (a *Agent) resizingPods() map[string]bool {
	var resizing map[string]bool
	for uid := range a.loop.resized {
		if a.isResizing(uid) {
			if resizing == nil {
				resizing = map[string]bool{}
			}
			resizing[uid] = true
		}
	}
	return resizing
}

// makeRoom opens the pod in which v1 is about to make a container.
func (a *Agent) makeRoom(c *node.Container) {
	if !a.QoS.Features.Knobs[knobs.Quota].V2 {
		a.unclaimPod(c.Pod.UID)
	}
}

// unclaim lets a pod's quota go with its last container.
func (a *Agent) unclaim(c *node.Container) {
	for _, other := range a.Order {
		if other.Pod.UID == c.Pod.UID {
			return
		}
	}
	a.unclaimPod(c.Pod.UID)
	delete(a.loop.resized, c.Pod.UID)
}

func (a *Agent) unclaimPod(uid string) {
	delete(a.loop.want.Pods, uid)
	delete(a.loop.inForce.Pods, uid)
	a.loop.shareOf = notShared
}

// boundBeforeStart divides the budget anew before a container begins: a batch pod is bounded
// from its first instruction, and what isn't batch begins in no cgroup that
// bounds batch work.
func (a *Agent) boundBeforeStart() {
	l := &a.loop
	if !l.made || !a.boundsByQuota() {
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
		for dir := range l.want.BatchCgroups {
			if !slices.Contains(l.view.BatchCgroups.Dirs, dir) {
				delete(l.want.BatchCgroups, dir)
			}
		}
	}
	a.intend(l.want)
}
