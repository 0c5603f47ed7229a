package placement

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/cpualloc"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// SetSizes sets the pools' sizes in CPUs in place of the configured ones. In exclusive mode it
// sets those of all pools, and the last, the batch pool, gets what the others leave. In overlap
// mode it sets that of the batch pool alone. A size that is 0 or missing stands for the
// configured one, and no sizes at all restore every configured size. If pins take so much that the sizes
// don't fit, pools of lower priority get less, the batch pool first, and each has at least a
// core; they get their sizes back with the CPUs.
//
// Only the CPUs that the sizes require change their pool.
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
	version, before, apart := l.version, l.pools, l.separations
	l.layout()
	if slices.Equal(before, l.pools) && slices.Equal(apart, l.separations) {
		l.version = version
	}
}

func anySize(sizes []int) bool {
	return slices.ContainsFunc(sizes, func(n int) bool { return n > 0 })
}

// hasSizes reports whether these are the sizes set last.
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

// Sizes returns the sizes set last, or those found if the control loop sets sizes. It is nil if
// the configured ones are in force.
func (l *Ledger) Sizes() []int { return slices.Clone(l.sizes) }

// follows reports whether the control loop's sizes partition the shared CPUs.
func (l *Ledger) follows() bool { return l.sizes != nil && l.config.Mode == Exclusive }

// divide partitions the shared CPUs by the control loop's sizes. It returns false if not every
// pool can have a core. Pools that shrink are served first, so that those that grow take only
// free CPUs.
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
			l.pools[i] = l.near(cpuset.Difference(l.pools[i], l.spareOf(i)), l.pools[i], sizes[i])
		}
		free = cpuset.Difference(free, l.pools[i])
	}
	for i, n := range sizes {
		if have := l.pools[i]; have.Size() < n {
			grown, err := l.alloc.Take(free, n, cpualloc.Preference{Held: have})
			if err != nil { // n is the number of free CPUs
				grown = cpuset.Union(have, free)
			}
			l.pools[i] = grown
			free = cpuset.Difference(free, grown)
		}
	}
	return true
}

// fitted returns sizes for all pools that add up to the shared CPUs, with higher priorities
// served first. It is nil if not every pool can have a core.
func (l *Ledger) fitted() []int {
	core, left := l.machine.ThreadsPerCore(), l.shared.Size()
	last := len(l.pools) - 1
	if left < core*len(l.pools) {
		return nil
	}
	sizes := slices.Clone(l.sizes)
	rests, requested := 0, 0
	for i, p := range l.config.Pools {
		if sizes[i] == 0 {
			sizes[i] = max(l.count(p.Size), p.Size.Set.Size())
		}
		if requested += sizes[i]; sizes[i] == 0 {
			rests++
		}
	}
	rest := max(left-requested, 0) / max(rests, 1) / core * core
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
