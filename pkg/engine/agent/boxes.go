package agent

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// bound gives batch work its budget, by CPU set, quota or both.
func (a *Agent) bound(b *control.Budget, all bool) {
	l := &a.loop
	by := a.mechanism()
	sizes := l.sizes[:0]
	if by != control.ByQuota && !b.Unlimited {
		for range len(l.view.Pools) - 1 {
			sizes = append(sizes, 0)
		}
		sizes = append(sizes, b.CPUs)
	}
	l.sizes = sizes
	a.resizePools(sizes)
	if by == control.ByCPUSet || b.Unlimited {
		clear(l.want.boxes)
		clear(l.want.pods)
		l.shareOf = notShared
		return
	}
	if all || b.Amount != l.shareOf {
		l.shareOf = b.Amount
		a.share(b.Amount)
	}
}

// fewCPUs is the size of a node on which a set of whole CPUs is too coarse.
const fewCPUs = 8

// mechanism is how batch work is kept to its budget. Where it is not said, cgroup v1,
// which refuses many an order of quotas, has CPU sets if the node has enough CPUs.
func (a *Agent) mechanism() control.Mechanism {
	by := a.Config.Control.Batch.By
	if by == control.ByAuto {
		by = control.ByQuota
		if !a.Node.Features.Knobs[knobs.Quota].V2 && a.ledger.Shared().Size() >= fewCPUs {
			by = control.ByCPUSet
		}
	}
	if by != control.ByQuota && a.authority().Foreign {
		return control.ByQuota
	}
	return by
}

// boundsByQuota reports whether batch work may be given quotas.
func (a *Agent) boundsByQuota() bool {
	return a.authority().Acts(a.Config.Control.Batch.Mode) && a.Config.Pools.Mode != config.Exclusive && a.mechanism() != control.ByCPUSet
}

const budgetWhy = "what others leave of the CPUs"

// notShared is no budget.
const notShared workload.MilliCPU = -1

// share divides batch work's budget between its boxes and the pods outside of them,
// by weight and demand. None has less than its part of the floor, nor than colocation.LeastQuota.
func (a *Agent) share(budget workload.MilliCPU) {
	l := &a.loop
	l.shares, l.outside = l.shares[:0], l.outside[:0]
	for range l.view.BatchCgroups.Dirs {
		l.shares = append(l.shares, control.Share{})
	}
	pod := -1
	for i := range l.view.Containers {
		c := &l.view.Containers[i]
		if c.Class != workload.BE {
			continue
		}
		at := slices.Index(l.view.BatchCgroups.Dirs, l.view.Members[i].Above)
		if at < 0 {
			if !a.mayClaim(c.Pod) {
				continue
			}
			if c.Pod != pod { // those of a pod follow each other
				pod = c.Pod
				l.outside, l.shares = append(l.outside, l.view.Pods[pod].UID), append(l.shares, control.Share{})
			}
			at = len(l.shares) - 1
		}
		s := &l.shares[at]
		s.Weight += int64(max(c.Request, 1))
		s.Demand += 2 * c.CPU.Usage
	}
	n := workload.MilliCPU(max(len(l.shares), 1))
	for i := range l.shares { // all of the budget is given away, and each has room to begin
		l.shares[i].Demand += (budget + n - 1) / n
		l.shares[i].Floor = a.floorOf(n)
	}
	l.split = control.Split(l.split, budget, l.shares)
	clear(l.want.boxes)
	clear(l.want.pods)
	for i, amount := range l.split {
		if i < len(l.view.BatchCgroups.Dirs) {
			l.want.boxes[l.view.BatchCgroups.Dirs[i]] = qos.Loop{Quota: colocation.Quota(amount), Why: budgetWhy}
			continue
		}
		uid := l.outside[i-len(l.view.BatchCgroups.Dirs)]
		l.want.pods[uid] = steadied(l.intents.pods[uid], qos.Loop{Quota: colocation.Quota(amount), Why: budgetWhy})
	}
}

// floorOf is the floor of one of so many claims on the budget.
func (a *Agent) floorOf(claims workload.MilliCPU) workload.MilliCPU {
	return max(a.Config.Control.Batch.Floor(&a.loop.view.View)/max(claims, 1), colocation.LeastQuota)
}

// steadied is the quota that a pod has where the new one is hardly larger.
func steadied(has, want qos.Loop) qos.Loop {
	const percent = 5
	had, wanted := has.Quota.Milli(), want.Quota.Milli()
	if had <= wanted && had*100 >= wanted*(100-percent) {
		return has
	}
	return want
}

// creationTime is how long a created container may take to start.
const creationTime = 10 * time.Second

// mayClaim reports whether a pod outside of boxes may be given a quota: one that is
// batch as a whole, isn't being resized and, on v1, has no container in the making,
// whose own quota the runtime could not write under a smaller one.
func (a *Agent) mayClaim(pod int) bool {
	l := &a.loop
	p := &l.view.Pods[pod]
	if p.Class != workload.BE || a.isResizing(p.UID) {
		return false
	}
	if a.Node.Features.Knobs[knobs.Quota].V2 {
		return true
	}
	for i := p.First; i < p.First+p.Count; i++ {
		if !l.view.Members[i].Started && a.now().Sub(l.view.Containers[i].Since) < creationTime {
			return false
		}
	}
	return true
}

// makeRoom opens the pod in which v1 is about to make a container.
func (a *Agent) makeRoom(c *container) {
	if !a.Node.Features.Knobs[knobs.Quota].V2 {
		a.unclaimPod(c.pod.UID)
	}
}

// unclaim lets a pod's quota go with its last container.
func (a *Agent) unclaim(c *container) {
	for _, other := range a.order {
		if other.pod.UID == c.pod.UID {
			return
		}
	}
	a.unclaimPod(c.pod.UID)
	delete(a.loop.resized, c.pod.UID)
}

func (a *Agent) unclaimPod(uid string) {
	delete(a.loop.want.pods, uid)
	delete(a.loop.intents.pods, uid)
	a.loop.shareOf = notShared
}

// rebound divides the budget anew before a container begins: a batch pod is bounded
// from its first instruction, and what isn't batch begins in no box.
func (a *Agent) rebound() {
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
		for box := range l.want.boxes {
			if !slices.Contains(l.view.BatchCgroups.Dirs, box) {
				delete(l.want.boxes, box)
			}
		}
	}
	a.intend(l.want)
}
