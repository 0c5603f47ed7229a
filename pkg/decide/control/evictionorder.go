package control

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// choose returns the pod to evict for the first request that is due and can be met.
func (e *Eviction) choose(v *View) *Victim {
	due := -1
	why := "there is no pod that may be evicted and holds any of what is short: a BE pod, or one that allow.sluice.dev permits it of, and that evict.sluice.dev: never and control.eviction.never don't keep"
	for i := range e.requests {
		r := &e.requests[i]
		if victim := e.useLastResort(v, r); victim != nil {
			e.nobodyReported = false
			return victim
		}
		if waiting(e.last[r.Resource], v.Now, e.pause(r)) || e.away(v.Now) {
			continue
		}
		if e.underWay(r.Resource, e.cfg.By) || r.Need > 0 && e.assumed(r.Resource) >= r.Need {
			continue
		}
		pod, others := -1, 0
		over := e.overBudget(r)
		if over == "" {
			pod, others = e.first(v, r, e.cfg.By)
		}
		if pod < 0 {
			if due < 0 {
				due = i
			}
			if over != "" {
				why = over
			}
			continue
		}
		e.nobodyReported = false
		return e.evict(v, r, e.cfg.By, pod, others)
	}
	if due >= 0 && !e.nobodyReported {
		e.nobodyReported = true
		e.decisions = append(e.decisions, Decision{Controller: "eviction", Object: "node", Action: "nobody", Why: e.requests[due].Why + "; " + why})
	}
	return nil
}

// evict records the pod as leaving.
func (e *Eviction) evict(v *View, r *EvictRequest, by EvictBy, pod, others int) *Victim {
	p := &v.Pods[pod]
	amount := podUsage(v, p, r.Resource)
	e.last[r.Resource] = v.Now
	for i := range e.leaving {
		if l := &e.leaving[i]; l.uid == p.UID {
			l.amount = 0 // counted by the new entry
		}
	}
	e.leaving = append(e.leaving, leaving{uid: p.UID, ref: p.Ref, why: r.Why, owner: v.APIPods[p.UID].Owner, by: by,
		resource: r.Resource, amount: amount, at: v.Now, grace: r.Grace, unbound: r.isUnbound()})
	e.victim = Victim{UID: p.UID, Ref: p.Ref, Why: r.Why, Grace: r.Grace, By: by, CoolDown: v.Now.Add(e.cfg.CoolDown)}
	d := Decision{Controller: "eviction", Object: p.Ref, Action: "evict", To: p.UID, Cause: r.Cause,
		Why: fmt.Sprintf("%s; of %d pods that may be evicted it goes first: class %s, evict %s, it uses %s",
			r.Why, others, rankText(p), strconv.Itoa(p.Evict.Order.Value), r.Resource.text(amount)),
		Facts: []Fact{r.Resource.fact("need", r.Need), r.Resource.fact("gives", amount), {"candidates", float64(others)}}}
	if by == EvictCRI && e.cfg.By == EvictKubernetes {
		d.Why += "; it is ended through the runtime, because the API server has not helped in time"
	}
	e.decisions = append(e.decisions, d)
	if e.reportOnly {
		e.ended(&e.leaving[len(e.leaving)-1], v.Now)
	}
	return &e.victim
}

// rankText formats a pod's class, with the tier of batch work.
func rankText(p *Pod) string {
	if p.Class == workload.BE {
		return "BE, tier " + p.Tier.String()
	}
	return p.Class.String()
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

// first returns the pod to evict first in that way, and the number of pods among which it was
// chosen. A pod that uses next to nothing of the resource is left alone, because its end would
// free nothing. The pod is -1 if there is none.
func (e *Eviction) first(v *View, r *EvictRequest, by EvictBy) (pod, candidates int) {
	pod = -1
	var best evictable
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Evict.Never || p.Class != workload.BE && (r.BEOnly || p.Allow&workload.EvictPod == 0) ||
			r.Pool.Set && !inPool(v, p, r.Pool.Value) || e.isTried(p.UID, by) || e.isCritical(v, p.UID) {
			continue
		}
		use := podUsage(v, p, r.Resource)
		if use < leastUse[r.Resource] && (!r.All || e.isRefused(p.UID)) {
			continue
		}
		api := v.APIPods[p.UID]
		if e.ownerOverBudget(api.Owner, r) != "" {
			continue
		}
		candidates++
		c := evictable{pod: p, leaves: by == EvictCRI && e.isLeaving(p.UID), priority: api.Priority, use: use, since: podCreated(v, p)}
		if pod < 0 || c.goesBefore(&best) {
			pod, best = i, c
		}
	}
	return pod, candidates
}

// isCritical reports whether the cluster cannot do without the pod, by its priority.
func (e *Eviction) isCritical(v *View, uid string) bool {
	return v.APIPods[uid].Priority >= evictorder.CriticalPriority
}

// evictable is a pod that may be evicted.
type evictable struct {
	pod      *Pod
	leaves   bool  // the API server is evicting it already
	priority int32 // spec.priority; 0 if unknown
	use      int64 // of what is short
	since    time.Time
}

// goesBefore orders pods for eviction: BE pods come before others, then the lower tier, the lower
// order of workload.Evict, the lower priority, and the larger usage. Usages within the same power of two count as equal:
// then the younger pod goes first, because less of its work is lost.
func (a *evictable) goesBefore(b *evictable) bool {
	if a.leaves != b.leaves {
		return a.leaves
	}
	return cmp.Or(
		classOrder(a.pod.Class, b.pod.Class),
		cmp.Compare(a.pod.Tier, b.pod.Tier),
		cmp.Compare(a.pod.Evict.Order.Value, b.pod.Evict.Order.Value),
		cmp.Compare(a.priority, b.priority),
		cmp.Compare(bits.Len64(uint64(b.use)), bits.Len64(uint64(a.use))),
		b.since.Compare(a.since),
		cmp.Compare(b.use, a.use),
		cmp.Compare(a.pod.UID, b.pod.UID),
	) < 0
}

// podCreated returns when the runtime created the oldest of the pod's containers; the zero time
// if that is unknown.
func podCreated(v *View, p *Pod) time.Time {
	var oldest time.Time
	for i := p.First; i < p.First+p.Count; i++ {
		if at := v.Containers[i].Created; i == p.First || at.Before(oldest) {
			oldest = at
		}
	}
	return oldest
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
