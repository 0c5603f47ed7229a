package placement

import (
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// A container that shares CPUs and asks for one NUMA node has a home: it runs on its pool's CPUs of that
// node, and on the whole pool while those are fewer than it requests. The home stays the same for as long
// as the pool has CPUs there, because moving its memory costs more than a neighbour who has left.

// wantsHome reports whether the holder asks for a NUMA node and there is a choice.
func (l *Ledger) wantsHome(h *Holder) bool {
	asks := h.Request.NUMA == workload.NUMASingle || h.Request.NUMA == workload.NUMAPrefer
	shares := h.Request.Class == workload.LS || h.Request.Class == workload.BE
	return asks && shares && l.machine.NodesOf(l.machine.Online).Size() > 1
}

// settle gives a holder that wants a home one. It keeps the home that it has, or takes the node in found. Otherwise
// it gets a node on which the pool has as much CPU left as it requests: preferably one to which its memory is bound,
// and then the one with the most CPU left. It is an error if a holder needs a home and no node has room.
func (l *Ledger) settle(h *Holder, found cpuset.Set) error {
	had := h.Home
	if h.Home = (cpuset.Set{}); !l.wantsHome(h) {
		return nil
	}
	pool := l.pools[l.pool(&h.Request)]
	for _, home := range []cpuset.Set{had, found} {
		if home.Size() == 1 && (l.entering || !l.within(pool, home).IsEmpty()) {
			h.Home = home
			return nil
		}
	}
	if l.entering { // what the pools have is not known yet
		return nil
	}
	var best workload.MilliCPU
	var memory int64
	near, bound := h.Mems, false
	if h.Request.MemoryNodes.Policy == workload.MemoryListed {
		near = h.Request.MemoryNodes.Nodes
	}
	needs, _ := h.Request.Grant()
	lefts := l.lefts(h, pool)
	for i, left := range lefts {
		at := cpuset.Of(l.machine.Nodes[i].ID)
		free := l.freeMemory(at, h.ID)
		if left < needs && needs > 0 || l.within(pool, at).IsEmpty() || l.keepsMemory(h) && free < h.Request.Memory {
			continue
		}
		binds := at.SubsetOf(near)
		if h.Home.IsEmpty() || binds && !bound || binds == bound && (left > best || left == best && free > memory) {
			h.Home, best, memory, bound = at, left, free, binds
		}
	}
	if h.Home.IsEmpty() && h.Request.NUMA == workload.NUMASingle {
		return l.homeless(h, max(slices.Max(lefts), 0), needs)
	}
	return nil
}

// rehome looks for a home for the holders that want one and have none, and for those whose pool has no CPU at
// their home any more.
func (l *Ledger) rehome() {
	var lost []*Holder
	for _, h := range l.holders {
		if l.wantsHome(h) && h.Home.IsEmpty() || !h.Home.IsEmpty() && l.within(l.pools[l.pool(&h.Request)], h.Home).IsEmpty() {
			lost = append(lost, h)
		}
	}
	moved := slices.Clone(l.last.rehomed) // a clone of the ledger has them, too
	for _, h := range byAge(lost) {
		before := *h
		h.noteHome(l.settle(h, cpuset.Set{})) // without a home, it runs on the whole pool
		if l.last.id != "" && h.Home != before.Home {
			moved = append(moved, before)
		}
	}
	l.last.rehomed = moved
}

// noteHome records in Short why no node has room for the holder. If there is no error, it removes that reason.
func (h *Holder) noteHome(homeless error) {
	switch {
	case homeless != nil && (h.Short == "" || h.homeless):
		h.Short, h.homeless = homeless.Error(), true
	case homeless == nil && h.homeless:
		h.Short, h.homeless = "", false
	}
}

// moveBack undoes the moves of other holders to another home.
func (l *Ledger) moveBack(rehomed []Holder) {
	for _, before := range slices.Backward(rehomed) {
		if h, ok := l.holders[before.ID]; ok {
			h.Home, h.Short, h.homeless = before.Home, before.Short, before.homeless
		}
	}
}

// homeless says why no node has room.
func (l *Ledger) homeless(h *Holder, most, needs workload.MilliCPU) error {
	what := fmt.Sprintf("%d thousandths of a CPU", needs)
	if l.keepsMemory(h) && most >= needs {
		what += fmt.Sprintf(" and %d MiB of memory", h.Request.Memory>>20)
	}
	return &RefusalError{Shortage: true, Why: fmt.Sprintf("no NUMA node has %s left for it in pool %s (at most %d thousandths): request less, or annotate numa.sluice.dev: prefer",
		what, l.config.Pools[l.pool(&h.Request)].Name, most)}
}

// lefts returns the CPU of a pool on each of machine.Nodes that the other containers at home there don't request.
func (l *Ledger) lefts(h *Holder, pool cpuset.Set) []workload.MilliCPU {
	left := make([]workload.MilliCPU, len(l.machine.Nodes))
	for i := range left {
		left[i] = workload.MilliCPU(cpuset.Intersect(pool, l.machine.Nodes[i].CPUs).Size()) * 1000
	}
	own := l.pool(&h.Request)
	for _, other := range l.holders {
		if other.Home.IsEmpty() || other.ID == h.ID || l.pool(&other.Request) != own {
			continue
		}
		requests, _ := other.Request.Grant()
		for i := range left {
			if other.Home.Contains(l.machine.Nodes[i].ID) {
				left[i] -= requests
			}
		}
	}
	return left
}

// within returns the CPUs that are on a node.
func (l *Ledger) within(cpus, at cpuset.Set) cpuset.Set {
	return cpuset.Intersect(cpus, l.nodeCPUs(at))
}

func (l *Ledger) nodeCPUs(at cpuset.Set) cpuset.Set {
	var all cpuset.Set
	for i := range l.machine.Nodes {
		if node := &l.machine.Nodes[i]; at.Contains(node.ID) {
			all = cpuset.Union(all, node.CPUs)
		}
	}
	return all
}

// atHome returns the CPUs of the pool on which the holder runs, and what to say about it.
func (l *Ledger) atHome(h *Holder, pool cpuset.Set) (cpuset.Set, string) {
	if h.Home.IsEmpty() {
		return pool, ""
	}
	own := l.within(pool, h.Home)
	needs, _ := h.Request.Grant()
	if own.IsEmpty() || workload.MilliCPU(own.Size())*1000 < needs {
		return pool, fmt.Sprintf("; NUMA node %s, its home, has only %d of the pool's CPUs", h.Home, own.Size())
	}
	return own, " on NUMA node " + h.Home.String()
}

// keepsMemory reports whether the holder's memory is to be on the nodes of its CPUs.
func (l *Ledger) keepsMemory(h *Holder) bool {
	switch h.Request.MemoryNodes.Policy {
	case workload.MemoryDefault:
		return h.Request.Class.Pinned() || h.Request.NUMA == workload.NUMASingle && l.wantsHome(h)
	case workload.MemoryLocal:
		return true
	}
	return false
}
