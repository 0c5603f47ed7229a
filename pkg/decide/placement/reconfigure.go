package placement

import (
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// RevisedRequest is what a container asks for under another configuration.
type RevisedRequest struct {
	Request workload.Request
	Shares  string // why it gets no CPUs of its own although it asks for them; "" if it may
}

// Reconfigured returns the ledger for another configuration, with the same containers and what
// they ask for under it. Pools keep their CPUs by name as far as their sizes allow. A pin that
// can't keep its CPUs is an error: no container moves because of a configuration. A container
// that asks for CPUs of its own only now gets them if there are any, and shares otherwise. The
// ledger itself does not change.
func (l *Ledger) Reconfigured(config Config, revised map[string]RevisedRequest) (*Ledger, error) {
	n := &Ledger{config: config, external: l.external, barred: l.barred, holders: map[string]*Holder{}, version: l.version}
	n.use(l.machine)
	n.inherit(l)
	var err error
	n.DivideOnce(func() { err = n.enterHolders(l.Holders(), revised) })
	return n, err
}

// inherit copies the CPUs of the pools, the pods that are kept apart, and the control loop's sizes and
// spare CPUs if the loop continues to set them.
func (l *Ledger) inherit(from *Ledger) {
	l.pools, l.separations = make([]cpuset.Set, len(l.config.Pools)), from.separations
	goesOn := from.sizes != nil && from.config.Follow && l.config.Follow && from.config.Mode == l.config.Mode
	if goesOn {
		l.sizes = make([]int, len(l.config.Pools))
		l.spareCounts, l.spares = make([]int, len(l.config.Pools)), make([]cpuset.Set, len(l.config.Pools))
	}
	for i, p := range l.config.Pools {
		at := slices.IndexFunc(from.config.Pools, func(old Pool) bool { return old.Name == p.Name })
		if at < 0 {
			continue
		}
		l.pools[i] = from.pools[at]
		if goesOn {
			l.sizes[i] = from.sizes[at]
			l.spares[i] = from.spareOf(at)
			l.spareCounts[i] = l.spares[i].Size()
		}
	}
	if !anySize(l.sizes) {
		l.sizes = nil
	}
}

// enterHolders enters the holders of another ledger: first the pins on their CPUs, then the containers
// that share, and then those that need CPUs of their own.
func (l *Ledger) enterHolders(holders []*Holder, revised map[string]RevisedRequest) error {
	var unplaced, resized []*Holder
	had := map[string]cpuset.Set{} // memory nodes of the unplaced containers
	for _, old := range holders {
		a := revised[old.ID]
		if old.claim {
			a.Request = old.Request
		}
		h := *old
		h.Request = withDefaults(a.Request)
		if !h.Request.Class.Pinned() || old.CPUs.IsEmpty() || a.Shares != "" {
			continue
		}
		if err := l.staysOn(&h, old); err != nil {
			return err
		}
		if h.Request.CPUs != old.CPUs.Size() && !h.claim {
			resized = append(resized, old)
		}
		l.put(&h)
	}
	l.shared = cpuset.Difference(l.allocatable(), l.Pinned())
	for _, old := range holders {
		if _, entered := l.holders[old.ID]; entered {
			continue
		}
		a := revised[old.ID]
		if old.claim { // it has none of its CPUs now
			h := *old
			l.put(&h)
			continue
		}
		h := newHolder(Identity{ID: old.ID, Pod: old.Pod, Container: old.Container, Ref: old.Ref}, a.Request, old.Since)
		h.State = old.State
		if h.Request.Class.Pinned() {
			h.Short = a.Shares
			if a.Shares == "" {
				unplaced, had[h.ID] = append(unplaced, h), old.Mems
				continue
			}
		} else {
			h.Mems = l.keepNodes(old, l.sharedMemory(h, old.Home))
		}
		l.put(h)
	}
	for _, h := range unplaced {
		if err := l.grant(h, cpuset.Set{}); err != nil {
			h.Short = err.Error()
		}
		h.Mems = l.keepNodes(&Holder{State: h.State, Mems: had[h.ID]}, h.Mems)
		l.put(h)
	}
	for _, old := range resized {
		if _, err := l.Resize(old.ID, revised[old.ID].Request, cpuset.Set{}); err != nil {
			h := l.holders[old.ID]
			h.Short = fmt.Sprintf("has %d of %d CPUs: %v", h.CPUs.Size(), h.Request.CPUs, err)
		}
	}
	l.last = entry{}
	return nil
}

// sharedMemory settles a holder without CPUs of its own that was at home on a node, and returns its memory
// nodes.
func (l *Ledger) sharedMemory(h *Holder, home cpuset.Set) cpuset.Set {
	h.noteHome(l.settle(h, home))
	nodes, err := l.memoryNodes(h)
	if err != nil {
		h.Short = err.Error()
	}
	return nodes
}

// staysOn returns why a pin can't keep the CPUs that it had as old. One of whole cores may have lost that to
// siblings that came online; Mend moves it.
func (l *Ledger) staysOn(h, old *Holder) error {
	refuse := func(format string, args ...any) error {
		return &RefusalError{Why: fmt.Sprintf("container %s has CPUs %s of its own and is not moved while it runs: ", h.Ref, h.CPUs) + fmt.Sprintf(format, args...)}
	}
	if taken := cpuset.Difference(h.CPUs, l.allocatable()); !taken.IsEmpty() {
		return refuse("CPUs %s would be reserved or the system's; leave them out, or end the container first", taken)
	}
	if taken := cpuset.Difference(h.CPUs, l.freeFor(h)); !taken.IsEmpty() {
		return refuse("%s would have CPUs %s too, or keep them free; end one of the two first", l.whoHas(taken, h), taken)
	}
	if l.split(h) && old.Request.SMT != workload.SMTFullCore {
		return refuse("class %s has whole cores, and these are none; end the container first", h.Request.Class)
	}
	if err := l.leavesDue(h, h.CPUs); err != nil {
		return refuse("%v", err)
	}
	return nil
}
