package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// suspicion is that a BE pod makes an LS pod wait, before anything is done about it.
type suspicion struct {
	trouble
	pod  string // UID of the BE pod
	time time.Duration
	seen readings
}

// growth is how fast the memory of a container grows.
type growth struct {
	at      time.Time
	current int64
	bps     float64 // bytes per second
	known   bool
}

// unclear is a pod that breaks its objective, while nothing tells what is short.
type unclear struct {
	time time.Duration
	said bool
}

// batchPodUse is what a BE pod uses of a resource.
type batchPodUse struct {
	pod    int // index in View.Pods
	amount float64
}

// suspect looks for the LS pod that waits most and for the BE pod that may be the cause, and
// begins a trial once both have been the same for suspectTime.
func (c *Culprit) suspect(v *View, disturbed []Disturbance, passed time.Duration, acts bool, can func(pod int) bool) {
	d, part := c.worst(v, disturbed)
	if d == nil {
		c.suspicion = suspicion{}
		c.seek(v, disturbed, passed)
		return
	}
	victim := &v.Pods[d.Pod]
	c.closely = victim.UID
	_, kind := strainName(part)
	pod, used := c.candidate(v, kind, can)
	if pod < 0 {
		c.suspicion = suspicion{}
		return
	}
	p := &v.Pods[pod]
	s := &c.suspicion
	if s.pod != p.UID || s.victim != victim.UID || s.part != part {
		*s = suspicion{trouble: trouble{victim: victim.UID, ref: victim.Ref, part: part, bears: d.bearsOf(part), late: d.late()}, pod: p.UID}
		return
	}
	s.time += passed
	if r := &d.Latest[part]; c.fresh(v, r) {
		s.seen.add(r)
	}
	if s.time < suspectTime || s.seen.n == 0 {
		return
	}
	s.before = s.seen.mean()
	use, _ := c.useOf(v, p)
	a := c.pods.at(p.UID)
	to := max(c.floor(v), perCent(use, cutPercent))
	if a.good > 0 { // limiting it has helped before
		a.again = min(a.again+1, mostDoubled)
		to = max(to, min(a.good, perCent(use, againPercent)))
	}
	a.trouble, a.from, a.limit = s.trouble, use, 0
	why := fmt.Sprintf("it uses %s of batch work's %s while %s waits: the %s of %s is %s above its calm baseline",
		inPercent(used), [hintKinds]string{"CPU", "memory growth", "disk I/O"}[kind], s.ref, s.name(), s.ref, inPercent(s.before))
	if s.late {
		why += fmt.Sprintf(", and it answers %s, with an objective of %s", d.Objective.Now(), d.Objective.Most())
	}
	c.suspicion = suspicion{}
	if !acts {
		c.decide(p, "squeeze", inCPUs(use)+" CPUs in use", inCPUs(to)+" CPUs", why, "", a.facts(a.before, to))
		*a = accused{spared: unsuspectTime}
		return
	}
	a.phase, c.trying = culpritTried, true
	c.limit(v, p, a, to, why)
}

// worst returns the LS pod that waits most beyond its baseline, and the part of Strain; nil if
// none suffers. The present suspicion stays while its victim suffers.
func (c *Culprit) worst(v *View, disturbed []Disturbance) (most *Disturbance, part int) {
	excess := 0.0
	for i := range disturbed {
		d := &disturbed[i]
		for k := range strains {
			if !c.suffers(v, d, k) {
				continue
			}
			if v.Pods[d.Pod].UID == c.victim && k == c.part {
				return d, k
			}
			if d.Latest[k].above > excess {
				most, part, excess = d, k, d.Latest[k].above
			}
		}
	}
	return most, part
}

// seek looks at the pods that break their objectives although no waiting tells what they lack. They are
// measured closely for a moment; if it does not tell then either, a decision says so.
func (c *Culprit) seek(v *View, disturbed []Disturbance, passed time.Duration) {
	c.unclear.begin()
	worst := 0.0
	for i := range disturbed {
		d := &disturbed[i]
		o, p := d.Objective, &v.Pods[d.Pod]
		if o == nil || o.BrokenAt.IsZero() {
			continue
		}
		u := c.unclear.at(p.UID)
		if !d.late() || u.said {
			continue
		}
		if ratio := o.Seconds / o.tolerated; ratio > worst {
			worst, c.closely = ratio, p.UID
		}
		if u.time += passed; u.time < suspectTime {
			c.seeking = true
			continue
		}
		u.said = true
		why := fmt.Sprintf("it answers %s, and its objective is %s; nobody is suspected, because nothing tells what it lacks: ", o.Now(), o.Most())
		c.decide(p, "unclear", "", "", why+c.noTrace(v, d), "", o.facts())
	}
	c.unclear.end()
}

// noTrace says why the waiting of a pod does not tell what it lacks.
func (c *Culprit) noTrace(v *View, d *Disturbance) string {
	if d.throttled() {
		return "its own CPU limit throttles it"
	}
	for part := range throttling {
		if knownSlowly(v.Now, d.Latest[part].at, c.interval) {
			return fmt.Sprintf("none of what is measured of its waiting for CPU, memory and disks is %s above its calm baseline", inPercent(leastBears))
		}
	}
	return "its waiting for CPU, memory and disks is not measured"
}

// suffers reports whether others may make an LS pod wait. Throttling by its own limit is not
// the work of others, and neither is the waiting for CPUs that comes with it.
func (c *Culprit) suffers(v *View, d *Disturbance, part int) bool {
	r := &d.Latest[part]
	_, kind := strainName(part)
	throttled := kind == ofCPU && d.throttled()
	return part != throttling && !throttled && r.above >= d.tells(part) && knownSlowly(v.Now, r.at, c.interval)
}

// candidate returns the BE pod that uses far more of a resource than others, with its share of
// the use of all; pod is -1 if there is none. Pods whose usage is not known are left out.
func (c *Culprit) candidate(v *View, kind hintKind, can func(pod int) bool) (pod int, part float64) {
	c.uses = c.uses[:0]
	all := 0.0
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Class != workload.BE {
			continue
		}
		if amount, ok := c.amount(v, p, kind); ok {
			c.uses = append(c.uses, batchPodUse{i, amount})
			all += amount
		}
	}
	others := float64(len(c.uses) - 1)
	if others < culpritOthers {
		return -1, 0
	}
	floor := c.floor(v)
	slices.SortStableFunc(c.uses, func(a, b batchPodUse) int {
		switch {
		case a.amount > b.amount:
			return -1
		case a.amount < b.amount:
			return 1
		}
		return 0
	})
	for _, u := range c.uses {
		if u.amount <= 0 || u.amount < culpritShare*all || u.amount < culpritTimes*(all-u.amount)/others {
			return -1, 0
		}
		p := &v.Pods[u.pod]
		a := c.pods.find(p.UID)
		use, measured := c.useOf(v, p)
		if measured && use > floor && can(u.pod) && (a == nil || a.phase == culpritFree && a.spared == 0) {
			return u.pod, u.amount / all
		}
	}
	return -1, 0
}

// amount returns how much a BE pod uses of a resource, if that is known of all its containers.
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

// grow measures how fast the memory of BE containers grows.
func (c *Culprit) grow(v *View) {
	c.growth.begin()
	for i := range v.Containers {
		b := &v.Containers[i]
		if b.Class != workload.BE {
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
