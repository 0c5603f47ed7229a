package control

import (
	"cmp"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// The constants say how a suspect is found, tried and held.
const (
	suspectTime    = 2 * time.Second  // an LS pod must have waited for so long before a BE pod is suspected
	culpritShare   = 0.4              // least part of a resource's use by all BE pods that a suspect has
	culpritTimes   = 2                // a suspect uses at least so many times the mean of the other BE pods
	culpritOthers  = 2                // with fewer other BE pods that are measured, nobody is suspected
	cutTime        = 2 * time.Second  // between two cuts
	observeTime    = 5 * time.Second  // in which it must turn out whether the last cut helped
	blindTime      = 15 * time.Second // after which a trial ends that nothing is measured of
	holdTime       = time.Minute      // for which a culprit keeps its limit
	easeTime       = 10 * time.Second // between two steps of its way back
	unsuspectTime  = time.Minute      // for which a pod is not suspected again; doubles with each trial that did not help
	forgetTime     = 2 * unsuspectTime << mostDoubled
	easePercent    = 150
	cutPercent     = 50
	againPercent   = 75  // first limit of a pod that made a service wait before, if that may be enough
	helpedFraction = 0.5 // part of the excess before the trial that may be left if the trial helped
)

// Culprit finds the BE pod that makes a service wait, and lowers its CPU limit rather than that
// of all batch work. It suspects the pod that uses most of what the service waits for, lowers its
// limit step by step, and observes whether the service waits less. If so, the pod keeps the
// limit for a while and then gets its CPU back step by step. If not, it gets all back at once,
// and is not suspected for some time. One pod is tried at a time, since the effects of
// two could not be distinguished.
type Culprit struct {
	batch    BatchConfig
	interval time.Duration
	watch    stopwatch
	pods     perID[accused] // by UID of BE pods
	growth   perID[growth]  // by ID of BE containers
	suspicion
	suspected time.Duration  // for which there has been a suspicion, of one pod or another
	unclear   perID[unclear] // by UID of LS pods that break their objectives
	seeking   bool           // it may show in a moment what a pod that breaks its objective waits for
	trying    bool           // one pod is being tried
	nearly    bool           // a trial may begin in a moment
	closely   string         // UID of the LS pod of which Closely speaks

	uses      []batchPodUse
	limits    []PodLimit
	decisions []Decision
}

// PodLimit is a CPU limit that a controller wants for a pod as a whole.
type PodLimit struct {
	Pod int // index in View.Pods
	CPU workload.MilliCPU
	Why string
}

// accused is what is known of a BE pod that was suspected.
type accused struct {
	phase culpritPhase
	trouble
	limit, from workload.MilliCPU // its limit now, and its usage before the first cut
	good        workload.MilliCPU // the highest limit with which the service does not wait; 0 if none is known
	cutAt       time.Time         // when its limit last changed
	passed      time.Duration     // since the last cut, the last step back, or the begin of the phase
	waited      time.Duration     // for which the service has been waiting in a row while the pod is held or eased
	seen        readings          // measured since the last cut
	spared      time.Duration     // for which it is not suspected
	denied      int               // trials in a row that did not help, at most mostDoubled
	again       int               // times that the service waited again on the pod's way back, at most mostDoubled
	paused      bool              // it has no limit at the moment, because it can't be limited
	pausedFor   time.Duration
	why         string
}

type culpritPhase uint8

const (
	culpritFree   culpritPhase = iota
	culpritTried               // its limit is being lowered, and the service observed
	culpritHeld                // lowering its limit has helped
	culpritEasing              // on its way back
)

// trouble is the waiting of an LS pod for a resource.
type trouble struct {
	victim, ref string  // UID, and "namespace/name"
	part        int     // of Strain
	before      float64 // excess over the baseline before the first cut
	bears       float64 // excess from which the pod suffers; 0 for Suffers
	late        bool    // the pod breaks its objective, and how it waits only says what is short
}

// most returns the excess from which the LS pod suffers.
func (t *trouble) most() float64 { return cmp.Or(t.bears, Suffers) }

// enough returns the excess up to which a trial counts as helpful.
func (t *trouble) enough() float64 {
	if t.late {
		return t.before * helpedFraction
	}
	return min(t.most(), t.before*helpedFraction)
}

// objective returns the objective by which the trouble is judged; nil if it is judged by the waiting
// alone.
func (t *trouble) objective(d *Disturbance) *Objective {
	if o := d.Objective; t.late && o != nil && (o.Measured || o.lost) {
		return o
	}
	return nil
}

// readings is the mean of several measurements.
type readings struct {
	last time.Time
	sum  float64
	n    int
}

func (m *readings) add(r *Reading) {
	if !r.at.Equal(m.last) {
		m.last, m.sum, m.n = r.at, m.sum+r.above, m.n+1
	}
}

func (m *readings) mean() float64 { return m.sum / float64(m.n) }

// NewCulprit returns the controller. The configuration gives the floor of batch work. Step must
// be called once per interval.
func NewCulprit(batch BatchConfig, interval time.Duration) *Culprit {
	return &Culprit{batch: batch, interval: interval}
}

// Closely returns the UID of an LS pod whose waiting must be measured at each step, not only now
// and then; "" for none.
func (c *Culprit) Closely() string { return c.closely }

// Trying reports whether a suspect is being tried or will be in a moment, so that nothing else must
// change meanwhile.
func (c *Culprit) Trying() bool { return c.trying || c.nearly }

// Step returns the limits of the BE pods that make services wait. If acts is false, nothing is
// limited and nothing can be concluded, and Step only says whom it would limit. The function can
// reports whether the pod at an index of View.Pods may be limited now. A limit that can't be for a
// moment is paused. The list is valid until the next step.
func (c *Culprit) Step(v *View, disturbed []Disturbance, acts bool, can func(pod int) bool) ([]PodLimit, []Decision) {
	passed := c.watch.lap(v.Now, c.interval)
	c.limits, c.decisions, c.closely = c.limits[:0], nil, ""
	c.grow(v)
	c.pods.begin()
	c.trying = false
	for i := range v.Pods {
		if a := c.pods.find(v.Pods[i].UID); a != nil && a.phase == culpritTried {
			c.trying = true
		}
	}
	c.pods.end()
	trying := c.trying
	c.seeking = false
	for i := range v.Pods {
		if a := c.pods.find(v.Pods[i].UID); a != nil {
			c.advance(v, &v.Pods[i], a, disturbed, passed, can(i))
		}
	}
	if trying || c.trying || v.Batch.Squeeze || v.Share.limits() {
		c.suspicion, c.suspected = suspicion{}, 0
	} else {
		c.suspect(v, disturbed, passed, acts, can)
		if c.suspected += passed; c.pod == "" {
			c.suspected = 0
		}
	}
	c.nearly = acts && (c.seeking || c.pod != "" && c.suspected < observeTime || c.waitsAgain(v))
	for i := range v.Pods {
		if a := c.pods.find(v.Pods[i].UID); a != nil && a.phase != culpritFree && !a.paused {
			c.limits = append(c.limits, PodLimit{i, a.limit, a.why})
			if c.closely == "" || a.phase == culpritTried || a.waited > 0 && !c.trying {
				c.closely = a.victim
			}
		}
	}
	return c.limits, c.decisions
}

// victimOf returns what was measured of a victim; nil if it is gone.
func (c *Culprit) victimOf(v *View, disturbed []Disturbance, t *trouble) *Disturbance {
	for i := range disturbed {
		if d := &disturbed[i]; v.Pods[d.Pod].UID == t.victim {
			return d
		}
	}
	return nil
}

// fresh reports whether a measurement was made closely enough to follow what has just changed.
func (c *Culprit) fresh(v *View, r *Reading) bool {
	return known(v.Now, r.at, c.interval) && r.at.Sub(r.from) <= staleAfter*c.interval
}

// advance brings one pod a step further.
func (c *Culprit) advance(v *View, p *Pod, a *accused, disturbed []Disturbance, passed time.Duration, can bool) {
	a.passed += passed
	a.spared = max(0, a.spared-passed)
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
	d := c.victimOf(v, disturbed, &a.trouble)
	if d == nil {
		c.free(p, a, "restore", a.ref+" is gone", a.denied)
		return
	}
	r := &d.Latest[a.part]
	if a.waited += passed; !c.hurts(v, a, d) {
		a.waited = 0
	}
	switch a.phase {
	case culpritTried:
		if c.fresh(v, r) && !r.from.Before(a.cutAt.Add(-c.interval/4)) {
			a.seen.add(r)
		}
		c.try(v, p, a, d)
	case culpritHeld:
		switch {
		case a.waited >= holdTime:
			c.deny(p, a, fmt.Sprintf("%s %s for %s, although this pod has little CPU", a.ref, a.suffering("has been waiting", "has been answering too late"), holdTime))
		case a.passed >= holdTime<<a.again && c.bears(v, a, d):
			a.phase = culpritEasing
			c.ease(v, p, a)
		}
	case culpritEasing:
		switch {
		case a.waited >= suspectTime:
			a.again, a.phase = min(a.again+1, mostDoubled), culpritHeld
			if !c.trying {
				a.phase, c.trying = culpritTried, true
			}
			a.before = r.above
			c.limit(v, p, a, a.good, fmt.Sprintf("%s %s again (%s) since this pod has more than %s CPUs", a.ref, a.suffering("waits", "answers too late"), a.now(d), inCPUs(a.good)))
		case a.passed >= easeTime && c.bears(v, a, d):
			c.ease(v, p, a)
		}
	case culpritFree:
	}
}

// hurts reports whether the service suffers now, although the pod has the limit.
func (c *Culprit) hurts(v *View, a *accused, d *Disturbance) bool {
	if o := a.objective(d); o != nil {
		return o.broken() && o.since(a.cutAt)
	}
	r := &d.Latest[a.part]
	return c.fresh(v, r) && r.above >= a.most()
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
// helps. A pod that breaks its objective must keep it then, too: what else would the waiting have to do
// with it?
func (c *Culprit) try(v *View, p *Pod, a *accused, d *Disturbance) {
	less := a.seen.n > 0 && a.seen.mean() < a.enough()
	helped, known := less, true
	if o := a.objective(d); o != nil {
		known = o.since(a.cutAt) || a.passed >= blindTime
		helped = a.seen.n > 0 && known && (less && !o.since(a.cutAt) || o.since(a.cutAt) && !o.broken())
	}
	use, used := c.useOf(v, p)
	next := max(c.floor(v), perCent(min(use, a.limit), cutPercent))
	switch {
	case helped && a.passed >= observeTime:
		a.why = fmt.Sprintf("%s %s while this pod had more: %s", a.ref, a.suffering("waited", "answered too late"), a.outcome(d))
		a.phase, a.good, a.passed, a.waited, a.denied = culpritHeld, a.limit, 0, 0, 0
		c.decide(p, "confirm", "", inCPUs(a.limit)+" CPUs", fmt.Sprintf("%s; the limit holds for %s", a.why, holdTime<<a.again), "", a.facts(a.seen.mean(), a.limit))
	case helped || a.passed < cutTime:
	case a.seen.n == 0:
		if a.passed >= blindTime {
			c.free(p, a, "restore", "nobody knows whether the limit helps: how long "+a.ref+" waits was not measured", a.denied)
			a.spared = unsuspectTime
		}
	case !less && used && next < a.limit:
		c.limit(v, p, a, next, fmt.Sprintf("%s still waits (%s), and this pod uses %s CPUs", a.ref, inPercent(a.seen.mean()), inCPUs(use)))
	case known && a.passed >= observeTime:
		c.deny(p, a, fmt.Sprintf("its lower limit does not help: %s", a.outcome(d)))
	}
}

// outcome says what has changed since the limit.
func (a *accused) outcome(d *Disturbance) string {
	text := fmt.Sprintf("the %s of %s was %s above its calm baseline before, and is %s now", a.name(), a.ref, inPercent(a.before), inPercent(a.seen.mean()))
	if o := a.objective(d); o != nil && o.since(a.cutAt) {
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
		c.free(p, a, "restore", a.ref+" does not wait any more", a.denied)
		return
	}
	from, to := distinctCPUs(a.limit, next)
	a.limit = next
	a.why = fmt.Sprintf("it gets its CPU back step by step, while %s does not wait; it used %s CPUs before", a.ref, inCPUs(a.from))
	c.decide(p, "ease", from, to, a.why, "limit", a.facts(0, next))
}

// deny ends a trial that did not help.
func (c *Culprit) deny(p *Pod, a *accused, why string) {
	spared := unsuspectTime << a.denied
	c.free(p, a, "acquit", fmt.Sprintf("%s; it is not suspected for %s", why, spared), min(a.denied+1, mostDoubled))
	a.spared, a.good = spared, 0
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

func (c *Culprit) decide(p *Pod, action, from, to, why, moves string, facts []Fact) {
	c.decisions = append(c.decisions, Decision{Controller: "culprit", Object: p.Ref, Action: action, From: from, To: to, Why: why, Moves: moves, Facts: facts})
}

// floor returns the least limit of a pod: its part of batch work's floor.
func (c *Culprit) floor(v *View) workload.MilliCPU {
	pods := workload.MilliCPU(0)
	for i := range v.Pods {
		if v.Pods[i].Class == workload.BE {
			pods++
		}
	}
	return max(c.batch.Floor(v)/max(pods, 1), leastQuota)
}
