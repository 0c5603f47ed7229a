package colocation

import (
	"maps"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// TierWhy is the reason given for the quotas that stand for weights among pods of batch work.
const TierWhy = "its part of what batch work has, by tier and grant"

const (
	// useTime is the time over which a pod's CPU usage is averaged. Periods of small quotas take
	// half a second, so that shorter means say little about what a pod can use.
	useTime = 3 * time.Second
	// roomPercent is what a pod may use in the next step in percent of its usage. What it does
	// not use then is lost for a step, so that more than is needed for growth is a waste.
	roomPercent = 115
	// risingPercent is the same for a pod that uses more than a moment ago, since it took what it
	// could get and may want more.
	risingPercent = 150
	// boundPercent is the same for a pod that has a quota. One that uses less than its quota may
	// want more, because the budget was lower a moment ago, or services took the CPU; without the
	// quota, it would take as much as any other.
	boundPercent = 140
	// lackPercent is the share of the mean budget from which on pods that use less than that are
	// taken to lack CPU, which services use, rather than work. What there is to divide is then what
	// they use, with room to grow.
	lackPercent = 50
)

// insideDivider divides the CPU of a batch cgroup between its pods where the kernel knows no
// weights among them, as between cgroups in the idle class (sched_group_set_shares in
// kernel/sched/fair.c). The quota of the batch cgroup bounds all pods together. So a pod has a
// quota only while it could use more than its part by weight, and the others share what it
// leaves.
type insideDivider struct {
	uses    map[string]meanUse // of pods, by UID
	budgets map[string]meanUse // of batch cgroups, by path
	weights control.BatchWeights
	now     time.Time

	pods   []int // index in View.Pods
	claims []control.Share[workload.MilliCPU]
	parts  []workload.MilliCPU
}

// meanUse is the mean of what a pod uses, or of a budget, over useTime.
type meanUse struct {
	cpu  float64   // in milli-CPU
	last float64   // the latest measurement
	at   time.Time // of the latest measurement
	seen time.Time // when the pod was there last
}

// begin enters the usage of the batch pods.
func (d *insideDivider) begin(v *NodeView, now time.Time) {
	if d.uses == nil {
		d.uses, d.budgets = map[string]meanUse{}, map[string]meanUse{}
	}
	d.weights.Count(&v.View)
	d.now = now
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Class != workload.BE {
			continue
		}
		usage, at := batchUse(v, p)
		mean := d.uses[p.UID]
		mean.enter(usage, at, now)
		d.uses[p.UID] = mean
	}
	maps.DeleteFunc(d.uses, func(_ string, u meanUse) bool { return !u.seen.Equal(now) })
	maps.DeleteFunc(d.budgets, func(dir string, _ meanUse) bool { return !v.BatchCgroups.Holds(dir) })
}

// enter adds what was measured at a time. A measurement that is entered again changes nothing.
func (u *meanUse) enter(cpu workload.MilliCPU, at, now time.Time) {
	if passed := at.Sub(u.at); u.seen.IsZero() || passed < 0 || passed >= useTime {
		u.cpu = float64(cpu)
	} else {
		u.cpu += (float64(cpu) - u.cpu) * float64(passed) / float64(useTime)
	}
	u.last, u.at, u.seen = float64(cpu), at, now
}

// batchUse returns the usage of a pod's batch containers, and when it was measured.
func batchUse(v *NodeView, p *control.Pod) (usage workload.MilliCPU, at time.Time) {
	for i := p.First; i < p.First+p.Count; i++ {
		if c := &v.Containers[i]; c.Class == workload.BE {
			usage += c.CPU.Usage
			if c.CPU.At.After(at) {
				at = c.CPU.At
			}
		}
	}
	return usage, at
}

// demand returns how much a pod may use in the next step; bound is whether it has a quota.
func (u *meanUse) demand(bound bool) workload.MilliCPU {
	use := u.cpu * roomPercent / 100
	switch {
	case bound:
		use = u.cpu * boundPercent / 100
	case u.last > u.cpu*1.05:
		use = u.last * risingPercent / 100
	}
	return workload.MilliCPU(use) + LeastQuota
}

// divide puts the quotas of the pods in a batch cgroup into want. If all weigh the same,
// there are none, because the kernel gives them equal parts.
func (d *insideDivider) divide(v *NodeView, b *Budget, dir string, amount workload.MilliCPU, have, want CPUDesired) {
	d.pods, d.claims = d.pods[:0], d.claims[:0]
	equal, use := true, workload.MilliCPU(0)
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Class != workload.BE || v.Members[p.First].Above != dir || v.Members[p.First].SharedPodCgroup || !mayClaim(v, b, i) {
			continue
		}
		weight := d.weights.Of(&v.View, p)
		equal = equal && (len(d.claims) == 0 || weight == d.claims[0].Weight)
		_, bound := have.Parts[p.UID]
		mean := d.uses[p.UID]
		use += workload.MilliCPU(mean.cpu)
		demand := mean.demand(bound)
		d.pods, d.claims = append(d.pods, i), append(d.claims, control.Share[workload.MilliCPU]{Weight: weight, Demand: demand, Floor: LeastQuota})
	}
	if equal {
		return
	}
	budget := d.budgets[dir]
	budget.enter(amount, d.now, d.now)
	d.budgets[dir] = budget
	if use*100 >= min(amount, workload.MilliCPU(budget.cpu))*lackPercent {
		amount = min(amount, use*roomPercent/100+LeastQuota*workload.MilliCPU(len(d.claims)))
	}
	d.parts = control.Split(d.parts[:0], amount, d.claims)
	for i, part := range d.parts {
		if part < d.claims[i].Demand {
			uid := v.Pods[d.pods[i]].UID
			want.Parts[uid] = steady(have.Parts[uid], qos.Loop{Quota: Quota(part), Why: TierWhy})
		}
	}
}
