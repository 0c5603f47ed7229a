package sim

import (
	"sort"
)

// branch is a group with its children in a part.
type branch struct {
	entity int
	weight float64 // of the group in the part
	kids   []int   // sorted by demand divided by weight, the lowest first
}

// spreadWeights divides a group's weight among the parts that its children run in, by the
// children's weights there (calc_group_shares in kernel/sched/fair.c counts those that want to
// run; here all count).
func (s *sharer) spreadWeights() {
	weights := make([][]float64, len(s.parts)) // by part and entity
	for at := range weights {
		weights[at] = make([]float64, len(s.entities))
	}
	for i := len(s.entities) - 1; i >= 0; i-- {
		e, sum := &s.entities[i], 0.0
		if e.leaf {
			weights[e.part][i], e.here = 1, e.weight
		}
		for at := range weights {
			sum += weights[at][i]
		}
		for at := range weights {
			if weights[at][i] *= e.weight / max(sum, epsilon); e.parent >= 0 {
				weights[at][e.parent] += weights[at][i]
			}
		}
	}
	for at := range s.parts {
		for i := range s.parts[at].branches {
			b := &s.parts[at].branches[i]
			b.weight = weights[at][b.entity]
		}
	}
}

// fillFromRoot does the same as fill, for a part in which every container may use every CPU, as in most
// parts. Each group then divides what it has among its children, from the root down.
func (s *sharer) fillFromRoot(p *part) {
	for i := len(p.branches) - 1; i >= 0; i-- {
		b := &p.branches[i]
		sum := 0.0
		for _, kid := range b.kids {
			sum += s.entities[kid].pending()
		}
		s.entities[b.entity].sum = sum
	}
	for i := range p.branches {
		b := &p.branches[i]
		e := &s.entities[b.entity]
		if e.parent < 0 {
			e.give, e.could = p.unions[0].cpus, p.unions[0].cpus
		}
		s.split(b, e.give, e.could)
	}
}

// pending returns what an entity wants in the present part.
func (e *entity) pending() float64 {
	if e.leaf {
		return e.want
	}
	return e.sum
}

// split divides what a group has among its children by weight. Children that want less than their
// share leave the rest to the others.
func (s *sharer) split(b *branch, give, could float64) {
	s.sort(b.kids)
	left, weight := give, 0.0
	s.wants, s.weights = s.wants[:0], s.weights[:0]
	wants := 0.0
	for _, kid := range b.kids {
		e := &s.entities[kid]
		s.wants, s.weights = append(s.wants, wants), append(s.weights, weight)
		wants += e.pending()
		weight += e.here
	}
	s.wants, s.weights = append(s.wants, wants), append(s.weights, weight)
	all := weight
	for at, kid := range b.kids {
		e := &s.entities[kid]
		e.give = min(e.pending(), left*e.here/weight)
		left = max(0, left-e.give)
		weight -= e.here
		e.could = max(e.give, s.level(b.kids, at, could, all)*e.here)
		if e.leaf {
			e.got = e.give
		}
	}
}

// level returns what each unit of weight would get of a group's CPUs if the child at this place
// wanted all of them.
func (s *sharer) level(kids []int, at int, cpus, weight float64) float64 {
	me := &s.entities[kids[at]]
	level := func(satisfied int) float64 {
		w, d := weight-s.weights[satisfied], s.wants[satisfied]
		if at < satisfied {
			w, d = w+me.here, d-me.pending()
		}
		return max(0, cpus-d) / w
	}
	n := sort.Search(len(kids), func(n int) bool {
		next := n
		if n == at {
			next++ // skips the child itself, because the level is the same without it
		}
		if next == len(kids) {
			return true
		}
		e := &s.entities[kids[next]]
		return e.pending() >= level(n)*e.here
	})
	return level(n)
}

// sort is an insertion sort, because the order changes little from step to step.
func (s *sharer) sort(kids []int) {
	for i := 1; i < len(kids); i++ {
		moving := kids[i]
		e := &s.entities[moving]
		key := e.pending() / e.here
		at := i
		for ; at > 0; at-- {
			before := &s.entities[kids[at-1]]
			if before.pending()/before.here <= key {
				break
			}
			kids[at] = kids[at-1]
		}
		kids[at] = moving
	}
}
