package control

import (
	"cmp"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// The constants say how a suspect is found, tried and held.
const (
	suspectTime    = 2 * time.Second  // an LS pod must have waited for so long before a pod is suspected
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

// Culprit finds the pod that makes a service wait, and lowers its CPU limit rather than that of all
// batch work. It suspects the BE pod that uses most of what the service waits for, or else the LS
// pod that permits it (allow.sluice.dev: demote). It lowers the pod's limit step by step, for an LS
// pod down to its request, and observes whether the service waits less. If so, the pod keeps the
// limit for a while and then gets its CPU back step by step. If not, it gets all back at once,
// and is not suspected for some time. One pod is tried at a time, since the effects of
// two could not be distinguished.
type Culprit struct {
	batch    BatchConfig
	interval time.Duration
	watch    stopwatch
	clock    time.Duration       // sum of the time between steps
	pods     perID[accused]      // by UID
	growth   perID[growth]       // by ID of containers
	usage    perID[usageHistory] // by UID of BE pods
	inVain   perID[inVain]       // by UID of LS pods
	suspicion
	suspected time.Duration  // for which there has been a suspicion, of one pod or another
	unclear   perID[unclear] // by UID of LS pods that break their objectives
	seeking   bool           // it may show in a moment what a pod that breaks its objective waits for
	trying    bool           // one pod is being tried
	nearly    bool           // a trial may begin in a moment
	closely   string         // UID of the LS pod of which Closely speaks
	cycles    bool           // its cycles per instruction tell whether it suffers

	uses        []podUse
	limits      []PodLimit
	unavoidable []Unavoidable
	decisions   []Decision
}

// PodLimit is a CPU limit that a controller wants for a pod as a whole.
type PodLimit struct {
	Pod int // index in View.Pods
	CPU workload.MilliCPU
	Why string
}

// accused is what is known of a pod that was suspected.
type accused struct {
	phase culpritPhase
	trouble
	limit, from workload.MilliCPU // its limit now, and its usage before the first cut
	good        workload.MilliCPU // the highest limit with which the service does not wait; 0 if none is known
	cutAt       time.Time         // when its limit last changed
	passed      time.Duration     // since the last cut, the last step back, or the begin of the phase
	waited      time.Duration     // for which the service has been waiting in a row while the pod is held or eased
	despite     despite           // for which the service suffers nearly as much as before although the pod has the limit
	unseen      time.Duration     // for which it has not been known how the service does
	seen        readings          // measured since the last cut
	spared      time.Duration     // for which it is not suspected
	denied      int               // times in a row that it was not the cause, at most mostDoubled
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
	part        int     // signal of Disturbance.Latest
	calm        float64 // its baseline when it was suspected, which others than batch work may raise
	before      float64 // excess over the baseline before the first cut
	free        float64 // the same when it was suspected, while the pod had no limit
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

// verdict returns the objective if it tells what the last cut has brought; nil otherwise.
func (a *accused) verdict(d *Disturbance) *Objective {
	if o := a.objective(d); o != nil && o.since(a.cutAt) && (o.broken() || o.kept()) {
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

// add adds a measurement above a baseline, once.
func (m *readings) add(r *Reading, calm float64) {
	if !r.at.Equal(m.last) {
		m.last, m.sum, m.n = r.at, m.sum+max(0, r.value-calm), m.n+1
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

// Cycles reports whether the cycles per instruction of the pod of Closely must be counted all the time.
func (c *Culprit) Cycles() bool { return c.cycles }

// Trying reports whether a suspect is being tried or will be in a moment, so that nothing else must
// change meanwhile.
func (c *Culprit) Trying() bool { return c.trying || c.nearly }

// Unavoidable returns how much victims waited, as the last step has found out. The list is valid until
// the next step.
func (c *Culprit) Unavoidable() []Unavoidable { return c.unavoidable }

// Taken returns the additional CPU that limited services would use without their limits, and adds it
// to that of their pools. It counts those that still use up their limit.
func (c *Culprit) Taken(v *View) (sum workload.MilliCPU) {
	for _, l := range c.limits {
		p := &v.Pods[l.Pod]
		a := c.pods.find(p.UID)
		if use, measured := c.useOf(v, p); a != nil && measured && p.Class != workload.BE && use >= perCent(l.CPU, atQuota) {
			more := max(0, a.from-l.CPU)
			if sum += more; poolOf(v, p) >= 0 {
				v.Pools[poolOf(v, p)].Demoted += more
			}
		}
	}
	return sum
}

// Step returns the limits of the pods that make services wait. If acts is false, nothing is
// limited and nothing can be concluded, and Step only says whom it would limit. The function can
// reports whether the pod at an index of View.Pods may be limited now. A limit that can't be for a
// moment is paused. The list is valid until the next step.
func (c *Culprit) Step(v *View, disturbed []Disturbance, acts bool, can func(pod int) bool) ([]PodLimit, []Decision) {
	passed := c.watch.lap(v.Now, c.interval)
	c.clock += passed
	c.limits, c.unavoidable, c.decisions, c.closely, c.cycles = c.limits[:0], c.unavoidable[:0], nil, "", false
	c.grow(v)
	c.remember(v, disturbed)
	c.wait(v, passed)
	if !acts {
		c.forgetLimits(v)
	}
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
	if trying || c.trying {
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
				c.closely, c.cycles = a.victim, a.part == slowCycles
			}
		}
	}
	return c.limits, c.decisions
}

// forgetLimits forgets the pods that have a limit, which nobody writes any more.
func (c *Culprit) forgetLimits(v *View) {
	for i := range v.Pods {
		if a := c.pods.find(v.Pods[i].UID); a != nil && a.phase != culpritFree {
			c.pods.drop(v.Pods[i].UID)
		}
	}
}

func (c *Culprit) decide(p *Pod, action, from, to, why, moves string, facts []Fact) {
	c.decisions = append(c.decisions, Decision{Controller: "culprit", Object: p.Ref, Action: action, From: from, To: to, Why: why, Moves: moves, Facts: facts})
}
