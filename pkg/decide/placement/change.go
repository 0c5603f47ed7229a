package placement

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Resize changes the container's grant to its new request. A pin keeps as many of its CPUs as
// the new count allows. It gets none of the CPUs in held: the container is running already, so
// nothing needs to wait until they are free. After an error the old grant remains.
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
	err := l.settle(&h, cpuset.Set{})
	if err != nil {
		return Assignment{}, err
	}
	h.noteHome(nil)
	if h.Mems, err = l.resizedMemory(&h, old); err != nil {
		return Assignment{}, err
	}
	l.enter(&h)
	return l.assignment(&h), nil
}

// repin grows or shrinks the holder's pin to its request.
func (l *Ledger) repin(h *Holder, held cpuset.Set) error {
	if len(h.Request.Claims) > 0 {
		return l.useClaims(h)
	}
	if h.Request.CPUs >= h.CPUs.Size() {
		return l.pin(h, cpuset.Difference(l.freeFor(h), held), h.CPUs, cpuset.Set{})
	}
	kept, err := l.alloc.Shrink(h.CPUs, h.Request.CPUs, l.preference(h.Request))
	if err != nil {
		return &RefusalError{Why: fmt.Sprintf("shrinking from %d to %d CPUs: %v", h.CPUs.Size(), h.Request.CPUs, err)}
	}
	h.CPUs, h.Short = kept, ""
	return nil
}

// resizedMemory keeps the memory nodes as long as they fit the request: moving pages costs more
// than remote memory.
func (l *Ledger) resizedMemory(h, old *Holder) (cpuset.Set, error) {
	if h.CPUs == old.CPUs && h.Home == old.Home && h.Request.Memory <= old.Request.Memory {
		return old.Mems, nil
	}
	nodes, err := l.memoryNodes(h)
	if err != nil {
		return nodes, err
	}
	return l.keepNodes(old, nodes), nil
}

// Adopt enters a container that existed before this ledger. A pin whose CPUs in the kernel are
// ones that it could have been given keeps them, even if they are fewer than it asks for. The
// result is false for a pin that must be placed with Place. A pool keeps the CPUs on which its
// containers are found.
func (l *Ledger) Adopt(who Identity, r workload.Request, cpus, mems cpuset.Set, now time.Time) (adopted bool) {
	h := newHolder(who, r, now)
	if len(h.Request.Claims) > 0 {
		if l.useClaims(h) != nil {
			return false
		}
		h.Mems = cpuset.Intersect(mems, l.machine.MemoryNodes())
	} else if r.Class.Pinned() {
		if !l.adoptable(h, cpus) {
			return false
		}
		h.CPUs = cpus
		if cpus.Size() < r.CPUs {
			h.Short = fmt.Sprintf("was found with %d of %d CPUs", cpus.Size(), r.CPUs)
		}
		h.Mems = cpuset.Intersect(mems, l.machine.MemoryNodes())
	} else {
		l.adoptShared(h, cpus, mems)
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

// adoptShared enters where a container without CPUs of its own was found. One that is at home on a NUMA
// node does not say which CPUs its pool has. One that runs on the whole pool, because its home has few of its
// CPUs, has its memory at home.
func (l *Ledger) adoptShared(h *Holder, cpus, mems cpuset.Set) {
	at := l.machine.NodesOf(cpus)
	if (!l.wantsHome(h) || at.Size() != 1) && !l.isApart(h, cpus) {
		l.keepPool(h.Request, cpus)
	}
	if at.Size() != 1 {
		at = mems
	}
	h.noteHome(l.settle(h, at))
}

// KeepMemory records the memory nodes with which a running container was found; the empty set
// means all nodes. None of them will be taken from the container.
func (l *Ledger) KeepMemory(id string, mems cpuset.Set) {
	if h, ok := l.holders[id]; ok {
		l.setMems(h, l.keepNodes(&Holder{State: Held, Mems: mems}, h.Mems))
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

// SetMachine moves the ledger to a machine with other CPUs or nodes. Pins keep the CPUs that
// remain, and claims get back theirs that return. A pin without any runs with the pools until Mend
// gives it others. The youngest pins lose their CPUs where nothing would remain for the pools.
func (l *Ledger) SetMachine(machine *topology.Machine) {
	holders := l.Holders()
	for _, h := range holders {
		if l.split(h) {
			h.Short = "" // it may be whole on the new machine
		}
	}
	l.use(machine)
	l.last = entry{}
	for _, h := range holders {
		h.CPUs = cpuset.Intersect(h.CPUs, l.allocatable())
		h.Mems = cpuset.Intersect(h.Mems, machine.MemoryNodes())
		l.promise(h, 1) // of the new machine, on which nothing is counted yet
	}
	for _, h := range l.Claims() {
		l.regain(h)
	}
	for _, h := range slices.Backward(holders) {
		if left := cpuset.Difference(l.allocatable(), l.Pinned()); left.Size() >= machine.ThreadsPerCore() {
			break
		}
		h.CPUs = cpuset.Set{}
		if h.claim {
			h.Short = fmt.Sprintf("has none of its %d CPUs, since so many CPUs are offline that the shared pools would have none", h.Request.CPUs)
		}
	}
	l.followClaims()
	l.layout()
	for _, h := range holders {
		switch {
		case !l.lacks(h):
		case h.CPUs.Size() < h.Request.CPUs:
			h.Short = fmt.Sprintf("has %d of %d CPUs since some went offline", h.CPUs.Size(), h.Request.CPUs)
		default:
			h.Short = l.whySplit(h)
		}
		if h.Mems.IsEmpty() {
			nodes, _ := l.memoryNodes(h) // if the listed nodes are gone, any node will do
			l.setMems(h, nodes)
		}
	}
}

// lacks reports whether a pin has fewer CPUs than it asked for, or parts of cores in place of whole ones.
func (l *Ledger) lacks(h *Holder) bool {
	return h.Request.Class.Pinned() && !h.claim && len(h.Request.Claims) == 0 && (h.CPUs.Size() < h.Request.CPUs || l.split(h))
}

// split reports whether a pin of whole cores has parts of cores, because their siblings came online after it
// was placed.
func (l *Ledger) split(h *Holder) bool {
	return h.Request.SMT == workload.SMTFullCore && !h.claim && len(h.Request.Claims) == 0 && l.machine.Siblings(h.CPUs) != h.CPUs
}

func (l *Ledger) whySplit(h *Holder) string {
	return fmt.Sprintf("has CPUs %s without their siblings %s, which came online later", h.CPUs, cpuset.Difference(l.machine.Siblings(h.CPUs), h.CPUs))
}

// Mend tries to complete a pin that has fewer CPUs than it asked for, or to give it whole cores. It uses
// none of the CPUs in held. If the pin's present CPUs can't be part of a complete pin, as one thread of a
// core can't for LSE, the pin moves, and EndMove must be called afterwards.
func (l *Ledger) Mend(id string, held cpuset.Set) (mended bool) {
	old, ok := l.holders[id]
	if !ok || !l.lacks(old) {
		return false
	}
	h := *old
	err := l.repin(&h, held)
	if (err != nil || l.split(&h)) && !old.CPUs.IsEmpty() {
		moved := *old
		if refused := l.move(&moved, held); refused == nil {
			h, err = moved, nil
		} else if h.CPUs == old.CPUs {
			err = refused
		}
	}
	if err != nil {
		has := l.whySplit(old)
		if old.CPUs.Size() < old.Request.CPUs {
			has = fmt.Sprintf("has %d of %d CPUs", old.CPUs.Size(), old.Request.CPUs)
		}
		old.Short = fmt.Sprintf("%s: %v", has, err)
		return false
	}
	h.Mems, _ = l.memoryNodes(&h)
	h.Mems = l.keepNodes(old, h.Mems)
	l.enter(&h)
	return true
}

// move gives a pin other CPUs: of the cores that it is on, if they have enough, and otherwise any free ones.
func (l *Ledger) move(h *Holder, held cpuset.Set) error {
	had, free := h.CPUs, cpuset.Difference(l.freeFor(h), held)
	err := l.pin(h, cpuset.Intersect(free, l.machine.Siblings(had)), cpuset.Set{}, cpuset.Set{})
	if err != nil {
		err = l.pin(h, free, cpuset.Set{}, cpuset.Set{})
	}
	if err == nil {
		h.Leaving = cpuset.Difference(had, h.CPUs)
	}
	return err
}

// EndMove ends a pin's move and frees the CPUs that the pin had before.
func (l *Ledger) EndMove(id string) {
	if h, ok := l.holders[id]; ok && !h.Leaving.IsEmpty() {
		h.Leaving = cpuset.Set{}
		l.layout()
	}
}

// ShortPins lists the pins that have fewer CPUs than they asked for, or parts of cores in place of whole
// ones, the oldest first.
func (l *Ledger) ShortPins() []string {
	var lacking []*Holder
	for _, h := range l.holders {
		if l.lacks(h) {
			lacking = append(lacking, h)
		}
	}
	return ids(byAge(lacking))
}
