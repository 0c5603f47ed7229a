package placement

import (
	"fmt"

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

// settle gives the holder a home if it wants one: the one that it has, else the node in found, else the one
// whose CPUs of the pool have most left of what other containers at home there request. A holder that needs a
// home and gets none is an error.
func (l *Ledger) settle(h *Holder, found cpuset.Set) error {
	had := h.Home
	if h.Home = (cpuset.Set{}); !l.wantsHome(h) {
		return nil
	}
	pool := l.pools[l.pool(&h.Request)]
	for _, home := range []cpuset.Set{had, found} {
		if home.Size() == 1 && !l.within(pool, home).IsEmpty() {
			h.Home = home
			return nil
		}
	}
	var best workload.MilliCPU
	var memory int64
	needs, _ := h.Request.Grant()
	for i := range l.machine.Nodes {
		at := cpuset.Of(l.machine.Nodes[i].ID)
		left, free := l.leftAt(h, pool, at), l.freeMemory(at, h.ID)
		if left < needs || left <= 0 || l.keepsMemory(h) && free < h.Request.Memory {
			continue
		}
		if h.Home.IsEmpty() || left > best || left == best && free > memory {
			h.Home, best, memory = at, left, free
		}
	}
	if h.Home.IsEmpty() && h.Request.NUMA == workload.NUMASingle {
		return l.homeless(h, pool, needs)
	}
	return nil
}

// rehome gives those another home whose pool has no CPU left at theirs.
func (l *Ledger) rehome() {
	var lost []*Holder
	for _, h := range l.holders {
		if !h.Home.IsEmpty() && l.within(l.pools[l.pool(&h.Request)], h.Home).IsEmpty() {
			lost = append(lost, h)
		}
	}
	for _, h := range byAge(lost) {
		_ = l.settle(h, cpuset.Set{}) // without a home, it runs on the whole pool
	}
}

// homeless says why no node has room.
func (l *Ledger) homeless(h *Holder, pool cpuset.Set, needs workload.MilliCPU) error {
	most := workload.MilliCPU(0)
	for i := range l.machine.Nodes {
		most = max(most, l.leftAt(h, pool, cpuset.Of(l.machine.Nodes[i].ID)))
	}
	what := fmt.Sprintf("%d thousandths of a CPU", needs)
	if l.keepsMemory(h) && most >= needs {
		what += fmt.Sprintf(" and %d MiB of memory", h.Request.Memory>>20)
	}
	return &RefusalError{Why: fmt.Sprintf("no NUMA node has %s left for it in pool %s (at most %d thousandths): request less, or annotate numa.sluice.dev: prefer",
		what, l.config.Pools[l.pool(&h.Request)].Name, most)}
}

// leftAt returns the CPU of a pool on a node that the other containers at home there don't request.
func (l *Ledger) leftAt(h *Holder, pool, at cpuset.Set) workload.MilliCPU {
	left := workload.MilliCPU(l.within(pool, at).Size()) * 1000
	for _, other := range l.holders {
		if other.ID != h.ID && other.Home == at && l.pool(&other.Request) == l.pool(&h.Request) {
			requests, _ := other.Request.Grant()
			left -= requests
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
