package control

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// BoundKind is what a bound limits, as slo.sluice.dev names it.
type BoundKind string

// The kinds of bounds. They are shares of time in which a pod waits.
const (
	BoundCPU      BoundKind = "cpuPressure"    // in which some task waits for a CPU (PSI)
	BoundMemory   BoundKind = "memoryPressure" // in which some task waits for memory (PSI)
	BoundIO       BoundKind = "ioPressure"     // in which some task waits for disks (PSI)
	BoundRunDelay BoundKind = "runDelay"       // in which its threads wait for a CPU, of the time in which they run or could run
)

// Bound is a bound of slo.sluice.dev with what was measured.
type Bound struct {
	Kind            BoundKind `json:"kind"`              // What is bounded.
	BoundFraction   float64   `json:"boundFraction"`     // Largest share of time that the pod can bear to wait, 0 to 1.
	WaitingFraction float64   `json:"waitingFraction"`   // Share of time that it waits, mean over ten seconds, 0 to 1.
	Measured        bool      `json:"measured"`          // Whether the waiting is known now; for the first five minutes in which it is not, batch work does not get more CPU.
	BrokenAt        time.Time `json:"brokenAt,omitzero"` // Time at which the bound was broken; absent while it is kept.
	Alone           bool      `json:"alone"`             // Whether the pod broke the bound for ten minutes while no batch work ran, so that batch work isn't the cause.

	part      int
	lost      bool    // it was measured a short time ago, and is not now
	forgotten bool    // it was measured once, but not for lostTime
	tolerated float64 // share of time up to which batch work may make the pod wait: the bound, or slightly more than its calm baseline
	ample     float64 // share of time below which batch work may get more CPU
}

// The constants of bounds.
const (
	leastBears  = 0.01 // excess over the baseline that a pod bears at least, since measurements vary
	keptAgain   = 0.8  // part of a bound below which a broken one is kept again
	aloneTime   = 10 * time.Minute
	lostTime    = 5 * time.Minute // after which waiting that is not measured any more is forgotten
	boundsKinds = strains - 1     // throttling by the pod's own limit has no bound
)

// bounded is the state of a pod's bound.
type bounded struct {
	mean  float64
	at    time.Time     // of the latest measurement
	since time.Time     // since when the bound is broken
	alone time.Duration // for which it has been broken without batch work
}

// boundOf returns the kind of a bound and its value by the part of Strain; 0 if there is none.
func boundOf(s *workload.SLO, part int) (kind BoundKind, bound float64) {
	return [boundsKinds]BoundKind{BoundCPU, BoundMemory, BoundIO, BoundRunDelay}[part],
		[boundsKinds]float64{s.CPUPressure, s.MemoryPressure, s.IOPressure, s.RunDelay}[part]
}

// bears returns the excess over the baseline from which a pod suffers.
func (s *suffering) bears(slo *workload.SLO, part int) float64 {
	if part < boundsKinds {
		if _, bound := boundOf(slo, part); bound > 0 {
			return max(bound-*s.calm.part(part), leastBears)
		}
	}
	return Suffers
}

// followBound compares a new measurement with the bound that the pod has on that part of Strain.
func (s *suffering) followBound(slo *workload.SLO, part int, light bool) {
	if part < boundsKinds {
		if _, bound := boundOf(slo, part); bound > 0 {
			s.bounds[part].follow(&s.latest[part], bound, light)
		}
	}
}

// follow compares a new measurement with the bound.
func (b *bounded) follow(r *Reading, bound float64, light bool) {
	took := min(max(r.at.Sub(r.from), 0), excessTime) // the clock may have been set back
	if r.from.IsZero() {
		took = excessTime
	}
	b.at = r.at
	b.mean += (r.value - b.mean) * took.Seconds() / excessTime.Seconds()
	switch {
	case b.mean > bound && b.since.IsZero():
		b.since = r.at
	case b.mean < bound*keptAgain:
		b.since = time.Time{}
	}
	switch {
	case b.since.IsZero():
		b.alone = 0
	case light:
		b.alone = min(b.alone+took, aloneTime)
	}
}

// boundsOf returns the pod's bounds with what was measured; nil if it has none.
func (f *Interference) boundsOf(v *View, p *Pod, s *suffering) (all []Bound) {
	for part := range boundsKinds {
		kind, bound := boundOf(&p.SLO, part)
		if bound == 0 {
			continue
		}
		b, calm := &s.bounds[part], *s.calm.part(part)
		measured, lately := knownSlowly(v.Now, s.latest[part].at, f.interval), recent(v.Now, b.at, lostTime)
		if !measured && !lately {
			*b = bounded{at: b.at}
		}
		tolerated := max(bound, calm+leastBears)
		all = append(all, Bound{
			Kind: kind, BoundFraction: bound, WaitingFraction: b.mean, Measured: measured, BrokenAt: b.since, Alone: b.alone >= aloneTime,
			part: part, lost: !measured && lately, forgotten: !measured && !lately && !b.at.IsZero(), tolerated: tolerated, ample: max(boundMargin*bound, calm+boundMargin*(tolerated-calm)),
		})
	}
	return all
}
