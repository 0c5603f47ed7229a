package cpualloc

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// tables is the working memory of the exact search. For each vertex, a table
// says what taking 0, 1, 2, ... CPUs in it costs at least. A leaf's table
// comes from its cores; another vertex's is its children's, one after the
// other: now[j] = min over x of before[j-x] + child[x], in time (CPUs asked) ×
// (CPUs usable), plus what its own domains cost.
type tables struct {
	costs     []cost   // the tables, one after the other
	given     []uint16 // the x that each now[j] was made with
	givenAt   []int    // by child vertex: where its part of given starts
	inner     [][]cost // by vertex: a NUMA node's table without its own cost, once known
	mark      [2]int   // where costs and given go on after those
	least     int      // CPUs that a NUMA node gives at least if it gives any
	promising []candidate
	sizes     []int
	centres   []centre
}

func newTables(vertices int) tables {
	return tables{givenAt: make([]int, vertices), inner: make([][]cost, vertices)}
}

func (t *tables) reset() {
	clear(t.inner)
	t.costs, t.given, t.mark, t.least = t.costs[:0], t.given[:0], [2]int{}, 0
}

// newTable returns a table of that length with every entry impossible.
func (t *tables) newTable(length int) []cost {
	first := len(t.costs)
	t.costs = slices.Grow(t.costs, length)[:first+length]
	table := t.costs[first:]
	for i := range table {
		table[i] = impossible
	}
	return table
}

// table computes the vertex's table for 0 to n CPUs.
func (s *search) table(v *vertex, n int) []cost {
	var now []cost
	if inner := s.inner[v.id]; inner != nil {
		now = s.newTable(len(inner))
		copy(now, inner)
	} else {
		now = s.innerTable(v, n)
	}
	for x := 1; x < len(now); x++ {
		if now[x].possible() {
			now[x] = now[x].plus(s.touching(v, x))
		}
	}
	if s.least > 1 && v.node >= 0 {
		for x := 1; x < min(s.least, len(now)); x++ {
			now[x] = impossible
		}
	}
	return now
}

// innerTable returns the vertex's table without the cost of its own domains.
func (s *search) innerTable(v *vertex, n int) []cost {
	if v.leaf >= 0 {
		return s.leafTable(v, n)
	}
	now := s.table(v.children[0], n)
	for _, child := range v.children[1:] {
		now = s.combine(now, s.table(child, n), child, n)
	}
	return now
}

func (s *search) leafTable(v *vertex, n int) []cost {
	n = min(n, s.room[v.id])
	table := s.newTable(n + 1)
	s.gatherGroups(&s.leaves[v.leaf])
	if len(s.groups) == 0 {
		table[0] = cost{}
		return table
	}
	s.prefixes(n)
	for x, c := range s.prefix[len(s.prefix)-(n+1):] {
		if c < noCoreCost {
			table[x] = cost{hi: c.splits()}
		}
	}
	return table
}

// combine returns the table of everything before the child and the child together.
func (s *search) combine(before, child []cost, at *vertex, n int) []cost {
	length := min(len(before)+len(child)-1, n+1)
	now := s.newTable(length)
	first := len(s.given)
	s.givenAt[at.id] = first
	s.given = slices.Grow(s.given, length)[:first+length]
	given := s.given[first:]
	for x, c := range child {
		if !c.possible() {
			continue
		}
		for j, b := range before[:min(len(before), length-x)] {
			if sum := b.plus(c); sum.less(now[j+x]) {
				now[j+x], given[j+x] = sum, uint16(x)
			}
		}
	}
	return now
}

// assign picks x CPUs in the vertex, as recorded when its table was computed.
func (s *search) assign(v *vertex, x int) {
	if x == 0 {
		return
	}
	if v.leaf >= 0 {
		s.pick(&s.leaves[v.leaf], x)
		return
	}
	for i := len(v.children) - 1; i > 0; i-- {
		child := v.children[i]
		given := int(s.given[s.givenAt[child.id]+x])
		s.assign(child, given)
		x -= given
	}
	s.assign(v.children[0], x)
}

// wholeMachine searches all nodes together, once for each node that could be
// the centre of a closer choice than the best so far.
func (s *search) wholeMachine() cost {
	count, least := 1, 0
	if s.NUMA == workload.NUMASpread {
		s.centres = append(s.centres[:0], centre{})
	} else {
		count, least = s.fewestNodes()
		s.findCentres(count)
	}
	s.reset()
	for _, v := range s.nodes {
		s.inner[v.id] = s.innerTable(v, s.n)
	}
	s.mark = [2]int{len(s.costs), len(s.given)}
	best, around, last := impossible, (*vertex)(nil), (*vertex)(nil)
	for _, at := range s.centres {
		if best.possible() && uint64(at.bound) > best.lo>>distanceShift&mostDistance {
			break
		}
		s.centreOn(at.node)
		c := s.total(least)
		if least > 0 && c.hi>>nodeShift != uint64(count) {
			least = 0 // whole cores may not add up in so few nodes
			c = s.total(least)
		}
		if last = at.node; c.less(best) {
			best, around = c, at.node
		}
	}
	if !best.possible() {
		return impossible
	}
	if around != last {
		s.centreOn(around)
		s.total(least)
	}
	s.assign(s.vertices[0], s.n)
	return best
}

// total returns the cost of the best choice, and keeps its tables for assign.
func (s *search) total(least int) cost {
	s.costs, s.given = s.costs[:s.mark[0]], s.given[:s.mark[1]]
	s.least = least
	return s.table(s.vertices[0], s.n)[s.n]
}

// fewestNodes returns the least number of nodes that a choice needs, and the least number of
// CPUs that each of them gives if so many nodes suffice; 0 if CPUs are kept.
func (s *search) fewestNodes() (count, least int) {
	s.sizes = s.sizes[:0]
	for _, v := range s.nodes {
		s.sizes = append(s.sizes, s.room[v.id])
	}
	slices.Sort(s.sizes)
	left := s.n
	for i := len(s.sizes) - 1; left > 0; i-- {
		least = left
		left -= s.sizes[i]
		count++
	}
	if !s.Held.IsEmpty() {
		least = 0
	}
	return count, least
}
