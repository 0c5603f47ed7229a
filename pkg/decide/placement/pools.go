package placement

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/cpualloc"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// layout divides the shared CPUs among the pools. A pool that keeps its size keeps its CPUs.
// Pools with a size are served first, exact sets before counts and higher priorities before
// lower; pools without a size share the rest. In overlap mode the batch pool has its size, or
// all, of the shared CPUs in addition to the online pools. Sizes of the control loop take
// precedence over configured ones.
func (l *Ledger) layout() {
	if l.entering {
		return
	}
	l.version++
	divided := false
	defer func() {
		l.separate()
		if divided {
			l.lendSpare()
		}
		l.rehome()
		l.followPools()
	}()
	l.shared = cpuset.Difference(l.allocatable(), l.Pinned())
	l.lent = l.lendable(l.lent)
	shared, previous := l.shared, l.pools
	l.pools = make([]cpuset.Set, len(l.config.Pools))
	if divided = l.follows() && l.divide(previous); divided {
		return
	}
	l.spares = nil
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
		// Every pool that is not served yet keeps a core.
		room := rest.Size() - core*(l.unserved(partition)-1)
		l.pools[i] = l.near(before, rest, max(min(want, room), min(core, rest.Size())))
		rest = cpuset.Difference(rest, l.pools[i])
	}
	// The last pool gets what nobody else asked for. In overlap mode a single pool is the batch pool alone.
	if partition > 0 && l.unserved(partition) == 0 {
		l.pools[partition-1] = cpuset.Union(l.pools[partition-1], rest)
	}
	for i := range partition {
		if l.pools[i].IsEmpty() {
			l.pools[i] = rest
			if rest.IsEmpty() { // the node is too small to divide
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

// overlapping returns the CPUs of the batch pool in overlap mode.
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
		shared = rest // batch work avoids the online pools that have a size
	}
	return l.near(before, shared, want)
}

// near returns n CPUs of free, and among them as many of before as possible.
func (l *Ledger) near(before, free cpuset.Set, n int) cpuset.Set {
	kept := cpuset.Intersect(before, free)
	var chosen cpuset.Set
	var err error
	if kept.Size() >= n {
		chosen, err = l.alloc.Shrink(kept, n, cpualloc.Preference{})
	} else {
		chosen, err = l.alloc.Take(free, n, cpualloc.Preference{Held: kept})
	}
	if err != nil { // fewer than n CPUs are free
		return free
	}
	return chosen
}

// keepPool lets the pool of a container that was found stay on the CPUs of the container.
// Nothing else records which CPUs a pool with a size had.
func (l *Ledger) keepPool(r workload.Request, cpus cpuset.Set) {
	if r.Class == workload.System || cpus.IsEmpty() {
		return
	}
	i := l.pool(&r)
	apart := l.config.Follow && l.config.Mode == Exclusive
	if !cpus.SubsetOf(l.shared) {
		return
	}
	last := len(l.pools) - 1
	if apart && i < last {
		l.found = cpuset.Union(l.found, cpus)
		if l.entering {
			cpus = l.foundPools[i].add(cpus)
		}
	}
	sized := !apart || l.sizes == nil || l.sizes[i] == cpus.Size()
	unchanged := cpus == l.pools[i] && sized
	if apart && i == last {
		l.foundBatch = cpuset.Union(l.foundBatch, cpus)
		cpus = cpuset.Difference(cpus, l.found) // these were lent to batch work
	}
	if unchanged {
		return
	}
	switch {
	case cpus.IsEmpty():
		return
	case apart || l.config.Follow && i == last:
		l.sizes = slices.Clone(l.sizes)
		if l.sizes == nil {
			l.sizes = make([]int, len(l.pools))
			for j := range l.sizes {
				if apart { // a pool without containers may have had few CPUs
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

// count returns a size as a number of CPUs in whole cores; 0 for a pool without a size.
func (l *Ledger) count(size Size) int {
	core := l.machine.ThreadsPerCore()
	n := size.Count
	if size.Percent > 0 {
		all := l.allocatable()
		n = (all.Size()*size.Percent + 99) / 100
	}
	return (n + core - 1) / core * core
}
