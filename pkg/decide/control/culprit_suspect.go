package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// suspicion is that a pod makes an LS pod wait, before anything is done about it.
type suspicion struct {
	trouble
	pod  string // UID of the suspect
	time time.Duration
	seen readings
}

// unclear is a pod that breaks its objective, while nothing tells what is short.
type unclear struct {
	time time.Duration
	said bool
}

// suspect looks for the LS pod that waits most and for the pod that may be the cause, and
// begins a trial once both have been the same for suspectTime.
func (c *Culprit) suspect(v *View, disturbed []Disturbance, passed time.Duration, acts bool, can func(pod int) bool) {
	d, part := c.worst(v, disturbed, 0)
	if d == nil {
		c.suspicion = suspicion{}
		c.seek(v, disturbed, passed)
		return
	}
	c.closely = v.Pods[d.Pod].UID
	pod, used, kind := c.suspectOf(v, d, part, can)
	if pod < 0 && part < strains {
		if other, signal := c.worst(v, disturbed, strains); other != nil {
			if pod, used, kind = c.suspectOf(v, other, signal, can); pod >= 0 {
				d, part = other, signal
			}
		}
	}
	if pod < 0 {
		c.suspicion = suspicion{}
		return
	}
	victim := &v.Pods[d.Pod]
	c.closely = victim.UID
	c.cycles = part == slowCycles // which costs too much while nobody is suspected
	p := &v.Pods[pod]
	s := &c.suspicion
	if s.pod != p.UID || s.victim != victim.UID || s.part != part {
		*s = suspicion{trouble: trouble{victim: victim.UID, ref: victim.Ref, part: part, bears: d.bearsOf(part), late: d.late()}, pod: p.UID}
		return
	}
	s.time += passed
	if r := &d.Latest[part]; fresh(v, r, c.interval) {
		s.calm = r.value - r.above
		s.seen.add(r, s.calm)
	}
	if s.time < suspectTime || s.seen.n == 0 {
		return
	}
	s.before = s.seen.mean()
	s.free = s.before
	use, _ := c.useOf(v, p)
	a := c.pods.at(p.UID)
	to := max(c.floor(v, p), perCent(use, cutPercent))
	if a.good > 0 { // limiting it has helped before
		a.again = min(a.again+1, mostDoubled)
		to = max(to, min(a.good, perCent(use, againPercent)))
	}
	a.trouble, a.from, a.limit = s.trouble, use, 0
	why := s.reason(d, p, kind, used)
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

// suspectOf returns the pod that may be the cause, with its share of what is short, and by what it is suspected; pod
// is -1 if there is none.
func (c *Culprit) suspectOf(v *View, d *Disturbance, part int, can func(pod int) bool) (pod int, used float64, kind hintKind) {
	if part >= strains {
		return c.contender(v, d, can)
	}
	_, kind = strainName(part)
	pod, used = c.candidate(v, &v.Pods[d.Pod], kind, can)
	return pod, used, kind
}

// reason says why a pod is suspected.
func (s *suspicion) reason(d *Disturbance, p *Pod, kind hintKind, used float64) string {
	if s.part >= strains {
		return fmt.Sprintf("%s while %s waits for caches and memory: its %s is %s above the usual%s", contends(p, s.ref, kind, used), s.ref, s.name(), inPercent(s.before), d.contention(s.part))
	}
	return fmt.Sprintf("%s while %s waits: the %s of %s is %s above its calm baseline", does(p, kind, used), s.ref, s.name(), s.ref, inPercent(s.before))
}

// does says how much of a resource a suspect uses.
func does(p *Pod, kind hintKind, part float64) string {
	if p.Class == workload.BE {
		return fmt.Sprintf("it uses %s of batch work's %s", inPercent(part), [...]string{"CPU", "memory growth", "disk I/O", "memory bandwidth", "cache"}[kind])
	}
	return fmt.Sprintf("it uses %s of %s, and allows it (demote)", inPercent(part),
		[...]string{"the CPU that services use beyond their requests", "services' memory growth", "services' disk I/O", "services' memory bandwidth", "services' cache"}[kind])
}

// worst returns the LS pod that waits most beyond its baseline, and the signal, of those from one on; nil
// if none suffers. What a pod is seen to wait for comes before contention, because a pod whose CPUs were taken away for a
// moment also finds less in the caches. The present suspicion stays while its victim suffers. A pod that is limited itself waits
// for that reason.
func (c *Culprit) worst(v *View, disturbed []Disturbance, from int) (most *Disturbance, part int) {
	excess := 0.0
	for i := range disturbed {
		d := &disturbed[i]
		if a := c.pods.find(v.Pods[d.Pod].UID); a != nil && a.phase != culpritFree {
			continue
		}
		for k := from; k < signals; k++ {
			if !c.suffers(v, d, k) {
				continue
			}
			if v.Pods[d.Pod].UID == c.victim && k == c.part {
				return d, k
			}
			seen, before := k < strains, part < strains
			if most == nil || seen && !before || seen == before && d.Latest[k].above > excess {
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
	if part == slowCycles {
		return d.Cycles.known(v.Now) && d.Cycles.Slowed() && r.above >= d.tells(part)
	}
	_, kind := strainName(part)
	throttled := kind == ofCPU && d.throttled()
	return part != throttling && !throttled && r.above >= d.tells(part) && knownSlowly(v.Now, r.at, c.interval)
}
