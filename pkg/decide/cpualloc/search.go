package cpualloc

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// search is the working memory of one search, reused by the next.
type search struct {
	*Allocator
	request
	result cpuset.Set

	free, kept []uint8 // threads by core
	inLeaf     []tally // by leaf
	inDomain   []tally // by domain
	touch      []cost  // by domain: of taking its first CPU
	room       []int   // CPUs that may be taken, by vertex

	groups []group
	prefix []coreCost
	tables
}

// tally counts CPUs of a domain.
type tally struct {
	free, kept int
	whole      int // cores that are wholly free
	near       bool
}

func newSearch(a *Allocator) *search {
	return &search{
		Allocator: a,
		free:      make([]uint8, len(a.cores)),
		kept:      make([]uint8, len(a.cores)),
		inLeaf:    make([]tally, len(a.leaves)),
		inDomain:  make([]tally, len(a.domains)),
		touch:     make([]cost, len(a.domains)),
		room:      make([]int, len(a.vertices)),
		tables:    newTables(len(a.vertices)),
	}
}

// run finds the CPUs, in s.result, and their cost. It returns false if there are none.
func (s *search) run() (cost, bool) {
	s.result = cpuset.Set{}
	s.count()
	if s.room[0] < s.n {
		return impossible, false
	}
	s.touches()
	c := s.place()
	return c, c.possible()
}

// place tries the common shapes first: all CPUs in one leaf, then all in one node. If one of
// these is possible and the kept CPUs are there too, it is optimal. Otherwise it searches the
// whole machine.
func (s *search) place() cost {
	if s.NUMA != workload.NUMASpread {
		if s.L3 != workload.L3Spread {
			if l, c := s.oneLeaf(); c.possible() {
				s.pick(&s.leaves[l], s.n)
				return c
			}
		}
		if v, c := s.oneNode(); c.possible() {
			s.assign(v, s.n)
			return c
		}
		if s.NUMA == workload.NUMASingle {
			return impossible
		}
	}
	return s.wholeMachine()
}

// oneLeaf returns the best leaf that can give all CPUs.
func (s *search) oneLeaf() (best int, least cost) {
	least = impossible
	home, homes := 0, 0
	for i := range s.inLeaf {
		if s.inLeaf[i].kept > 0 {
			home = i
			homes++
		}
	}
	if homes > 1 {
		return 0, impossible
	}
	splits := s.leastSplits()
	for i := range s.leaves {
		l := &s.leaves[i]
		if s.room[l.vertex] < s.n || homes == 1 && i != home {
			continue
		}
		var c cost
		for _, d := range l.domains {
			c = c.plus(s.touch[d])
		}
		if !c.plus(splits).less(least) {
			continue
		}
		if in := s.leafCost(l, s.n); in < noCoreCost {
			if c.hi += in.splits(); c.less(least) {
				best, least = i, c
			}
		}
	}
	return best, least
}

// leastSplits returns a lower bound of the split cores if all cores are alike and nothing is
// kept.
func (s *search) leastSplits() cost {
	switch {
	case !s.Held.IsEmpty() || s.threads < 2 || s.shrink:
		return cost{}
	case s.SMT == workload.SMTOnePerCore:
		return cost{hi: uint64(s.n)}
	case s.n%s.threads != 0:
		return cost{hi: 1}
	}
	return cost{}
}

// oneNode returns the best NUMA node that can give all CPUs. It solves nodes exactly, the most
// promising first, and skips those whose bound can't beat the best. The fit within the node
// does not decide between nodes.
func (s *search) oneNode() (best *vertex, least cost) {
	least = impossible
	s.reset()
	s.promising = s.promising[:0]
	homes := 0
	for _, v := range s.nodes {
		if s.nodeTally(v).kept > 0 {
			homes++
		}
	}
	if homes > 1 {
		return nil, impossible
	}
	for _, v := range s.nodes {
		if s.room[v.id] >= s.n && (homes == 0 || s.nodeTally(v).kept > 0) {
			s.promising = append(s.promising, candidate{v, s.bound(v)})
		}
	}
	slices.SortStableFunc(s.promising, func(x, y candidate) int { return x.bound.compare(y.bound) })
	for _, at := range s.promising {
		if !at.bound.less(least.coarse()) {
			break
		}
		c := s.table(at.vertex, s.n)[s.n]
		for id := at.vertex.id; id != 0; {
			id = s.vertices[id].parent
			c = c.plus(s.touching(s.vertices[id], s.n))
		}
		if c.coarse().less(least.coarse()) {
			best, least = at.vertex, c
		}
	}
	return best, least
}

func (s *search) nodeTally(v *vertex) *tally { return &s.inDomain[v.node] }

type candidate struct {
	vertex *vertex
	bound  cost
}

// bound returns a lower bound of the cost of taking all CPUs in the node, without the fit of
// its L3 domains.
func (s *search) bound(v *vertex) cost {
	c := s.leastSplits()
	for at := v; ; at = s.vertices[at.parent] {
		c = c.plus(s.touching(at, s.n))
		if at.id == 0 {
			break
		}
	}
	if v.leaf >= 0 || s.L3 == workload.L3Spread {
		return c.coarse()
	}
	s.sizes = s.sizes[:0]
	for i := range s.leaves {
		if s.inside(s.leaves[i].vertex, v.id) {
			if s.inLeaf[i].kept > 0 {
				return c.coarse()
			}
			s.sizes = append(s.sizes, s.room[s.leaves[i].vertex])
		}
	}
	slices.Sort(s.sizes)
	for left, i := s.n, len(s.sizes)-1; left > 0; i-- {
		left -= s.sizes[i]
		c.hi += 1 << l3Shift
	}
	return c.coarse()
}

// inside reports whether the vertex id is root or below it.
func (s *search) inside(id, root int) bool {
	for id > root {
		id = s.vertices[id].parent
	}
	return id == root
}

// count fills free, kept, the tallies and usable.
func (s *search) count() {
	clear(s.free)
	clear(s.kept)
	clear(s.inLeaf)
	clear(s.inDomain)
	clear(s.room)
	for cpu := range s.request.free.All() {
		s.free[s.coreOf[cpu]]++
	}
	for cpu := range s.Held.All() {
		s.kept[s.coreOf[cpu]]++
	}
	hasNear := !s.Near.IsEmpty()
	for i := range s.leaves {
		l, t := &s.leaves[i], &s.inLeaf[i]
		for c := l.first; c < l.end; c++ {
			threads, kept, free := len(s.cores[c].cpus), int(s.kept[c]), int(s.free[c])
			t.free += free
			t.kept += kept
			if free == threads {
				t.whole++
			}
			s.room[l.vertex] += usable(s.SMT, s.shrink, threads, kept, free)
		}
		near := hasNear && s.nearLeaf(l)
		for _, d := range l.domains {
			s.inDomain[d].near = s.inDomain[d].near || near
			s.inDomain[d].free += t.free
			s.inDomain[d].kept += t.kept
			s.inDomain[d].whole += t.whole
		}
	}
	for id := len(s.vertices) - 1; id > 0; id-- {
		s.room[s.vertices[id].parent] += s.room[id]
	}
}

func (s *search) nearLeaf(l *leaf) bool {
	for c := l.first; c < l.end; c++ {
		if slices.ContainsFunc(s.cores[c].cpus, s.Near.Contains) {
			return true
		}
	}
	return false
}

// grown returns a slice of that length, and reuses the memory of the given one if it suffices.
func grown[T any](slice []T, length int) []T {
	return slices.Grow(slice[:0], length)[:length]
}
