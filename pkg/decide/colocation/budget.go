package colocation

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// BudgetWhy is the reason given for the quotas that bound batch work.
const BudgetWhy = "what others leave of the CPUs"

// CreationTime is how long a created container may take to start.
const CreationTime = 10 * time.Second

// Budget is the CPU that all batch work together may use.
type Budget struct {
	Amount, Floor workload.MilliCPU
	Now           time.Time
	Resizing      map[string]bool // UIDs of the pods that the kubelet is resizing
	NestedQuotas  bool            // cgroup v1: no quota may exceed that of a parent cgroup
	IdleClass     bool            // batch pods have no CPU weights among each other
}

// BudgetDivider divides budgets. It reuses its slices for each.
type BudgetDivider struct {
	claims []control.Share[workload.MilliCPU]
	pods   []string // UIDs of the pods, whose claims are the last ones
	parts  []workload.MilliCPU
	inside insideDivider
}

// Divide divides a budget between the batch cgroups, the host applications and the batch pods outside
// of batch cgroups, by weight and demand, and puts the quotas into want. Each gets at least its part of
// the floor by weight, and at least LeastQuota. A pod keeps its present quota if the new one is hardly
// larger. Where pods have no weights, the pods of a batch cgroup get quotas that stand for them.
func (d *BudgetDivider) Divide(v *NodeView, b *Budget, have, want CPUDesired) {
	dirs, hosts := v.BatchCgroups.Dirs, v.HostApplications
	d.inside.begin(v, b.Now)
	d.claim(v, b)
	n := workload.MilliCPU(max(len(d.claims), 1))
	weights := int64(0)
	for i := range d.claims {
		d.claims[i].Weight = max(d.claims[i].Weight, 1) // a batch cgroup whose containers have ended has none
		weights += d.claims[i].Weight
	}
	for i := range d.claims { // the whole budget is distributed, so that each has room to begin
		d.claims[i].Demand += (b.Amount + n - 1) / n
		d.claims[i].Floor = max(workload.MilliCPU(int64(b.Floor)*d.claims[i].Weight/weights), LeastQuota)
	}
	d.parts = control.Split(d.parts, b.Amount, d.claims)
	want.ForgetBatchQuotas()
	for i, amount := range d.parts {
		quota := qos.Loop{Quota: Quota(amount), Why: BudgetWhy}
		switch host := i - len(dirs); {
		case host < 0:
			want.BatchCgroups[dirs[i]] = quota
			if b.IdleClass {
				d.inside.divide(v, b, dirs[i], amount, have, want)
			}
		case host < len(hosts):
			want.BatchCgroups[hosts[host].Cgroup] = quota
		default:
			uid := d.pods[host-len(hosts)]
			want.Pods[uid] = steady(have.Pods[uid], quota)
		}
	}
}

// claim collects the claims on the budget.
func (d *BudgetDivider) claim(v *NodeView, b *Budget) {
	d.claims, d.pods = d.claims[:0], d.pods[:0]
	dirs := v.BatchCgroups.Dirs
	for range dirs {
		d.claims = append(d.claims, control.Share[workload.MilliCPU]{})
	}
	for i := range v.HostApplications {
		a := &v.HostApplications[i]
		d.claims = append(d.claims, control.Share[workload.MilliCPU]{Weight: a.Weight(), Demand: 2 * a.CPU.Usage})
	}
	pod := -1
	for i := range v.Containers {
		c := &v.Containers[i]
		if c.Class != workload.BE {
			continue
		}
		at := slices.Index(dirs, v.Members[i].Above)
		if at < 0 {
			if !mayClaim(v, b, c.Pod) {
				continue
			}
			if c.Pod != pod { // the containers of a pod follow each other
				pod = c.Pod
				d.pods, d.claims = append(d.pods, v.Pods[pod].UID), append(d.claims, control.Share[workload.MilliCPU]{})
			}
			at = len(d.claims) - 1
		}
		s := &d.claims[at]
		if i == v.Pods[c.Pod].First {
			s.Weight += d.inside.weights.Of(&v.View, &v.Pods[c.Pod])
		}
		s.Demand += 2 * c.CPU.Usage
	}
}

// mayClaim reports whether a pod outside of batch cgroups may get a quota. All of the pod must
// be batch work, and the kubelet must not be resizing it. On cgroup v1 the runtime must not be
// creating one of its containers, since it could not write a quota above the pod's.
func mayClaim(v *NodeView, b *Budget, pod int) bool {
	return v.Pods[pod].Class == workload.BE && mayLimit(v, b, pod)
}

// mayLimit reports whether the cgroup of a pod may get a quota now.
func mayLimit(v *NodeView, b *Budget, pod int) bool {
	p := &v.Pods[pod]
	if b.Resizing[p.UID] {
		return false
	}
	if !b.NestedQuotas {
		return true
	}
	for i := p.First; i < p.First+p.Count; i++ {
		if !v.Members[i].Started && b.Now.Sub(v.Containers[i].Since) < CreationTime {
			return false
		}
	}
	return true
}

// FloorOf returns the floor of each of that many claims on the budget.
func FloorOf(floor workload.MilliCPU, claims int) workload.MilliCPU {
	return max(floor/workload.MilliCPU(max(claims, 1)), LeastQuota)
}

// steady returns the pod's present quota if the new one is hardly larger, and the new one
// otherwise.
func steady(has, want qos.Loop) qos.Loop {
	const percent = 5
	had, wanted := has.Quota.Milli(), want.Quota.Milli()
	if had <= wanted && had*100 >= wanted*(100-percent) {
		return has
	}
	return want
}
