package control

import "fmt"

// squeezed is how many CPUs of the last pool the one above it has while windows or the
// switch squeeze batch work: all but the last pool's minimum, or but its part of them.
// The law goes on with the sizes that it would give: so that the last pool has its CPUs
// back at once, and a pool that needs them takes them as ever.
func (p *Pools) squeezed(b *BatchState) int {
	if !b.Squeeze || len(p.state) < 2 {
		return 0
	}
	last := &p.state[len(p.state)-1]
	keep := max(last.minimum, (last.size*b.Percent+99)/100)
	return max(last.size-keep, 0) / p.core * p.core
}

// has is the size of pool i, which is size by the law, while so many CPUs are lent.
func (p *Pools) has(i, size, lent int) int {
	switch i {
	case len(p.state) - 1:
		return size - lent
	case len(p.state) - 2:
		return size + lent
	}
	return size
}

func (p *Pools) whySqueezed(b *BatchState) string {
	above := p.pools[len(p.pools)-2].Name
	switch {
	case !b.Squeeze:
		return "batch work is not squeezed any more: its pool has its CPUs back from pool " + above
	case b.Percent > 0:
		return fmt.Sprintf("%s: its pool keeps %d%% of its CPUs or its minimum, and pool %s has the others", b.Why, b.Percent, above)
	}
	return fmt.Sprintf("%s: its pool keeps its minimum, and pool %s has the others", b.Why, above)
}
