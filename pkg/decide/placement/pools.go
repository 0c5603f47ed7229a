package placement

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/cpualloc"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// layout divides the shared CPUs over the pools. A pool that keeps its size
// keeps its CPUs. Sized pools are served first, exact sets before counts and
// the higher priority before the lower; pools without a size have the rest in
// common. In overlap mode the batch pool has its size, or all, of the shared
// CPUs beside the online pools. Sizes of the loop stand before those of the config.
func (l *Ledger) layout() {
	if l.entering {
		return
	}
	l.version++
	defer l.followPools()
	l.shared = cpuset.Difference(l.allocatable(), l.Pinned())
	l.lent = l.lendable(l.lent)
	shared, previous := l.shared, l.pools
	l.pools = make([]cpuset.Set, len(l.config.Pools))
	if l.follows() && l.divide(previous) {
		return
	}
	batch := len(l.pools) - 1
	partition := batch
	if l.config.Mode == Exclusive {
		partition = batch + 1
	}

	rest := shared
	core := l.machine.ThreadsPerCore()
	for i := range partition {
		if exact := l.config.Pools[i].Size.Set; !exact.IsEmpty() {
			l.pools[i] = cpuset.Intersect(exact, rest)
			rest = cpuset.Difference(rest, l.pools[i])
		}
	}
	for i := range partition {
		want := l.count(l.config.Pools[i].Size)
		if want == 0 {
			continue
		}
		var before cpuset.Set
		if previous != nil {
			before = previous[i]
		}
		// Every pool that is still to come keeps a core to run on.
		room := rest.Size() - core*(l.unserved(partition)-1)
		l.pools[i] = l.near(before, rest, max(min(want, room), min(core, rest.Size())))
		rest = cpuset.Difference(rest, l.pools[i])
	}
	// The last pool holds what nobody else asked for.
	if l.unserved(partition) == 0 {
		l.pools[partition-1] = cpuset.Union(l.pools[partition-1], rest)
	}
	for i := range partition {
		if l.pools[i].IsEmpty() {
			l.pools[i] = rest
			if rest.IsEmpty() { // a node too small to divide
				l.pools[i] = shared
			}
		}
	}
	if l.config.Mode == Overlap {
		l.pools[batch] = l.overlapping(previous, shared, batch)
	}
}

// unserved counts the pools of the partition that have no CPUs yet.
func (l *Ledger) unserved(partition int) int {
	n := 0
	for i := range partition {
		if l.pools[i].IsEmpty() {
			n++
		}
	}
	return n
}

// overlapping is the batch pool in overlap mode.
func (l *Ledger) overlapping(previous []cpuset.Set, shared cpuset.Set, batch int) cpuset.Set {
	size := l.config.Pools[batch].Size
	want := l.count(size)
	if l.sizes != nil && l.sizes[batch] > 0 {
		want = l.sizes[batch]
	} else if exact := cpuset.Intersect(size.Set, shared); !exact.IsEmpty() {
		return exact
	}
	if want == 0 || want >= shared.Size() {
		return shared
	}
	var before cpuset.Set
	if previous != nil {
		before = previous[batch]
	}
	if rest := cpuset.Difference(shared, l.sizedPools()); rest.Size() >= want {
		shared = rest // batch stays off the online pools that have a size of their own
	}
	return l.near(before, shared, want)
}

// near returns n CPUs of free, as many of before among them as can be.
func (l *Ledger) near(before, free cpuset.Set, n int) cpuset.Set {
	kept := cpuset.Intersect(before, free)
	var chosen cpuset.Set
	var err error
	if kept.Size() >= n {
		chosen, err = l.alloc.Shrink(kept, n, cpualloc.Preference{})
	} else {
		chosen, err = l.alloc.Take(free, n, cpualloc.Preference{Keep: kept})
	}
	if err != nil { // fewer than n are free
		return free
	}
	return chosen
}

// keepPool lets the pool of a found container stay on the CPUs that the container
// is on: where a pool of a given size lies is nowhere else on record.
func (l *Ledger) keepPool(r workload.Request, cpus cpuset.Set) {
	if r.Class == workload.System || cpus.IsEmpty() {
		return
	}
	i := l.pool(r)
	if cpus == l.pools[i] || !cpus.SubsetOf(l.shared) {
		return
	}
	apart := l.config.Follow && l.config.Mode == Exclusive
	switch {
	case apart || l.config.Follow && i == len(l.pools)-1:
		l.sizes = slices.Clone(l.sizes)
		if l.sizes == nil {
			l.sizes = make([]int, len(l.pools))
			for j := range l.sizes {
				if apart { // a pool that nobody is found in may have had little
					l.sizes[j] = l.machine.ThreadsPerCore()
				}
			}
		}
		l.sizes[i] = cpus.Size()
	case cpus.Size() != l.count(l.config.Pools[i].Size):
		return
	}
	l.pools = slices.Clone(l.pools)
	for j := range l.pools {
		if apart {
			l.pools[j] = cpuset.Difference(l.pools[j], cpus)
		}
	}
	l.pools[i] = cpus
	l.layout()
}

// count is a size in CPUs, whole cores; 0 for a pool without one.
func (l *Ledger) count(size Size) int {
	core := l.machine.ThreadsPerCore()
	n := size.Count
	if size.Percent > 0 {
		all := l.allocatable()
		n = (all.Size()*size.Percent + 99) / 100
	}
	return (n + core - 1) / core * core
}
