package control

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// choose returns the pod to evict for the first request that is due and can be met.
func (e *Eviction) choose(v *View) *Victim {
	due := false
	for i := range e.requests {
		r := &e.requests[i]
		if waiting(e.last[r.Resource], v.Now, e.pause(r)) {
			continue
		}
		if e.underWay(r.Resource) || r.Need > 0 && e.assumed(r.Resource) >= r.Need {
			continue
		}
		pod, others := e.first(v, r)
		if pod < 0 {
			due = true
			continue
		}
		e.nobodyReported = false
		return e.evict(v, r, pod, others)
	}
	if due && !e.nobodyReported {
		e.nobodyReported = true
		e.decisions = append(e.decisions, Decision{Controller: "eviction", Object: "node", Action: "nobody",
			Why: e.requests[0].Why + "; there is no pod that may be evicted and holds any of what is short: a BE pod, or one that allow.sluice.dev permits it of, and that evict.sluice.dev: never and control.eviction.never don't keep"})
	}
	return nil
}

// evict records the pod as leaving.
func (e *Eviction) evict(v *View, r *EvictRequest, pod, others int) *Victim {
	p := &v.Pods[pod]
	amount := podUsage(v, p, r.Resource)
	e.last[r.Resource] = v.Now
	e.leaving = append(e.leaving, leaving{uid: p.UID, ref: p.Ref, why: r.Why, resource: r.Resource, amount: amount, at: v.Now, grace: r.Grace})
	e.victim = Victim{UID: p.UID, Ref: p.Ref, Why: r.Why, Grace: r.Grace}
	e.decisions = append(e.decisions, Decision{Controller: "eviction", Object: p.Ref, Action: "evict", To: p.UID, Cause: r.Cause,
		Why: fmt.Sprintf("%s; of %d pods that may be evicted it goes first: class %s, evict %s, it uses %s",
			r.Why, others, p.Class, orderText(p.Evict), r.Resource.text(amount)),
		Facts: []Fact{r.Resource.fact("need", r.Need), r.Resource.fact("gives", amount), {"candidates", float64(others)}}})
	if e.reportOnly {
		e.ended(&e.leaving[len(e.leaving)-1], v.Now)
	}
	return &e.victim
}

// orderText formats a pod's place in the order of eviction.
func orderText(e workload.Evict) string {
	text := strconv.Itoa(e.Order.Value)
	if e.PriorityClass != 0 {
		text += ", Koordinator's priority class " + strconv.Itoa(e.PriorityClass)
	}
	return text
}

// text formats an amount of the resource.
func (r Resource) text(amount int64) string {
	switch r {
	case ResourceMemory:
		return MemoryText(amount) + " of anonymous memory"
	case ResourceIO:
		return MemoryText(amount) + " of disk I/O a second"
	}
	return strconv.FormatFloat(float64(amount)/1000, 'f', 1, 64) + " CPUs"
}

// fact returns an amount of the resource with the unit in the name.
func (r Resource) fact(name string, amount int64) Fact {
	switch r {
	case ResourceMemory:
		return Fact{name + "_bytes", float64(amount)}
	case ResourceIO:
		return Fact{name + "_bytes_per_second", float64(amount)}
	}
	return Fact{name + "_cpus", float64(amount) / 1000}
}

// leastUse is the usage of a resource below which evicting a pod would not help, in thousandths
// of a CPU, bytes, and bytes a second.
var leastUse = [resources]int64{ResourceCPU: 10, ResourceMemory: mib, ResourceIO: 1}

// first returns the pod to evict first, and the number of pods among which it was chosen. BE
// pods come before others, then workload.Evict decides, then the largest usage of the resource.
// A pod that uses next to nothing of the resource is left alone, because its end would free
// nothing. The pod is -1 if there is none.
func (e *Eviction) first(v *View, r *EvictRequest) (pod, candidates int) {
	pod = -1
	var most int64
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Evict.Never || p.Class != workload.BE && (r.BEOnly || p.Allow&workload.EvictPod == 0) ||
			r.Pool.Set && !inPool(v, p, r.Pool.Value) || e.isLeaving(p.UID) {
			continue
		}
		use := podUsage(v, p, r.Resource)
		if use < leastUse[r.Resource] && (!r.All || e.isRefused(p.UID)) {
			continue
		}
		candidates++
		if pod < 0 || goesBefore(p, use, &v.Pods[pod], most) {
			pod, most = i, use
		}
	}
	return pod, candidates
}

// isRefused reports whether the pod was evicted and may not start yet. The kubelet keeps it,
// and creates containers for it that never start.
func (e *Eviction) isRefused(uid string) bool {
	return slices.ContainsFunc(e.refused, func(r RefusedPod) bool { return r.UID == uid })
}

// holds reports whether the pod exists and uses some of the resource.
func holds(v *View, uid string, of Resource) bool {
	i := slices.IndexFunc(v.Pods, func(p Pod) bool { return p.UID == uid })
	return i >= 0 && podUsage(v, &v.Pods[i], of) >= leastUse[of]
}

func goesBefore(a *Pod, aUse int64, b *Pod, bUse int64) bool {
	return cmp.Or(
		classOrder(a.Class, b.Class),
		a.Evict.Compare(b.Evict),
		cmp.Compare(bUse, aUse),
		cmp.Compare(a.UID, b.UID),
	) < 0
}

func inPool(v *View, p *Pod, pool int) bool {
	for i := p.First; i < p.First+p.Count; i++ {
		if v.Containers[i].Pool == pool {
			return true
		}
	}
	return false
}

// podUsage returns the pod's usage of the resource.
func podUsage(v *View, p *Pod, of Resource) int64 {
	var sum int64
	for i := p.First; i < p.First+p.Count; i++ {
		c := &v.Containers[i]
		switch of {
		case ResourceCPU:
			sum += int64(c.CPU.Usage)
		case ResourceMemory:
			sum += c.Container.Memory.Anon
		case ResourceIO:
			sum += int64(c.IO.ReadBPS + c.IO.WriteBPS)
		}
	}
	return sum
}
