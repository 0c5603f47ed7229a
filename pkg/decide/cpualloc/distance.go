package cpualloc

import (
	"cmp"
	"slices"

	"github.com/sluice-dev/sluice/topology"
)

// centre is a node whose distance to the others measures how compact a choice is.
type centre struct {
	node  *vertex // nil stands for the nodes of the kept CPUs, or none
	bound int     // lower bound of the sum of distances
}

// findCentres lists the nodes that a choice of count nodes could lie around,
// the most promising first.
func (s *search) findCentres(count int) {
	s.centres = s.centres[:0]
	if !s.Held.IsEmpty() || s.flat {
		s.centres = append(s.centres, centre{})
		return
	}
	for _, v := range s.nodes {
		if s.room[v.id] == 0 {
			continue
		}
		s.sizes = s.sizes[:0]
		for _, other := range s.nodes {
			if s.room[other.id] > 0 {
				s.sizes = append(s.sizes, s.distance(v, other))
			}
		}
		slices.Sort(s.sizes)
		bound := 0
		for _, d := range s.sizes[:count] {
			bound += d
		}
		s.centres = append(s.centres, centre{v, bound})
	}
	slices.SortStableFunc(s.centres, func(x, y centre) int { return cmp.Compare(x.bound, y.bound) })
}

// centreOn sets the distance part of every node's cost. If node is nil, the kept CPUs are the
// centre: a node's distance is the mean to their nodes.
func (s *search) centreOn(node *vertex) {
	for _, v := range s.nodes {
		var distance int
		if node != nil {
			distance = s.distance(node, v)
		} else {
			sum, nodes := 0, 0
			for _, other := range s.nodes {
				if s.nodeTally(other).kept > 0 {
					sum += s.distance(other, v)
					nodes++
				}
			}
			distance = sum / max(nodes, 1)
		}
		lo := &s.touch[v.node].lo
		*lo = *lo&^(mostDistance<<distanceShift) | uint64(distance)<<distanceShift
	}
}

// distance returns the distance between two nodes, limited so that the sum over all nodes fits
// its bits.
func (s *search) distance(x, y *vertex) int {
	i, j := s.domains[x.node].index, s.domains[y.node].index
	distances := s.machine.Nodes[i].Distances
	if j >= len(distances) {
		return 0
	}
	return min(distances[j], mostDistance/len(s.nodes))
}

// flatDistances reports whether all NUMA nodes are equally far from each other, so that the
// distance does not matter.
func flatDistances(m *topology.Machine) bool {
	first := -1
	for i := range m.Nodes {
		for j, d := range m.Nodes[i].Distances {
			switch {
			case i == j || m.Nodes[i].CPUs.IsEmpty() || m.Nodes[j].CPUs.IsEmpty():
			case first < 0:
				first = d
			case d != first:
				return false
			}
		}
	}
	return true
}
