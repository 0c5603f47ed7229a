package control

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// growth is how fast the memory of a container grows.
type growth struct {
	at      time.Time
	current int64
	bps     float64 // bytes per second
	known   bool
}

// podUse is what a pod uses of a resource.
type podUse struct {
	pod    int // index in View.Pods
	amount float64
}

// candidate returns the pod that uses far more of a resource than others, with its share of what all
// such pods use; pod is -1 if there is none. A BE pod comes first, unless all of batch work is
// squeezed. A service follows if it uses more than batch work does that may be the cause, since batch
// work gives way otherwise.
func (c *Culprit) candidate(v *View, victim *Pod, kind hintKind, can func(pod int) bool) (pod int, part float64) {
	batch := c.collect(v, victim, kind, false)
	if !v.Batch.Squeeze && !v.Share.limits() {
		if pod, part = c.largest(v, victim, batch, leastOf(kind), culpritOthers, can); pod >= 0 {
			return pod, part
		}
	}
	if kind == ofCPU && (v.Isolated || v.ExclusivePools) {
		batch = 0
	}
	services := c.collect(v, victim, kind, true)
	return c.largest(v, victim, services, max(batch, leastOf(kind)), 1, can)
}

// leastOf returns the amount of a resource below which no pod makes another one wait. One channel of memory transfers
// at least ten times leastBandwidth, and a core has leastCache of the last-level cache for itself on common machines.
func leastOf(kind hintKind) float64 {
	const leastBandwidth, leastCache = 1e9, 1 << 20 // bytes per second, bytes
	switch kind {
	case ofBandwidth:
		return leastBandwidth
	case ofCache:
		return leastCache
	}
	return 0
}

// collect enters into c.uses what each BE pod uses of a resource, or each service, and returns the sum.
// Of services' CPU, only what they use beyond their requests counts, and only where the victim
// runs too. Pods whose usage is not known are left out.
func (c *Culprit) collect(v *View, victim *Pod, kind hintKind, services bool) (all float64) {
	c.uses = c.uses[:0]
	for i := range v.Pods {
		p := &v.Pods[i]
		if services != p.isService() || !services && p.Class != workload.BE || services && kind == ofCPU && !shareCPUs(v, p, victim) {
			continue
		}
		amount, ok := c.amount(v, p, kind)
		if !ok {
			continue
		}
		if services && kind == ofCPU {
			amount = max(0, amount-float64(c.floor(v, p)))
		}
		c.uses = append(c.uses, podUse{i, amount})
		all += amount
	}
	return all
}

// largest returns the pod of c.uses that uses far more than the others and at least that much, if it may be
// squeezed. If it may not, the next one counts that still uses far more than the others.
func (c *Culprit) largest(v *View, victim *Pod, all, least float64, leastOthers int, can func(pod int) bool) (pod int, part float64) {
	others := float64(len(c.uses) - 1)
	if others < float64(leastOthers) {
		return -1, 0
	}
	slices.SortStableFunc(c.uses, func(a, b podUse) int { return cmp.Compare(b.amount, a.amount) })
	for _, u := range c.uses {
		if u.amount <= 0 || u.amount < least || u.amount < culpritShare*all || u.amount < culpritTimes*(all-u.amount)/others {
			return -1, 0
		}
		p := &v.Pods[u.pod]
		a := c.pods.find(p.UID)
		use, measured := c.useOf(v, p)
		if measured && use > c.floor(v, p) && p.UID != victim.UID && maySqueeze(p) && poolOf(v, p) >= poolOf(v, victim) &&
			can(u.pod) && (a == nil || a.phase == culpritFree && a.spared == 0) {
			return u.pod, u.amount / all
		}
	}
	return -1, 0
}

// isService reports whether the pod shares its CPUs and is not batch work.
func (p *Pod) isService() bool {
	return p.Class == workload.LS || p.Class == workload.Unclassified
}

// maySqueeze reports whether a pod may get a lower CPU limit for others.
func maySqueeze(p *Pod) bool {
	return p.Class == workload.BE || p.isService() && p.Allow&workload.Demote != 0
}

// poolOf returns the highest pool of a pod's containers; -1 if none of them is in a pool.
func poolOf(v *View, p *Pod) int {
	pool := -1
	for i := range v.Containers[p.First : p.First+p.Count] {
		if of := v.Containers[p.First+i].Pool; of >= 0 && (pool < 0 || of < pool) {
			pool = of
		}
	}
	return pool
}

// shareCPUs reports whether two pods run on the same CPUs.
func shareCPUs(v *View, a, b *Pod) bool {
	return v.overlap(poolOf(v, a), poolOf(v, b)) && !a.Separated && !b.Separated
}

// overlap reports whether two pools, by index in View.Pools, have CPUs in common. An index of -1 stands for none.
func (v *View) overlap(a, b int) bool {
	return a >= 0 && b >= 0 && (a == b || !v.ExclusivePools && v.Pools[a].Disjoint>>b&1 == 0)
}

// floor returns the least limit of a pod: for batch work its part of batch work's floor, and for a
// service its request.
func (c *Culprit) floor(v *View, p *Pod) (least workload.MilliCPU) {
	if p.Class != workload.BE {
		for i := range v.Containers[p.First : p.First+p.Count] {
			least += max(v.Containers[p.First+i].Request, leastQuota)
		}
		return least
	}
	pods := workload.MilliCPU(0)
	for i := range v.Pods {
		if v.Pods[i].Class == workload.BE {
			pods++
		}
	}
	return max(c.batch.Floor(v)/max(pods, 1), leastQuota)
}

// amount returns how much a pod uses of a resource, if that is known of all its containers.
func (c *Culprit) amount(v *View, p *Pod, kind hintKind) (sum float64, ok bool) {
	if kind == ofCPU {
		use, ok := c.useOf(v, p)
		return float64(use), ok
	}
	for i := range v.Containers[p.First : p.First+p.Count] {
		b := &v.Containers[p.First+i]
		switch {
		case b.Unseen:
			continue
		case kind == ofIO && knownSlowly(v.Now, b.IO.At, c.interval):
			sum += b.IO.ReadBPS + b.IO.WriteBPS
		case kind == ofMemory && c.growth.at(b.ID).known:
			sum += c.growth.at(b.ID).bps
		case kind == ofBandwidth && knownSlowly(v.Now, b.Cache.At, c.interval):
			sum += b.Cache.Bandwidth
		case kind == ofCache && knownSlowly(v.Now, b.Cache.At, c.interval):
			sum += float64(b.Cache.Occupancy)
		default:
			return 0, false
		}
		ok = true
	}
	return sum, ok
}

// useOf returns the CPU usage of a pod, if that is known of all its containers.
func (c *Culprit) useOf(v *View, p *Pod) (sum workload.MilliCPU, ok bool) {
	for i := range v.Containers[p.First : p.First+p.Count] {
		b := &v.Containers[p.First+i]
		if b.Unseen {
			continue
		}
		if !uses(v, b, c.interval) {
			return 0, false
		}
		sum, ok = sum+b.CPU.Usage, true
	}
	return sum, ok
}

// grow measures how fast the memory of containers grows that may be squeezed.
func (c *Culprit) grow(v *View) {
	c.growth.begin()
	for i := range v.Containers {
		b := &v.Containers[i]
		if b.Class.Pinned() || b.Class == workload.System {
			continue
		}
		g, m := c.growth.at(b.ID), &b.Container.Memory
		switch {
		case !knownSlowly(v.Now, m.At, c.interval):
			*g = growth{}
		case g.at.IsZero() || m.At.Before(g.at):
			*g = growth{at: m.At, current: m.Current}
		case m.At.After(g.at):
			*g = growth{m.At, m.Current, max(0, float64(m.Current-g.current)) / m.At.Sub(g.at).Seconds(), true}
		}
	}
	c.growth.end()
}
