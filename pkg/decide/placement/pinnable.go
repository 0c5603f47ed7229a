package placement

import (
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Pinnable appends for each NUMA node the largest number of CPUs that Place would give to one
// new LSR container on that node alone, without an exclusive group or a policy for
// hyperthreads. CPUs that one node gives may be missing on the others, where the shared pools
// need the rest.
func (l *Ledger) Pinnable(into []int) []int {
	free, most := l.pinnable()
	for i := range l.machine.Nodes {
		into = append(into, min(most, cpuset.IntersectSize(free, l.machine.Nodes[i].CPUs)))
	}
	return into
}

// PinnableTogether is the number of CPUs that Place would give to new LSR containers together, each
// without an exclusive group or a policy for hyperthreads.
func (l *Ledger) PinnableTogether() int {
	free, most := l.pinnable()
	return min(most, free.Size())
}

// pinnable returns the CPUs from which a new pin could be chosen, and how many of all the shared pools
// do not need.
func (l *Ledger) pinnable() (free cpuset.Set, most int) {
	h := Holder{Request: workload.Request{Class: workload.LSR}}
	left, due, _ := l.due(&h)
	return l.freeFor(&h), max(0, left.Size()-due)
}
