package placement

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Resize gives the container what its new request asks for. A pin keeps the CPUs
// it has as far as the new count allows, and gets none of those in held: it runs
// already, so that nobody waits until they are clear. On an error the old grant
// stands.
func (l *Ledger) Resize(id string, r workload.Request, held cpuset.Set) (Assignment, error) {
	old, ok := l.holders[id]
	if !ok {
		return Assignment{}, &RefusalError{Why: "container " + id + " is not known"}
	}
	h := *old
	h.Request = withDefaults(r)
	if r.Class.Pinned() && (h.CPUs.IsEmpty() || r.CPUs != h.CPUs.Size()) {
		if err := l.repin(&h, held); err != nil {
			return Assignment{}, err
		}
	}
	var err error
	if h.Mems, err = l.resizedMemory(&h, old); err != nil {
		return Assignment{}, err
	}
	l.enter(&h)
	return l.assignment(&h), nil
}

// repin grows or shrinks the holder's pin to its request.
func (l *Ledger) repin(h *Holder, held cpuset.Set) error {
	if h.Request.CPUs >= h.CPUs.Size() {
		return l.pin(h, cpuset.Difference(l.freeFor(h), held), h.CPUs, cpuset.Set{})
	}
	kept, err := l.alloc.Shrink(h.CPUs, h.Request.CPUs, l.preference(h.Request))
	if err != nil {
		return &RefusalError{Why: fmt.Sprintf("shrinking from %d to %d CPUs: %v", h.CPUs.Size(), h.Request.CPUs, err)}
	}
	h.CPUs, h.Blocked, h.Short = kept, cpuset.Intersect(h.Blocked, l.machine.Siblings(kept)), ""
	return nil
}

// resizedMemory keeps the memory nodes while they still serve: moving pages
// costs more than distance.
func (l *Ledger) resizedMemory(h, old *Holder) (cpuset.Set, error) {
	if h.CPUs == old.CPUs && h.Request.Memory <= old.Request.Memory {
		return old.Mems, nil
	}
	nodes, err := l.memoryNodes(h)
	if err != nil {
		return nodes, err
	}
	return l.kept(old, nodes), nil
}

// Adopt enters a container that was there before this ledger. A pin that the
// kernel shows on CPUs it could have been given keeps them, also where they are
// fewer than it asks for; adopted is false for a pin that must be placed with
// Place. A pool keeps the CPUs that its containers are on.
func (l *Ledger) Adopt(who Identity, r workload.Request, cpus, mems cpuset.Set, now time.Time) (adopted bool) {
	h := newHolder(who, r, now)
	if r.Class.Pinned() {
		if !l.adoptable(h, cpus) {
			return false
		}
		h.CPUs = cpus
		if h.Request.SMT == workload.SMTOnePerCore {
			h.Blocked = cpuset.Difference(l.machine.Siblings(cpus), cpus)
		}
		if cpus.Size() < r.CPUs {
			h.Short = fmt.Sprintf("was found with %d of %d CPUs", cpus.Size(), r.CPUs)
		}
		h.Mems = cpuset.Intersect(mems, l.machine.MemoryNodes())
	} else {
		l.keepPool(r, cpus)
	}
	if h.Mems.IsEmpty() {
		var err error
		if h.Mems, err = l.memoryNodes(h); err != nil {
			h.Short = err.Error()
		}
	}
	l.enter(h)
	return true
}

// KeepMemory notes the memory nodes that a running container was found with; the
// empty set is all. None of them is taken from it.
func (l *Ledger) KeepMemory(id string, mems cpuset.Set) {
	if h, ok := l.holders[id]; ok {
		h.Mems = l.kept(&Holder{State: Held, Mems: mems}, h.Mems)
	}
}

func (l *Ledger) adoptable(h *Holder, cpus cpuset.Set) bool {
	if cpus.IsEmpty() || cpus.Size() > h.Request.CPUs || !cpus.SubsetOf(l.freeFor(h)) {
		return false
	}
	if h.Request.SMT == workload.SMTFullCore && l.machine.Siblings(cpus) != cpus {
		return false
	}
	return l.leavesDue(h, cpus) == nil
}

// SetMachine moves the ledger to a machine with other CPUs or nodes. Pins keep
// the CPUs that are left, or run with the pools where none is; Mend gets them
// others. The youngest pins give way where nothing would be left to the pools.
func (l *Ledger) SetMachine(machine *topology.Machine) {
	l.use(machine)
	l.last = entry{}
	holders := l.Holders()
	for _, h := range holders {
		h.CPUs = cpuset.Intersect(h.CPUs, l.allocatable())
		h.Blocked = cpuset.Intersect(h.Blocked, machine.Online)
		h.Mems = cpuset.Intersect(h.Mems, machine.MemoryNodes())
	}
	for _, h := range slices.Backward(holders) {
		if left := cpuset.Difference(l.allocatable(), l.Pinned()); left.Size() >= machine.ThreadsPerCore() {
			break
		}
		h.CPUs, h.Blocked = cpuset.Set{}, cpuset.Set{}
	}
	l.layout()
	for _, h := range holders {
		if h.Request.Class.Pinned() && h.CPUs.Size() < h.Request.CPUs {
			h.Short = fmt.Sprintf("has %d of %d CPUs since some went offline", h.CPUs.Size(), h.Request.CPUs)
		}
		if h.Mems.IsEmpty() {
			h.Mems, _ = l.memoryNodes(h) // listed nodes that went: anywhere
		}
	}
}

// Mend tries to make a pin whole that has fewer CPUs than it asked for, with none
// of those in held. Where what it has can't be part of a whole pin, as one thread
// of a core can't for LSE, it moves; Left must then be called.
func (l *Ledger) Mend(id string, held cpuset.Set) (mended bool) {
	old, ok := l.holders[id]
	if !ok || !old.Request.Class.Pinned() || old.CPUs.Size() >= old.Request.CPUs {
		return false
	}
	h := *old
	err := l.repin(&h, held)
	if err != nil && !old.CPUs.IsEmpty() {
		err = l.pin(&h, cpuset.Difference(l.freeFor(&h), held), cpuset.Set{}, cpuset.Set{})
		h.Leaving = cpuset.Difference(old.CPUs, h.CPUs)
	}
	if err != nil {
		old.Short = fmt.Sprintf("has %d of %d CPUs: %v", old.CPUs.Size(), old.Request.CPUs, err)
		return false
	}
	h.Mems, _ = l.memoryNodes(&h)
	h.Mems = l.kept(old, h.Mems)
	l.enter(&h)
	return true
}

// Left ends a pin's move: the CPUs that it was on are free.
func (l *Ledger) Left(id string) {
	if h, ok := l.holders[id]; ok && !h.Leaving.IsEmpty() {
		h.Leaving = cpuset.Set{}
		l.layout()
	}
}

// Lacking lists the pins that have fewer CPUs than they asked for, the oldest first.
func (l *Ledger) Lacking() []string {
	var lacking []*Holder
	for _, h := range l.holders {
		if h.Request.Class.Pinned() && h.CPUs.Size() < h.Request.CPUs {
			lacking = append(lacking, h)
		}
	}
	return ids(byAge(lacking))
}
