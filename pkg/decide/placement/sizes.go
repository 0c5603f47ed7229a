package placement

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/cpualloc"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// SetSizes gives the pools other sizes in CPUs than the config's own: in exclusive
// mode all pools, of which the last, the batch pool, has what the others leave; in
// overlap mode the batch pool alone. 0, or a size that is left out, is the config's
// own; no sizes at all end it. Where pins take so much that the sizes don't fit, the
// pools of lower priority have less, the batch pool first, and all have a core; they
// get their sizes back with the CPUs.
//
// No CPU changes hands that the sizes don't ask for.
func (l *Ledger) SetSizes(sizes []int) {
	if l.hasSizes(sizes) {
		return
	}
	var want []int
	if anySize(sizes) {
		want = make([]int, len(l.config.Pools))
		copy(want, sizes)
	}
	l.sizes, l.last = want, entry{}
	version, before := l.version, l.pools
	l.layout()
	if slices.Equal(before, l.pools) {
		l.version = version
	}
}

func anySize(sizes []int) bool {
	return slices.ContainsFunc(sizes, func(n int) bool { return n > 0 })
}

// hasSizes reports whether these are the sizes last set.
func (l *Ledger) hasSizes(sizes []int) bool {
	if !anySize(sizes) {
		return l.sizes == nil
	}
	for i, n := range l.sizes {
		want := 0
		if i < len(sizes) {
			want = sizes[i]
		}
		if n != want {
			return false
		}
	}
	return l.sizes != nil
}

// Sizes are those last set, or found where the config lets pools follow; nil: the
// config's own.
func (l *Ledger) Sizes() []int { return slices.Clone(l.sizes) }

// follows reports whether the loop's sizes, not the config's, partition the shared CPUs.
func (l *Ledger) follows() bool { return l.sizes != nil && l.config.Mode == Exclusive }

// divide partitions the shared CPUs by the loop's sizes; false where not every pool
// can have a core. Pools that shrink give first, so that those that grow take from
// what is free alone.
func (l *Ledger) divide(previous []cpuset.Set) bool {
	sizes := l.fitted()
	if sizes == nil {
		return false
	}
	free := l.shared
	for i := range l.pools {
		if previous != nil {
			l.pools[i] = cpuset.Intersect(previous[i], free)
		}
		if l.pools[i].Size() > sizes[i] {
			l.pools[i] = l.near(l.pools[i], l.pools[i], sizes[i])
		}
		free = cpuset.Difference(free, l.pools[i])
	}
	for i, n := range sizes {
		if have := l.pools[i]; have.Size() < n {
			grown, err := l.alloc.Take(free, n, cpualloc.Preference{Keep: have})
			if err != nil { // n is what is left for it
				grown = cpuset.Union(have, free)
			}
			l.pools[i] = grown
			free = cpuset.Difference(free, grown)
		}
	}
	return true
}

// fitted are sizes for all pools that make up the shared CPUs, the higher priority
// served first; nil where not every pool can have a core.
func (l *Ledger) fitted() []int {
	core, left := l.machine.ThreadsPerCore(), l.shared.Size()
	last := len(l.pools) - 1
	if left < core*len(l.pools) {
		return nil
	}
	sizes := slices.Clone(l.sizes)
	rests, asked := 0, 0
	for i, p := range l.config.Pools {
		if sizes[i] == 0 {
			sizes[i] = max(l.count(p.Size), p.Size.Set.Size())
		}
		if asked += sizes[i]; sizes[i] == 0 {
			rests++
		}
	}
	rest := max(left-asked, 0) / max(rests, 1) / core * core
	for i := range last {
		if sizes[i] == 0 {
			sizes[i] = rest
		}
		sizes[i] = max(core, min(sizes[i], left-core*(last-i)))
		left -= sizes[i]
	}
	sizes[last] = left
	return sizes
}
