package placement

import (
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// memoryNodes chooses the nodes of a holder's memory by the CPUs on which it runs. The empty
// set means any node.
func (l *Ledger) memoryNodes(h *Holder) (cpuset.Set, error) {
	switch policy := h.Request.MemoryNodes.Policy; {
	case policy == workload.MemoryListed:
		return l.listedMemory(h.ID, h.Request)
	case !l.keepsMemory(h):
		return cpuset.Set{}, nil
	}
	cpus := h.CPUs
	switch {
	case !h.Home.IsEmpty():
		cpus = l.nodeCPUs(h.Home)
	case cpus.IsEmpty():
		cpus, _ = l.sharedCPUs(h)
	}
	return l.localMemory(l.orOnline(cpus), h.Request.Memory, h.ID), nil
}

// keepNodes returns the memory nodes of a holder that should have nodes. A running holder keeps
// those that it had as well: the kernel would move all of its pages off a node that it loses,
// which takes about a second per GiB.
func (l *Ledger) keepNodes(old *Holder, nodes cpuset.Set) cpuset.Set {
	switch {
	case old.State != Held || nodes.IsEmpty():
		return nodes
	case old.Mems.IsEmpty():
		return l.machine.MemoryNodes()
	}
	return cpuset.Union(nodes, old.Mems)
}

// followPools moves the memory of containers that share CPUs and asked for local memory to the
// nodes of their pools, or to their home.
func (l *Ledger) followPools() {
	var follow []*Holder
	for _, h := range l.holders {
		if h.CPUs.IsEmpty() && h.Request.MemoryNodes.Policy != workload.MemoryListed && l.keepsMemory(h) && !h.Request.Class.Pinned() {
			follow = append(follow, h)
		}
	}
	for _, h := range byAge(follow) { // older holders come first, since they leave less memory for the others
		nodes, _ := l.memoryNodes(h) // an error is impossible, since only listed nodes can be wrong
		l.setMems(h, l.keepNodes(h, nodes))
	}
}

// listedMemory returns the nodes that a request names. With an error that some of them are not there, it
// returns the others; none of them is the empty set, for any node.
func (l *Ledger) listedMemory(id string, r workload.Request) (cpuset.Set, error) {
	nodes := r.MemoryNodes.Nodes
	if missing := cpuset.Difference(nodes, l.machine.MemoryNodes()); !missing.IsEmpty() {
		return cpuset.Difference(nodes, missing), &RefusalError{Why: "memory nodes " + missing.String() + " do not exist here or have no memory; this machine's are " + l.machine.MemoryNodes().String()}
	}
	if r.Memory > l.freeMemory(nodes, id) {
		return nodes, &RefusalError{Why: "memory nodes " + nodes.String() + " have no room for the container's memory guarantee beside those of others there: name more nodes, or none"}
	}
	return nodes, nil
}

// localMemory returns the nodes of the CPUs, extended by the nearest other nodes while the
// guaranteed memory does not fit: fast tiers first, then by distance. The nodes of the CPUs may
// have no memory at all.
func (l *Ledger) localMemory(cpus cpuset.Set, guarantee int64, id string) cpuset.Set {
	own := l.machine.NodesOf(cpus)
	all := l.machine.MemoryNodes()
	nodes := cpuset.Intersect(own, all)
	for nodes != all && (nodes.IsEmpty() || l.freeMemory(nodes, id) < guarantee) {
		nearest := l.nearestMemory(own, cpuset.Difference(all, nodes))
		if nearest == nil {
			return all
		}
		nodes.Add(nearest.ID)
	}
	return nodes
}

// nearestMemory returns the candidate with the fastest memory that is closest to any node of
// from.
func (l *Ledger) nearestMemory(from, candidates cpuset.Set) *topology.Node {
	var best *topology.Node
	bestDistance := 0
	for i := range l.machine.Nodes {
		node := &l.machine.Nodes[i]
		if !candidates.Contains(node.ID) {
			continue
		}
		distance := l.distance(from, node)
		if best == nil || node.Tier < best.Tier || node.Tier == best.Tier && distance < bestDistance {
			best, bestDistance = node, distance
		}
	}
	return best
}

func (l *Ledger) distance(from cpuset.Set, to *topology.Node) int {
	const unknown = 255 // the kernel's "unreachable"
	least := unknown
	for i, d := range to.Distances {
		if i < len(l.machine.Nodes) && from.Contains(l.machine.Nodes[i].ID) {
			least = min(least, d)
		}
	}
	return least
}

// freeMemory returns the memory of the nodes without what others are guaranteed there.
func (l *Ledger) freeMemory(nodes cpuset.Set, except string) int64 {
	free := l.machine.Memory(nodes)
	own := l.holders[except]
	for i := range l.machine.Nodes {
		if !nodes.Contains(l.machine.Nodes[i].ID) {
			continue
		}
		free -= l.promised[i]
		if own != nil {
			free += l.share(own, i)
		}
	}
	return free
}

// share is how much of its guaranteed memory a holder has on machine.Nodes[i]. A guarantee over several
// nodes counts on each by its share of their memory.
func (l *Ledger) share(h *Holder, i int) int64 {
	node := &l.machine.Nodes[i]
	if h.Request.Memory == 0 || node.MemoryBytes == 0 || !h.Mems.Contains(node.ID) {
		return 0
	}
	return int64(float64(h.Request.Memory) * float64(node.MemoryBytes) / float64(l.machine.Memory(h.Mems)))
}

// promise counts a holder's guarantee on its nodes with sign 1, and no longer with sign -1.
func (l *Ledger) promise(h *Holder, sign int64) {
	if h.Request.Memory == 0 || h.Mems.IsEmpty() {
		return
	}
	for i := range l.promised {
		l.promised[i] += sign * l.share(h, i)
	}
}

// put records a holder in place of the one with its ID.
func (l *Ledger) put(h *Holder) {
	l.drop(h.ID)
	l.holders[h.ID] = h
	l.promise(h, 1)
}

// drop forgets a holder, if there is one with that ID.
func (l *Ledger) drop(id string) {
	if h, ok := l.holders[id]; ok {
		l.promise(h, -1)
		delete(l.holders, id)
	}
}

// setMems changes the memory nodes of a holder that the ledger has recorded.
func (l *Ledger) setMems(h *Holder, nodes cpuset.Set) {
	l.promise(h, -1)
	h.Mems = nodes
	l.promise(h, 1)
}
