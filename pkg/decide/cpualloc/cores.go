package cpualloc

import "github.com/sluice-dev/sluice/pkg/workload"

// A leaf's cores are alike in groups, so taking x CPUs of a leaf is first a
// matter of how many come from each group. What that costs has a closed form
// for one group, and the best division among groups is a small knapsack.

// group is the cores of one leaf with the same number of online threads, kept threads and free
// threads.
type group struct {
	threads, kept, free int
	cores               int
	usable              int // number of CPUs that may be taken of each core
}

// coreCost is what a choice within a leaf costs: split cores in the upper
// bits, wholly free cores touched in the lower 16.
type coreCost uint32

const (
	splitCore   coreCost = 1 << 16
	noCoreCost  coreCost = 1 << 30 // not possible; the sum of two does not overflow
	wholeCore   coreCost = 1
	splitOffset          = 16
)

func (c coreCost) splits() uint64 { return uint64(c >> splitOffset) }

// usable returns how many CPUs of one core may be taken. If a container shrinks, free is what
// it holds, and one thread per core is what it may hold.
func usable(smt workload.SMTPolicy, shrink bool, threads, kept, free int) int {
	switch smt {
	case workload.SMTFullCore:
		if kept+free < threads {
			return 0
		}
		return free
	case workload.SMTOnePerCore:
		if kept == 0 && (free == threads || shrink && free > 0) {
			return 1
		}
		return 0
	default:
		return free
	}
}

// cost returns the cost of taking x CPUs of the group, at most usable × cores. Untouched cores
// that are split by kept CPUs count, so that completing them lowers the cost.
func (g *group) cost(smt workload.SMTPolicy, x int) coreCost {
	switch {
	case g.kept == g.threads:
		return 0
	case g.kept > 0 && (g.usable == 0 || g.kept+g.free < g.threads):
		return splitCore * coreCost(g.cores)
	case g.kept > 0:
		if smt == workload.SMTFullCore && x%g.free != 0 {
			return noCoreCost
		}
		return splitCore * coreCost(g.cores-x/g.free)
	case x == 0:
		return 0
	}
	touched := (x + g.usable - 1) / g.usable
	var c coreCost
	if g.free == g.threads {
		c = wholeCore * coreCost(touched)
	}
	switch {
	case smt == workload.SMTFullCore && x%g.threads != 0:
		return noCoreCost
	case g.usable < g.threads:
		c += splitCore * coreCost(touched)
	case x%g.threads != 0:
		c += splitCore
	}
	return c
}

// gatherGroups sorts the leaf's cores into s.groups.
func (s *search) gatherGroups(l *leaf) {
	s.groups = s.groups[:0]
next:
	for c := l.first; c < l.end; c++ {
		threads, kept, free := len(s.cores[c].cpus), int(s.kept[c]), int(s.free[c])
		if kept == 0 && free == 0 {
			continue
		}
		for i := range s.groups {
			if g := &s.groups[i]; g.threads == threads && g.kept == kept && g.free == free {
				g.cores++
				continue next
			}
		}
		s.groups = append(s.groups, group{threads, kept, free, 1, usable(s.SMT, s.shrink, threads, kept, free)})
	}
}

// prefixes fills s.prefix: for each group the cheapest way to take 0 to n CPUs
// from it and the groups before it, n+1 numbers each. There is at least one
// group.
func (s *search) prefixes(n int) {
	width := n + 1
	s.prefix = grown(s.prefix, len(s.groups)*width)
	for x := range width {
		s.prefix[x] = noCoreCost
		if g := &s.groups[0]; x <= g.usable*g.cores {
			s.prefix[x] = g.cost(s.SMT, x)
		}
	}
	for i := 1; i < len(s.groups); i++ {
		g := &s.groups[i]
		before, now := s.prefix[(i-1)*width:i*width], s.prefix[i*width:(i+1)*width]
		for j := range now {
			now[j] = noCoreCost
		}
		for x := range min(g.usable*g.cores, n) + 1 {
			c := g.cost(s.SMT, x)
			if c >= noCoreCost {
				continue
			}
			for j, b := range before[:width-x] {
				now[j+x] = min(now[j+x], b+c)
			}
		}
	}
}

// leafCost returns the cost of taking exactly n CPUs of the leaf.
func (s *search) leafCost(l *leaf, n int) coreCost {
	s.gatherGroups(l)
	if len(s.groups) == 1 {
		if g := &s.groups[0]; n <= g.usable*g.cores {
			return g.cost(s.SMT, n)
		}
		return noCoreCost
	}
	s.prefixes(n)
	return s.prefix[len(s.groups)*(n+1)-1]
}

// pick adds n CPUs of the leaf to the result. It uses the division with the lowest cost, and
// the lowest CPUs of each group.
func (s *search) pick(l *leaf, n int) {
	s.gatherGroups(l)
	s.prefixes(n)
	width, left := n+1, n
	for i := len(s.groups) - 1; i >= 0; i-- {
		g := &s.groups[i]
		x := left
		if i > 0 {
			before := s.prefix[(i-1)*width : i*width]
			for x = 0; before[left-x]+g.cost(s.SMT, x) != s.prefix[i*width+left]; x++ {
			}
		}
		s.pickGroup(l, g, x)
		left -= x
	}
}

func (s *search) pickGroup(l *leaf, g *group, x int) {
	for c := l.first; c < l.end && x > 0; c++ {
		cpus := s.cores[c].cpus
		if len(cpus) != g.threads || int(s.kept[c]) != g.kept || int(s.free[c]) != g.free {
			continue
		}
		take := min(x, g.usable)
		x -= take
		for _, cpu := range cpus {
			if take > 0 && s.request.free.Contains(cpu) {
				s.result.Add(cpu)
				take--
			}
		}
	}
}
