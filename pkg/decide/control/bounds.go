package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// The constants say how batch work gives way to bounds. The share falls by a factor while a bound is
// broken and rises by steps while all are kept, as in TCP; Heracles (Lo et al., ISCA 2015) grows batch
// work as carefully, and only while it knows the service's signal.
const (
	boundCutTime  = 2 * time.Second // between two cuts
	boundCut      = 70              // percent of its share that batch work keeps in a cut
	boundDeepCut  = 30              // percent that it keeps at least in a cut for an objective
	boundLeast    = 5               // percent: below, the floor of batch work counts
	boundRiseTime = 10 * time.Second
	boundRise     = 5   // percentage points
	boundMargin   = 0.8 // part of a bound above which batch work gets no more
)

// Bounds lowers the CPU budget of all batch work while a service waits for CPUs longer than its
// bound or answers later than its objective (slo.sluice.dev), and lets it rise while all services keep theirs. A bound that the
// service can't keep alone costs batch work only what batch work adds to the waiting. A single
// culprit comes first: while one is suspected or tried, the budget does not fall.
type Bounds struct {
	interval time.Duration
	watch    stopwatch
	share    int           // percent of the budget that batch work keeps
	cut      time.Duration // since the last cut
	cutAt    time.Time     // of the last cut
	roseAt   time.Time     // when the share rose last
	calm     time.Duration // for which all bounds have been kept with a margin since the last rise
	said     bool          // in preview: the cut that would follow has been reported
	closely  string
	why      string
	advised  perID[[boundsKinds + 1]bool] // the last is for the objective
}

// BatchShare is the part of its CPU budget that the bounds of services leave batch work.
type BatchShare struct {
	Percent int    // 100 if no bound limits it; the zero value is the same
	Why     string // "" if no bound limits it
}

// limits reports whether batch work has less than its budget.
func (s *BatchShare) limits() bool { return s.Percent > 0 && s.Percent < 100 }

// of returns what is left of an amount.
func (s *BatchShare) of(amount workload.MilliCPU) workload.MilliCPU {
	if s.limits() {
		return perCent(amount, s.Percent)
	}
	return amount
}

// NewBounds returns the controller. Step must be called once per interval.
func NewBounds(interval time.Duration) *Bounds {
	return &Bounds{interval: interval, share: 100, cut: boundCutTime}
}

// Closely returns the UID of the pod whose bound on waiting for CPUs or objective is broken most or nearest
// to it; "" if no pod has one. Its waiting must be measured at each step.
func (b *Bounds) Closely() string { return b.closely }

// Step returns the share of batch work. If acts is false, the share stays 100 %, and Step only says
// what it would do. It does not lower the share while hold is set.
func (b *Bounds) Step(v *View, disturbed []Disturbance, acts, hold bool) (BatchShare, []Decision) {
	passed := b.watch.lap(v.Now, b.interval)
	decisions := b.advise(disturbed)
	if acts {
		b.said = false
	} else {
		b.share = 100
	}
	b.cut = min(b.cut+passed, boundCutTime)
	if v.Now.Before(b.cutAt) {
		b.cutAt = v.Now // the clock was set back
	}
	if v.Now.Before(b.roseAt) {
		b.roseAt = v.Now
	}
	all := b.judge(disturbed)
	switch worst := &all.worst; {
	case worst.ratio > 1:
		b.calm = 0
		if !hold && b.cut == boundCutTime && b.share > boundLeast && !b.said {
			b.cut, b.cutAt, b.why = 0, v.Now, worst.why()
			decisions = append(decisions, b.to(max(b.share*worst.keeps()/100, boundLeast), "squeeze", b.why, acts, worst.facts()))
		}
	case all.tight || all.blind:
		b.calm = 0
	default:
		b.calm += passed
		b.said = b.said && b.calm < boundRiseTime
		if b.share < 100 && b.calm >= boundRiseTime && !all.stale {
			b.calm, b.roseAt = 0, v.Now
			b.why = "all services keep their bounds with a margin, and batch work gets its budget back step by step"
			decisions = append(decisions, b.to(min(b.share+boundRise, 100), "grow", b.why, acts, nil))
		}
	}
	if b.share == 100 {
		return BatchShare{Percent: 100}, decisions
	}
	return BatchShare{Percent: b.share, Why: b.why}, decisions
}

// to changes the share, if the controller acts.
func (b *Bounds) to(share int, action, why string, acts bool, facts []Fact) Decision {
	inShare := func(percent int) string { return fmt.Sprintf("%d %% of its budget", percent) }
	d := Decision{Controller: "slo", Object: "node", Action: action, From: inShare(b.share), To: inShare(share), Why: why, Moves: "share", Facts: facts}
	if acts {
		b.share = share
	} else {
		b.said = true
	}
	return d
}

// boundsState is what all bounds on waiting for CPUs and all objectives say together.
type boundsState struct {
	worst overrun // the one that is broken most by others; its ratio is 1 if all are kept
	tight bool    // some bound is nearly broken
	blind bool    // some waiting is not known any more
	stale bool    // some measurement does not show yet what the last growth has brought

	nearest float64 // the largest ratio of what is measured to what is tolerated
}

// overrun is a bound or an objective that others break.
type overrun struct {
	ratio     float64 // of what is measured to what is tolerated, above 1
	ref       string  // the pod
	bound     *Bound  // nil if it is an objective
	objective *Objective
}

func (o *overrun) why() string {
	if o.bound != nil {
		return fmt.Sprintf("%s waits %s of its time (%s), and its bound is %s", o.ref, inPercent(o.bound.WaitingFraction), o.bound.Kind, inPercent(o.bound.BoundFraction))
	}
	return fmt.Sprintf("%s answers %s, and its objective is %s", o.ref, o.objective.Now(), o.objective.Most())
}

func (o *overrun) facts() []Fact {
	if o.bound != nil {
		return []Fact{{"waiting_ratio", o.bound.WaitingFraction}, {"bound_ratio", o.bound.BoundFraction}}
	}
	return o.objective.facts()
}

// keeps returns the percentage of its share that batch work keeps in a cut. An objective takes seconds to
// show what a cut has brought, so that one that is broken by far costs batch work more at once.
func (o *overrun) keeps() int {
	if o.bound != nil {
		return boundCut
	}
	return max(int(boundCut/o.ratio), boundDeepCut)
}

// judge looks at the bounds on waiting for CPUs and at the objectives. A pod that its own limit throttles
// waits for itself, and a culprit waits for its lower limit.
func (b *Bounds) judge(disturbed []Disturbance) (s boundsState) {
	b.closely = ""
	s.worst.ratio = 1
	s.nearest = -1
	for i := range disturbed {
		d := &disturbed[i]
		if d.throttled() {
			continue
		}
		if d.Objective != nil {
			b.judgeObjective(d, &s)
		}
		for k := range d.Bounds {
			bound := &d.Bounds[k]
			if _, kind := strainName(bound.part); kind != ofCPU {
				continue
			}
			if !bound.Measured { // a kernel without PSI never measures some
				s.blind = s.blind || bound.lost
				continue
			}
			ratio := bound.WaitingFraction / bound.tolerated
			b.near(&s, ratio, d)
			if ratio > s.worst.ratio && b.breaks(bound, &d.Latest[bound.part]) {
				s.worst = overrun{ratio: ratio, ref: d.Ref, bound: bound}
			}
			s.tight = s.tight || bound.WaitingFraction > bound.ample
		}
	}
	return s
}

// near lets a pod be measured closely that is nearest to breaking what it asks for.
func (b *Bounds) near(s *boundsState, ratio float64, d *Disturbance) {
	if ratio > s.nearest {
		s.nearest, b.closely = ratio, d.UID
	}
}

func (b *Bounds) judgeObjective(d *Disturbance, s *boundsState) {
	o := d.Objective
	if !o.Measured || o.limited {
		s.blind = s.blind || o.lost || o.limited
		return
	}
	ratio := o.Seconds / o.tolerated
	b.near(s, ratio, d)
	if ratio > s.worst.ratio && o.broken() && o.since(b.cutAt) {
		s.worst = overrun{ratio: ratio, ref: d.Ref, objective: o}
	}
	s.tight = s.tight || o.Seconds > o.ample
	s.stale = s.stale || o.from.Before(b.roseAt)
}

// breaks reports whether the latest measurement is over the bound, too, and shows what the last cut
// has brought.
func (b *Bounds) breaks(bound *Bound, latest *Reading) bool {
	return latest.value > bound.tolerated && !latest.from.Before(b.cutAt)
}

// advise reports bounds and objectives that pods break without batch work, and those that can't be kept
// because nothing is measured.
func (b *Bounds) advise(disturbed []Disturbance) (decisions []Decision) {
	b.advised.begin()
	for i := range disturbed {
		d := &disturbed[i]
		if len(d.Bounds) == 0 && d.Objective == nil {
			continue
		}
		said := b.advised.at(d.UID)
		say := func(said *bool, advice string, facts []Fact) {
			if advice != "" && !*said {
				decisions = append(decisions, Decision{Controller: "slo", Object: d.Ref, Action: "advise", Why: advice, Facts: facts})
			}
			*said = advice != ""
		}
		for k := range d.Bounds {
			bound := &d.Bounds[k]
			say(&said[bound.part], bound.advice(), []Fact{{"waiting_ratio", bound.WaitingFraction}, {"bound_ratio", bound.BoundFraction}})
		}
		if o := d.Objective; o != nil && (o.Measured || !o.lost || o.unread) { // a page that fails at times repeats nothing
			say(&said[boundsKinds], o.Advice(), o.facts())
		}
	}
	b.advised.end()
	return decisions
}

// advice says what to do about a bound that can't be kept; "" if it can.
func (b *Bound) advice() string {
	switch {
	case b.Alone:
		return b.Advice()
	case b.forgotten:
		return fmt.Sprintf("nothing keeps its bound of %s (%s), because its waiting has not been measured for %s; the run delay of more than 512 threads is never measured: set a bound on cpuPressure instead",
			inPercent(b.BoundFraction), b.Kind, lostTime)
	}
	return ""
}

// Advice says what to do about a bound that the pod can't keep alone.
func (b *Bound) Advice() string {
	remedy := map[BoundKind]string{
		BoundRunDelay: "more CPU for it (a pin, or a larger request), fewer threads", BoundCPU: "more CPU for it (a larger limit or request, or a pin)",
		BoundMemory: "a larger memory limit", BoundIO: "a faster disk, or fewer other users of it",
	}[b.Kind]
	return fmt.Sprintf("it has waited longer than its bound of %s (%s) for ten minutes without batch work, now %s of its time: it needs %s, or a bound that it can keep",
		inPercent(b.BoundFraction), b.Kind, inPercent(b.WaitingFraction), remedy)
}
