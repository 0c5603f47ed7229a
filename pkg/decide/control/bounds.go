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
	boundLeast    = 5               // percent: below, the floor of batch work counts
	boundRiseTime = 10 * time.Second
	boundRise     = 5   // percentage points
	boundMargin   = 0.8 // part of a bound above which batch work gets no more
)

// Bounds lowers the CPU budget of all batch work while a service waits for CPUs longer than its
// bound (slo.sluice.dev), and lets it rise while all services keep their bounds. A bound that the
// service can't keep alone costs batch work only what batch work adds to the waiting. A single
// culprit comes first: while one is suspected or tried, the budget does not fall.
type Bounds struct {
	interval time.Duration
	watch    stopwatch
	share    int           // percent of the budget that batch work keeps
	cut      time.Duration // since the last cut
	cutAt    time.Time     // of the last cut
	calm     time.Duration // for which all bounds have been kept with a margin since the last rise
	said     bool          // in preview: the cut that would follow has been reported
	closely  string
	why      string
	advised  perID[[boundsKinds]bool]
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

// Closely returns the UID of the pod whose bound on waiting for CPUs is broken most or nearest to it;
// "" if no pod has one. Its waiting must be measured at each step.
func (b *Bounds) Closely() string { return b.closely }

// Step returns the share of batch work. If acts is false, the share stays 100 %, and Step only says
// what it would do. It does not lower the share while hold is set.
func (b *Bounds) Step(v *View, disturbed []Disturbance, acts, hold bool) (BatchShare, []Decision) {
	passed := b.watch.lap(v.Now, b.interval)
	decisions := b.advise(disturbed)
	b.cut = min(b.cut+passed, boundCutTime)
	if v.Now.Before(b.cutAt) {
		b.cutAt = v.Now // the clock was set back
	}
	worst := b.worst(disturbed)
	switch {
	case worst.broken != nil:
		b.calm = 0
		if !hold && b.cut == boundCutTime && b.share > boundLeast && !b.said {
			b.cut, b.cutAt = 0, v.Now
			b.why = fmt.Sprintf("%s waits %s of its time (%s), and its bound is %s", worst.ref, inPercent(worst.broken.WaitingFraction), worst.broken.Kind, inPercent(worst.broken.BoundFraction))
			decisions = append(decisions, b.to(max(b.share*boundCut/100, boundLeast), "squeeze", b.why, acts, worst.broken))
		}
	case worst.tight || worst.blind:
		b.calm = 0
	default:
		b.said = false
		if b.calm += passed; b.share < 100 && b.calm >= boundRiseTime {
			b.calm = 0
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
func (b *Bounds) to(share int, action, why string, acts bool, broken *Bound) Decision {
	inShare := func(percent int) string { return fmt.Sprintf("%d %% of its budget", percent) }
	d := Decision{Controller: "slo", Object: "node", Action: action, From: inShare(b.share), To: inShare(share), Why: why, Moves: "share"}
	if broken != nil {
		d.Facts = []Fact{{"waiting_ratio", broken.WaitingFraction}, {"bound_ratio", broken.BoundFraction}}
	}
	if acts {
		b.share = share
	} else {
		b.said = true
	}
	return d
}

// boundsState is what all bounds on waiting for CPUs say together.
type boundsState struct {
	broken *Bound // the one that is broken most by others; nil if all are kept
	ref    string // its pod
	tight  bool   // some bound is nearly broken
	blind  bool   // some waiting is not known any more
}

// worst looks at the bounds on waiting for CPUs. A pod that its own limit throttles waits for
// itself.
func (b *Bounds) worst(disturbed []Disturbance) (s boundsState) {
	b.closely = ""
	most, nearest := 1.0, -1.0
	for i := range disturbed {
		d := &disturbed[i]
		if d.throttled() {
			continue
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
			if ratio > nearest {
				nearest, b.closely = ratio, d.UID
			}
			if ratio > most && b.breaks(bound, &d.Latest[bound.part]) {
				most, s.broken, s.ref = ratio, bound, d.Ref
			}
			s.tight = s.tight || bound.WaitingFraction > bound.ample
		}
	}
	return s
}

// breaks reports whether the latest measurement is over the bound, too, and shows what the last cut
// has brought.
func (b *Bounds) breaks(bound *Bound, latest *Reading) bool {
	return latest.value > bound.tolerated && !latest.from.Before(b.cutAt)
}

// advise reports bounds that pods break without batch work, and bounds that can't be kept because
// nothing is measured.
func (b *Bounds) advise(disturbed []Disturbance) (decisions []Decision) {
	b.advised.begin()
	for i := range disturbed {
		d := &disturbed[i]
		if len(d.Bounds) == 0 {
			continue
		}
		said := b.advised.at(d.UID)
		for k := range d.Bounds {
			bound := &d.Bounds[k]
			advice := ""
			switch {
			case bound.Alone && !said[bound.part]:
				advice = bound.Advice()
			case bound.forgotten && !said[bound.part]:
				advice = fmt.Sprintf("nothing keeps its bound of %s (%s), because its waiting has not been measured for %s; the run delay of more than 512 threads is never measured: set a bound on cpuPressure instead",
					inPercent(bound.BoundFraction), bound.Kind, lostTime)
			}
			if said[bound.part] = bound.Alone || bound.forgotten; advice != "" {
				decisions = append(decisions, Decision{
					Controller: "slo", Object: d.Ref, Action: "advise", Why: advice,
					Facts: []Fact{{"waiting_ratio", bound.WaitingFraction}, {"bound_ratio", bound.BoundFraction}},
				})
			}
		}
	}
	b.advised.end()
	return decisions
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
