package control

import "fmt"

// squeeze gives CPUs of the last pool to the one above it while windows, the switch or the bounds of
// services squeeze batch work. The last pool keeps its minimum, or the configured percentage. The law continues
// to compute with the sizes before the squeeze, so that the last pool gets its CPUs back at
// once afterwards and pools that need them take them as usual.
func (p *Pools) squeeze(b *BatchState, share *BatchShare) {
	if !b.Squeeze && !share.limits() || len(p.state) < 2 {
		return
	}
	at := len(p.state) - 1
	last := &p.state[at]
	percent := 100
	if share.limits() {
		percent = share.Percent
	}
	if b.Squeeze {
		percent = percent * b.Percent / 100
	}
	keep := max(last.minimum, (last.size*percent+99)/100)
	p.squeezed = max(p.sizeOf(at)-keep, 0) / p.core * p.core
}

func (p *Pools) whySqueezed(b *BatchState, share *BatchShare) string {
	above := p.pools[len(p.pools)-2].Name
	switch {
	case !b.Squeeze && share.limits():
		return fmt.Sprintf("%s: its pool keeps %d%% of its CPUs or its minimum, and pool %s has the others", share.Why, share.Percent, above)
	case !b.Squeeze:
		return "batch work is not squeezed any more: its pool has its CPUs back from pool " + above
	case b.Percent > 0:
		return fmt.Sprintf("%s: its pool keeps %d%% of its CPUs or its minimum, and pool %s has the others", b.Why, b.Percent, above)
	}
	return fmt.Sprintf("%s: its pool keeps its minimum, and pool %s has the others", b.Why, above)
}
