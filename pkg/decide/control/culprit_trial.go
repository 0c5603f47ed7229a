package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// victimOf returns what was measured of a victim; nil if it is gone.
func (t *trouble) victimOf(v *View, disturbed []Disturbance) *Disturbance {
	for i := range disturbed {
		if d := &disturbed[i]; v.Pods[d.Pod].UID == t.victim {
			return d
		}
	}
	return nil
}

// fresh reports whether a measurement was made closely enough to follow what has just changed.
func fresh(v *View, r *Reading, interval time.Duration) bool {
	return known(v.Now, r.at, interval) && r.at.Sub(r.from) <= staleAfter*interval
}

// since reports whether a measurement shows what a change at that time has brought. Containers are not
// measured at the same moment as the node.
func (r *Reading) since(change time.Time, interval time.Duration) bool {
	return !r.from.Before(change.Add(-interval / 4))
}

// advance brings one pod a step further.
func (c *Culprit) advance(v *View, p *Pod, a *accused, disturbed []Disturbance, passed time.Duration, can bool) {
	a.passed += passed
	a.spared = max(0, a.spared-passed)
	if v.Now.Before(a.cutAt) {
		a.cutAt = v.Now // the clock was set back
	}
	if a.phase == culpritFree {
		if a.passed >= forgetTime {
			c.pods.drop(p.UID)
		}
		return
	}
	if a.paused = !can; a.paused {
		if a.pausedFor += passed; a.pausedFor >= blindTime {
			c.free(p, a, "restore", fmt.Sprintf("its limit could not be changed for %s, because a container of it starts or it is resized", blindTime), a.denied)
		}
		return
	}
	if a.pausedFor > 0 && a.phase == culpritTried { // what was measured without the limit says nothing about it
		a.cutAt, a.passed, a.seen = v.Now, 0, readings{}
	}
	a.pausedFor = 0
	switch {
	case !maySqueeze(p):
		c.free(p, a, "restore", "it may not be squeezed any more", a.denied)
		return
	case p.Class != workload.BE && a.limit < c.floor(v, p):
		c.free(p, a, "restore", "its request has become larger than its limit", a.denied)
		return
	}
	d := a.victimOf(v, disturbed)
	if d == nil {
		c.free(p, a, "restore", a.ref+" is gone", a.denied)
		return
	}
	r := &d.Latest[a.part]
	hurts := c.hurts(v, a, d)
	if a.waited += passed; !hurts {
		a.waited = 0
	}
	if o := a.objective(d); o != nil && o.Measured || knownSlowly(v.Now, r.at, c.interval) {
		a.unseen = 0
	} else if a.unseen += passed; a.unseen >= lostTime {
		c.free(p, a, "restore", fmt.Sprintf("nobody knows whether the limit helps: how long %s waits has not been measured for %s", a.ref, lostTime), a.denied)
		return
	}
	switch a.phase {
	case culpritTried:
		if fresh(v, r, c.interval) && r.since(a.cutAt, c.interval) {
			a.seen.add(r, a.calm)
		}
		c.try(v, p, a, d)
	case culpritHeld:
		a.despite.pass(passed, hurts && !c.trying && r.above >= asBefore*a.free)
		c.hold(v, p, a, d)
	case culpritEasing:
		c.goBack(v, p, a, d)
	case culpritFree:
	}
}

// hold keeps the limit of a pod that has turned out to be a culprit, and ends it if the service suffers nevertheless.
func (c *Culprit) hold(v *View, p *Pod, a *accused, d *Disturbance) {
	switch {
	case a.part >= strains && a.despite >= despiteTime:
		c.deny(p, a, fmt.Sprintf("the %s of %s is above the usual again and again (%s), although this pod has little CPU", a.name(), a.ref, a.now(d)))
	case a.waited >= holdTime:
		why := fmt.Sprintf("%s %s for %s, although this pod has little CPU", a.ref, a.suffering("has been waiting", "has been answering too late"), holdTime)
		c.deny(p, a, why+c.teach(v, p, a, d, d.Latest[a.part].value))
	case a.passed >= holdTime<<a.again && c.bears(v, a, d):
		a.phase = culpritEasing
		c.ease(v, p, a)
	}
}

// goBack gives the pod its CPU back step by step, while the service does not suffer.
func (c *Culprit) goBack(v *View, p *Pod, a *accused, d *Disturbance) {
	r := &d.Latest[a.part]
	switch {
	case a.waited >= suspectTime:
		a.again, a.phase = min(a.again+1, mostDoubled), culpritHeld
		if a.part < strains { // contention may have come back by chance
			a.denied = 0
		}
		if !c.trying {
			a.phase, c.trying = culpritTried, true
		}
		a.before, a.calm = r.above, r.value-r.above
		c.limit(v, p, a, max(a.good, c.floor(v, p)), fmt.Sprintf("%s %s again (%s) since this pod has more than %s CPUs", a.ref, a.suffering("waits", "answers too late"), a.now(d), inCPUs(a.good)))
	case a.passed >= easeTime && c.bears(v, a, d):
		c.ease(v, p, a)
	}
}

// hurts reports whether the service suffers now, although the pod has the limit. It need not be a fresh
// measurement, because another service may be the one that is measured closely.
func (c *Culprit) hurts(v *View, a *accused, d *Disturbance) bool {
	if o := a.objective(d); o != nil {
		return o.broken() && o.since(a.cutAt)
	}
	r := &d.Latest[a.part]
	return r.above >= a.most() && knownSlowly(v.Now, r.at, c.interval) && r.since(a.cutAt, c.interval)
}

// bears reports whether a measurement since the last change of a pod's limit shows that the service can
// bear it. It need not be a fresh one, because each step of the way back takes as long as the slowest
// measurement.
func (c *Culprit) bears(v *View, a *accused, d *Disturbance) bool {
	if o := a.objective(d); o != nil {
		return !o.broken() && o.since(a.cutAt)
	}
	r := &d.Latest[a.part]
	return r.above < a.most() && knownSlowly(v.Now, r.at, c.interval) && r.at.After(a.cutAt)
}

// waitsAgain reports whether a service waits while a culprit is on its way back.
func (c *Culprit) waitsAgain(v *View) bool {
	for i := range v.Pods {
		if a := c.pods.find(v.Pods[i].UID); a != nil && a.phase == culpritEasing && a.waited > 0 {
			return true
		}
	}
	return false
}

// try lowers the limit further, or ends the trial. Less waiting shows within seconds that the limit
// helps. A pod that breaks its objective must keep it then, too; otherwise something else than this waiting
// made it answer too late.
func (c *Culprit) try(v *View, p *Pod, a *accused, d *Disturbance) {
	less := a.seen.n > 0 && a.seen.mean() < a.enough()
	helped, known := less, true
	if a.objective(d) != nil {
		o := a.verdict(d)
		known = o != nil || a.passed >= blindTime
		helped = a.seen.n > 0 && known && (o == nil && less || o != nil && o.kept())
	}
	use, used := c.useOf(v, p)
	next := max(c.floor(v, p), perCent(min(use, a.limit), cutPercent))
	switch {
	case helped && a.passed >= observeTime:
		a.why = fmt.Sprintf("%s %s while this pod had more: %s", a.ref, a.suffering("waited", "answered too late"), a.outcome(d))
		a.phase, a.good, a.passed, a.waited, a.despite = culpritHeld, a.limit, 0, 0, 0
		c.tried(&a.trouble, true)
		c.decide(p, "confirm", "", inCPUs(a.limit)+" CPUs", fmt.Sprintf("%s; the limit holds for %s", a.why, holdTime<<a.again), "", a.facts(a.seen.mean(), a.limit))
	case helped || a.passed < cutTime:
	case a.seen.n == 0:
		if a.passed >= blindTime {
			c.unknown(p, a)
		}
	case !less && used && next < a.limit:
		c.limit(v, p, a, next, fmt.Sprintf("%s still waits (%s), and this pod uses %s CPUs", a.ref, inPercent(a.seen.mean()), inCPUs(use)))
	case known && a.passed >= observeTime:
		why := "its lower limit does not help: " + a.outcome(d)
		if !less {
			why += c.teach(v, p, a, d, a.calm+a.seen.mean())
		}
		c.deny(p, a, why)
	}
}

// teach notes that the victim waits as much for CPUs while all batch work has no more than its floor, and says so. Of
// waiting for memory and disks a lower CPU limit tells less. A pod with a bound is compared with that.
func (c *Culprit) teach(v *View, p *Pod, a *accused, d *Disturbance, value float64) string {
	if _, kind := strainName(a.part); kind != ofCPU || p.Class != workload.BE {
		return ""
	}
	if _, bound := boundOf(&v.Pods[d.Pod].SLO, a.part); bound > 0 {
		return ""
	}
	all := workload.MilliCPU(0)
	for i := range v.Pods {
		if v.Pods[i].Class != workload.BE {
			continue
		}
		use, ok := c.useOf(v, &v.Pods[i])
		if !ok {
			return ""
		}
		all += use
	}
	if all > perCent(c.batch.Floor(v), 100+floorSlack) {
		return ""
	}
	c.unavoidable = append(c.unavoidable, Unavoidable{a.victim, a.part, value})
	return fmt.Sprintf("; all batch work uses no more than its floor, so that the baseline of %s is at least %s from now on", a.ref, inPercent(value))
}

// outcome says what has changed since the limit.
func (a *accused) outcome(d *Disturbance) string {
	text := fmt.Sprintf("the %s of %s was %s above its calm baseline before, and is %s now", a.name(), a.ref, inPercent(a.before), inPercent(a.seen.mean()))
	if o := a.verdict(d); o != nil {
		text += fmt.Sprintf("; it answers %s now, and its objective is %s", o.Now(), o.Most())
	}
	return text
}

// now says how much the victim suffers.
func (t *trouble) now(d *Disturbance) string {
	if o := t.objective(d); o != nil && o.Measured {
		return o.Now()
	}
	return inPercent(d.Latest[t.part].above)
}

// suffering returns the words for a pod that waits, or for one that breaks its objective.
func (t *trouble) suffering(waits, late string) string {
	if t.late {
		return late
	}
	return waits
}

// limit sets a lower limit.
func (c *Culprit) limit(v *View, p *Pod, a *accused, to workload.MilliCPU, why string) {
	from := inCPUs(a.limit) + " CPUs"
	if a.limit == 0 {
		from = inCPUs(a.from) + " CPUs in use"
	}
	excess := a.before
	if a.seen.n > 0 {
		excess = a.seen.mean()
	}
	a.limit, a.cutAt, a.passed, a.waited, a.seen = to, v.Now, 0, 0, readings{}
	a.why = fmt.Sprintf("%s; its CPU limit is %s", why, inCPUs(to))
	c.decide(p, "squeeze", from, inCPUs(to)+" CPUs", a.why, "limit", a.facts(excess, to))
}

// ease gives the pod some CPU back, and in the end all.
func (c *Culprit) ease(v *View, p *Pod, a *accused) {
	a.passed, a.good, a.cutAt = 0, a.limit, v.Now
	next := max(a.limit+1, perCent(a.limit, easePercent))
	if a.limit >= a.from { // which was observed for easeTime
		if use, ok := c.useOf(v, p); ok && use >= perCent(a.from, atQuota) && (p.Class != workload.BE || a.part >= strains) {
			c.deny(p, a, fmt.Sprintf("%s does not wait, although this pod uses %s CPUs again", a.ref, inCPUs(use)))
			return
		}
		c.free(p, a, "restore", a.ref+" does not wait any more", a.denied)
		return
	}
	from, to := distinctCPUs(a.limit, next)
	a.limit = next
	a.why = fmt.Sprintf("it gets its CPU back step by step, while %s does not wait; it used %s CPUs before", a.ref, inCPUs(a.from))
	c.decide(p, "ease", from, to, a.why, "limit", a.facts(0, next))
}

// deny ends the limit of a pod that is not the cause.
func (c *Culprit) deny(p *Pod, a *accused, why string) {
	spared := unsuspectTime << a.denied
	c.tried(&a.trouble, false)
	c.free(p, a, "acquit", fmt.Sprintf("%s; it is not suspected for %s", why, spared), min(a.denied+1, mostDoubled))
	a.spared, a.good, a.again = spared, 0, 0
}

// unknown ends a trial of which nothing was measured. Counters of the processor can be missing again and again, since
// others use them, too, so that the next trial comes later each time.
func (c *Culprit) unknown(p *Pod, a *accused) {
	denied, spared := a.denied, unsuspectTime
	if a.part >= strains {
		spared, denied = unsuspectTime<<denied, min(denied+1, mostDoubled)
		c.tried(&a.trouble, false)
	}
	c.free(p, a, "restore", "nobody knows whether the limit helps: how long "+a.ref+" waits was not measured", denied)
	a.spared = spared
}

// free removes the pod's limit.
func (c *Culprit) free(p *Pod, a *accused, action, why string, denied int) {
	c.decide(p, action, inCPUs(a.limit)+" CPUs", "no limit", why, "limit", a.facts(0, a.limit))
	*a = accused{spared: a.spared, denied: denied, again: a.again, good: min(a.good, a.from)}
}

// name names what the victim waits for.
func (t *trouble) name() string {
	name, _ := strainName(t.part)
	return name
}

func (a *accused) facts(excess float64, limit workload.MilliCPU) []Fact {
	return []Fact{{"excess_before", a.before}, {"excess", excess}, cpuFact("limit_cpus", limit), cpuFact("usage_before_cpus", a.from)}
}
