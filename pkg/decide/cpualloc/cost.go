package cpualloc

import "github.com/sluice-dev/sluice/pkg/workload"

// cost is the objective of one choice, packed so that comparing two costs
// compares the points of the objective in order, and adding them adds each
// point. The points in lo only decide ties: one that outgrows its bits, on
// machines larger than any known, decides some ties wrongly.
//
//	hi: 24 bits NUMA nodes | 24 bits L3 domains | 13 bits split cores
//	lo: 6 nodes not near | 8 L3 domains not near | 6 packages | 12 distance |
//	    7 dies | 12 free CPUs of the nodes | 13 fit of the L3 domains
//
// A domain that is spread over counts the square of the CPUs taken there
// instead of 1: the sum of squares is least where the spread is most even. Then
// the first 14 bits of lo count CPUs that aren't near.
type cost struct{ hi, lo uint64 }

const (
	nodeShift = 37
	l3Shift   = 13

	nodeNearShift = 58
	l3NearShift   = 50
	packageShift  = 44
	distanceShift = 32
	dieShift      = 25
	nodeFitShift  = 13

	mostDistance = 1<<12 - 1
)

// impossible is higher than the cost of any choice. The sum of two does not overflow.
var impossible = cost{hi: 1 << 62}

func (c cost) possible() bool { return c.hi < 1<<62 }

func (c cost) plus(d cost) cost { return cost{c.hi + d.hi, c.lo + d.lo} }

func (c cost) less(d cost) bool { return c.hi < d.hi || c.hi == d.hi && c.lo < d.lo }

func (c cost) compare(d cost) int {
	switch {
	case c.less(d):
		return -1
	case d.less(c):
		return 1
	}
	return 0
}

// coarse returns the cost without the fit of the L3 domains.
func (c cost) coarse() cost { return cost{c.hi, c.lo >> nodeFitShift << nodeFitShift} }

// touches computes the cost of the first CPU of each domain. A domain that a kept CPU touches
// already costs nothing, unless the search spreads.
func (s *search) touches() {
	mostNode, mostL3 := 0, 0
	if s.shrink {
		for d := range s.domains {
			switch t := &s.inDomain[d]; s.domains[d].kind {
			case nodeKind:
				mostNode = max(mostNode, t.free)
			case l3Kind:
				mostL3 = max(mostL3, l3Fit(t))
			}
		}
	}
	near := !s.Near.IsEmpty()
	for d := range s.domains {
		t := &s.inDomain[d]
		c := cost{}
		switch kind := s.domains[d].kind; {
		case t.kept > 0:
		case kind == packageKind:
			c.lo = 1 << packageShift
		case kind == dieKind:
			c.lo = 1 << dieShift
		case kind == nodeKind:
			c.hi = 1 << nodeShift
			c.lo = uint64(fit(t.free, mostNode)) << nodeFitShift
			if near && !t.near {
				c.lo += 1 << nodeNearShift
			}
		case kind == l3Kind:
			c.hi = 1 << l3Shift
			c.lo = uint64(fit(l3Fit(t), mostL3))
			if near && !t.near {
				c.lo += 1 << l3NearShift
			}
		}
		s.touch[d] = c
	}
}

// l3Fit orders L3 domains by their free CPUs, then those without a wholly free
// core first.
func l3Fit(t *tally) int { return 2*t.free + min(t.whole, 1) }

// fit is lower for the domain with fewer free CPUs or, given the most that a domain has, for
// the one with more.
func fit(free, most int) int {
	if most > 0 {
		return most - free
	}
	return free
}

// touching returns the cost of the vertex's own domains if x CPUs, at least 1, are taken in it.
func (s *search) touching(v *vertex, x int) cost {
	var sum cost
	for _, d := range v.domains {
		c, t := s.touch[d], &s.inDomain[d]
		switch kind := s.domains[d].kind; {
		case kind == nodeKind && s.NUMA == workload.NUMASpread:
			c.hi = uint64(x*(x+2*t.kept)) << nodeShift
			c.lo = c.lo & (1<<packageShift - 1)
			if !t.near && !s.Near.IsEmpty() {
				c.lo += uint64(x) << l3NearShift
			}
		case kind == l3Kind && s.L3 == workload.L3Spread:
			c.hi = uint64(x*(x+2*t.kept)) << l3Shift
		}
		sum = sum.plus(c)
	}
	return sum
}
