package sim

import (
	"math"
	"math/bits"
	"slices"
)

// entity is a cgroup as the CPU scheduler sees it: a container, or a group of entities.
type entity struct {
	parent int     // index of the parent, which comes earlier in the list; -1 for the root
	weight float64 // relative to its siblings
	here   float64 // the part of its weight that counts in the present part
	limit  float64 // quota in CPUs; +Inf for none
	leaf   bool
	part   int     // of a container: index of its part
	cells  uint64  // of a container: mask of the cells of its part on which it may run
	want   float64 // CPUs that it would use alone, which divide reduces to the limit; of a group the sum
	got    float64
	idle   bool      // of a container: in the idle class
	placed []float64 // of a container: CPUs that it uses in each of its cells

	// could is the number of CPUs that a container would get if it wanted all.
	could float64

	// The following fields refer to the present part.
	sum, give    float64 // what a group's containers want; what it has
	rate, active float64 // of the present round; active is the weight of the children that still want more
	wants        bool
}

// cell is a set of CPUs on which the same containers may run.
type cell struct {
	cpus  float64
	used  float64
	batch float64 // used by the idle class in the step before
}

func (c *cell) idle() float64 { return max(0, c.cpus-c.used) }

// quiet returns the unused CPUs that the idle class does not have either.
func (c *cell) quiet() float64 { return max(0, c.cpus-c.used-c.batch) }

// sharer divides CPU time as the fair scheduler does: by weight from the root down, each container
// within its demand, its quotas and its CPUs. What one leaves goes to the others (max-min fairness
// by progressive filling). CPU time is a fluid: a container with enough threads can use any
// fraction of its CPUs.
//
// A group's quota limits what its containers want before CPUs are divided. What one of them then
// can't get for lack of CPUs is not given to its siblings.
type sharer struct {
	entities []entity
	parts    []part

	wants, weights []float64 // sums over the children before each one, for split
}

// part is a set of at most 64 cells with the containers that run there and nowhere else, so that
// parts don't compete.
type part struct {
	cells  []cell
	leaves []int
	groups []int // groups above the containers, parents first

	branches []branch // the groups with their children
	unions   []union
}

// union is a set of cells to which containers together are bound. By Hall's theorem the
// containers' amounts fit if and only if, for each union of their sets, those that run nowhere
// else fit in it.
type union struct {
	cells uint64
	cpus  float64
}

// arrange completes the parts, whose cells are already set. Call it when sets, weights or
// containers change.
func (s *sharer) arrange() {
	for at := range s.parts {
		s.arrangePart(at)
	}
	s.spreadWeights()
}

// maxUnions bounds the work for sets that overlap in many ways. Beyond it, some unions are ignored
// and their CPUs may be given out twice; pools never come near.
const maxUnions = 4096

func (s *sharer) arrangePart(at int) {
	p := &s.parts[at]
	p.leaves, p.groups, p.unions = p.leaves[:0], p.groups[:0], p.unions[:0]
	above := map[int]bool{}
	var masks []uint64
	for i := range s.entities {
		e := &s.entities[i]
		if !e.leaf || e.part != at {
			continue
		}
		p.leaves = append(p.leaves, i)
		for up := e.parent; up >= 0; up = s.entities[up].parent {
			above[up] = true
		}
		if !slices.Contains(masks, e.cells) {
			masks = append(masks, e.cells)
		}
	}
	p.branches = p.branches[:0]
	for i := range s.entities {
		e := &s.entities[i]
		if above[i] {
			p.groups = append(p.groups, i)
			p.branches = append(p.branches, branch{entity: i})
		}
		if e.parent >= 0 && (above[i] || e.leaf && e.part == at) {
			b := slices.IndexFunc(p.branches, func(b branch) bool { return b.entity == e.parent })
			p.branches[b].kids = append(p.branches[b].kids, i)
		}
	}
	for _, m := range masks {
		for _, u := range slices.Clone(p.unions) {
			p.unite(u.cells | m)
		}
		p.unite(m)
	}
}

func (p *part) unite(cells uint64) {
	known := slices.ContainsFunc(p.unions, func(u union) bool { return u.cells == cells })
	if known || len(p.unions) == maxUnions {
		return
	}
	u := union{cells: cells}
	for ; cells != 0; cells &= cells - 1 {
		u.cpus += p.cells[bits.TrailingZeros64(cells)].cpus
	}
	p.unions = append(p.unions, u)
}

// divide computes got and could of each container from want.
func (s *sharer) divide() {
	s.bound()
	for i := range s.parts {
		p := &s.parts[i]
		for c := range p.cells {
			p.cells[c].used = 0
		}
		for _, b := range p.branches {
			s.entities[b.entity].here = b.weight
		}
		switch {
		case s.fits(p):
		case len(p.unions) == 1:
			s.fillFromRoot(p)
		default:
			s.fill(p)
		}
		s.place(p)
	}
}

// bound limits demand by the quotas, from the containers up.
func (s *sharer) bound() {
	for i := range s.entities {
		e := &s.entities[i]
		if !e.leaf {
			e.want = 0
		}
		e.got, e.could, e.wants = 0, 0, false
	}
	for i := len(s.entities) - 1; i >= 0; i-- {
		e := &s.entities[i]
		if e.want > e.limit {
			e.want = e.limit
			if !e.leaf {
				s.tighten(i, e.limit)
			}
		}
		if e.parent >= 0 {
			s.entities[e.parent].want += e.want
		}
	}
}

// tighten divides a limit by weight among the children of a group that want more together.
func (s *sharer) tighten(group int, limit float64) {
	var children []int
	weights := 0.0
	for i := group + 1; i < len(s.entities); i++ {
		if e := &s.entities[i]; e.parent == group && e.want > 0 {
			children = append(children, i)
			weights += e.weight
		}
	}
	slices.SortStableFunc(children, func(a, b int) int {
		x, y := &s.entities[a], &s.entities[b]
		switch d := x.want/x.weight - y.want/y.weight; {
		case d < 0:
			return -1
		case d > 0:
			return 1
		}
		return 0
	})
	for _, i := range children { // those with the lowest demand by weight come first
		e := &s.entities[i]
		if share := limit * e.weight / weights; e.want > share {
			e.want = share
			if !e.leaf {
				s.tighten(i, share)
			}
		}
		limit -= e.want
		weights -= e.weight
	}
}

// epsilon is the number of CPUs below which an amount counts as none.
const epsilon = 1e-9

// fits gives all containers what they want if the CPUs suffice, and reports whether they do.
func (s *sharer) fits(p *part) bool {
	for i := range p.unions {
		u := &p.unions[i]
		sum := 0.0
		for _, l := range p.leaves {
			if e := &s.entities[l]; e.cells&^u.cells == 0 {
				sum += e.want
			}
		}
		if sum > u.cpus {
			return false
		}
	}
	for _, l := range p.leaves {
		e := &s.entities[l]
		e.got, e.could = e.want, e.want
	}
	return true
}

// fill raises all containers that want more, each at its own rate, until each has what it wants or
// its CPUs are used up.
func (s *sharer) fill(p *part) {
	for _, l := range p.leaves {
		s.entities[l].wants = s.entities[l].want > epsilon
	}
	for range 2 * len(p.leaves) {
		if !s.rates(p) {
			return
		}
		step := s.step(p)
		for _, l := range p.leaves {
			e := &s.entities[l]
			e.could += step * e.rate
			if e.wants {
				e.got += step * e.rate
				e.wants = e.want-e.got > epsilon
			}
		}
		s.exhaust(p)
	}
}

// rates computes what each container gets of each unit of CPU that is given out. For one that
// wants no more, it computes what it would get if it did. It reports whether any container wants
// more.
func (s *sharer) rates(p *part) bool {
	for _, g := range p.groups {
		s.entities[g].active, s.entities[g].wants = 0, false
	}
	some := false
	for _, l := range p.leaves {
		if e := &s.entities[l]; e.wants {
			some = true
			if e.parent >= 0 {
				s.activate(e.parent, e.here)
			}
		}
	}
	if !some {
		return false
	}
	for _, g := range p.groups {
		s.rate(g)
	}
	for _, l := range p.leaves {
		s.rate(l)
	}
	return true
}

// activate adds the weight of a child that wants more.
func (s *sharer) activate(group int, weight float64) {
	g := &s.entities[group]
	g.active += weight
	if !g.wants {
		g.wants = true
		if g.parent >= 0 {
			s.activate(g.parent, g.here)
		}
	}
}

func (s *sharer) rate(i int) {
	e := &s.entities[i]
	if e.parent < 0 {
		e.rate = 1
		return
	}
	up := &s.entities[e.parent]
	all := up.active
	if !e.wants {
		all += e.here
	}
	e.rate = up.rate * e.here / all
}

// step returns how far all containers can rise until the first one stops.
func (s *sharer) step(p *part) float64 {
	step := math.Inf(1)
	for _, l := range p.leaves {
		if e := &s.entities[l]; e.wants {
			step = min(step, (e.want-e.got)/e.rate)
		}
	}
	for i := range p.unions {
		room, rate := s.room(p, &p.unions[i])
		if rate > 0 {
			step = min(step, max(0, room)/rate)
		}
	}
	return step
}

// room returns the unused CPUs of a union, and how fast the containers that are bound to it rise.
func (s *sharer) room(p *part, u *union) (room, rate float64) {
	room = u.cpus
	for _, l := range p.leaves {
		e := &s.entities[l]
		if e.cells&^u.cells != 0 {
			continue
		}
		room -= e.got
		if e.wants {
			rate += e.rate
		}
	}
	return room, rate
}

// exhaust stops the containers whose CPUs are used up.
func (s *sharer) exhaust(p *part) {
	for i := range p.unions {
		u := &p.unions[i]
		room, rate := s.room(p, u)
		if rate == 0 || room > epsilon {
			continue
		}
		for _, l := range p.leaves {
			if e := &s.entities[l]; e.cells&^u.cells == 0 {
				e.wants = false
			}
		}
	}
}

// place divides what each container got among its cells: first those that can run in few. A waking
// task looks for a core that is idle as a whole (select_idle_core), and takes a CPU from the idle
// class only if it finds none, so that containers go where the idle class is not, as long as there
// is room.
func (s *sharer) place(p *part) {
	most := 1
	for _, l := range p.leaves {
		most = max(most, bits.OnesCount64(s.entities[l].cells))
	}
	for _, idle := range []bool{false, true} {
		for n := 1; n <= most; n++ {
			for _, l := range p.leaves {
				if e := &s.entities[l]; e.idle == idle && bits.OnesCount64(e.cells) == n {
					p.spread(e)
				}
			}
		}
	}
	for i := range p.cells {
		p.cells[i].batch = 0
	}
	for _, l := range p.leaves {
		if e := &s.entities[l]; e.idle {
			e.eachCell(func(k, cell int) { p.cells[cell].batch += e.placed[k] })
		}
	}
}

// eachCell calls do with each cell of the container, and how many came before.
func (e *entity) eachCell(do func(k, cell int)) {
	for k, m := 0, e.cells; m != 0; k, m = k+1, m&(m-1) {
		do(k, bits.TrailingZeros64(m))
	}
}

// spread places a container.
func (p *part) spread(e *entity) {
	e.placed = append(e.placed[:0], make([]float64, bits.OnesCount64(e.cells))...)
	left := e.got
	for _, room := range []func(*cell) float64{(*cell).quiet, (*cell).idle} {
		sum := 0.0
		e.eachCell(func(_, cell int) { sum += room(&p.cells[cell]) })
		if left <= 0 || sum <= 0 {
			continue
		}
		part := min(1, left/sum)
		e.eachCell(func(k, cell int) {
			at := &p.cells[cell]
			more := room(at) * part
			e.placed[k] += more
			at.used = min(at.cpus, at.used+more)
			left -= more
		})
	}
}

// idle returns the unused CPUs of some cells.
func (p *part) idle(cells uint64) float64 {
	sum := 0.0
	for ; cells != 0; cells &= cells - 1 {
		sum += p.cells[bits.TrailingZeros64(cells)].idle()
	}
	return sum
}
