package placement

import (
	"slices"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// SetSpare lets batch work also run on so many CPUs of each pool, or fewer if the pool has fewer whole
// cores, while the control loop's sizes partition the shared CPUs. CPUs that were spare stay so as far
// as the numbers allow, and a pool that shrinks gives its spare CPUs away first.
func (l *Ledger) SetSpare(counts []int) {
	if slices.Equal(counts, l.spareCounts) {
		return
	}
	l.spareCounts = slices.Clone(counts)
	if l.spares == nil {
		return
	}
	before := l.lent
	if l.lendSpare(); l.lent != before {
		l.version++
	}
}

// lendSpare chooses the spare CPUs of the pools as they are now, on whole cores alone: batch work needs
// no core-scheduling group there, so that no sibling may be a pin's or a service's. CPUs of pods that are
// kept apart are not spare.
func (l *Ledger) lendSpare() {
	before := l.spares
	l.spares, l.lent = make([]cpuset.Set, len(l.pools)), cpuset.Set{}
	for i := range min(len(l.spareCounts), len(l.pools)-1) {
		cores := l.wholeCores(l.rest(i))
		if n := min(l.spareCounts[i], cores.Size()); n > 0 {
			var held cpuset.Set
			if before != nil {
				held = l.wholeCores(cpuset.Intersect(before[i], cores))
			}
			l.spares[i] = l.wholeCores(l.near(held, cores, n))
			l.lent = cpuset.Union(l.lent, l.spares[i])
		}
	}
}

// keepSpare lets batch work stay on the CPUs of other pools on which it was found, until SetSpare
// says otherwise.
func (l *Ledger) keepSpare() {
	if l.spares == nil || l.foundBatch.IsEmpty() {
		return
	}
	l.spareCounts, l.spares, l.lent = make([]int, len(l.pools)), make([]cpuset.Set, len(l.pools)), cpuset.Set{}
	for i := range len(l.pools) - 1 {
		l.spares[i] = l.wholeCores(cpuset.Intersect(l.pools[i], l.foundBatch))
		l.spareCounts[i] = l.spares[i].Size()
		l.lent = cpuset.Union(l.lent, l.spares[i])
	}
}

// spareOf returns the spare CPUs of a pool.
func (l *Ledger) spareOf(i int) cpuset.Set {
	if i < len(l.spares) {
		return l.spares[i]
	}
	return cpuset.Set{}
}

// lenders says whose CPUs batch work uses besides those of its pool.
func (l *Ledger) lenders() string {
	if l.config.Mode == Exclusive {
		return "spare CPUs of other pools"
	}
	return "CPUs of idle LSR pins"
}
