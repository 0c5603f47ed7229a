package control

// lend gives the CPUs that an empty last pool does not need to the pools above it, in
// proportion to their sizes. The law computes sizes without them: a pool that grows grows into
// the CPUs that it borrows, and the last pool has its CPUs at once when it gets containers
// again. So hardly any CPU moves while it is empty. If redivide is set, the CPUs have been
// divided again and all loans are computed again.
func (p *Pools) lend(v *View, redivide bool) {
	last := len(p.state) - 1
	room := 0
	if v.Pools[last].Empty {
		room = max(0, p.state[last].size-p.state[last].minimum)
	}
	sum := 0 // of the sizes of those that borrow
	for i := range last {
		s := &p.state[i]
		if s.lent = max(0, min(s.lent+s.before, s.cap)-s.size); redivide {
			s.lent = 0
		}
		room -= s.lent
		if !v.Pools[i].Empty {
			sum += s.size
		}
	}
	for i := last - 1; i >= 0 && room < 0; i-- {
		back := min(p.state[i].lent, roundUp(-room, p.core))
		p.state[i].lent -= back
		room += back
	}
	for i := range last {
		s := &p.state[i]
		if more := min(room*s.size/max(sum, 1), s.cap-p.sizeOf(i)); !v.Pools[i].Empty && more >= p.core {
			s.lent += more / p.core * p.core
		}
	}
}

// sizeOf returns a pool's size, including what the last pool lends it or loses by a squeeze.
func (p *Pools) sizeOf(i int) int {
	last := len(p.state) - 1
	size := p.state[i].size + p.state[i].lent
	switch i {
	case last - 1:
		size += p.squeezed
	case last:
		size -= p.squeezed
		for j := range last {
			size -= p.state[j].lent
		}
	}
	return size
}

// whyLent returns why a pool's size changed although the law left it unchanged.
func (p *Pools) whyLent(v *View, i int) string {
	last := len(p.state) - 1
	switch name := p.pools[last].Name; {
	case !v.Pools[last].Empty:
		return "pool " + name + " is empty no more: it has its CPUs back"
	case i < last && p.sizeOf(i) < p.state[i].had:
		return "another pool needs what it had of pool " + name + "'s CPUs"
	default:
		return "pool " + name + " is empty: the others have its CPUs until it isn't"
	}
}
