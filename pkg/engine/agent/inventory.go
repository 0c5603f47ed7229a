package agent

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// loopInventory is what exists on the node now, for the control loop. The next call reuses it.
func (a *Agent) loopInventory() *colocation.Inventory {
	inv := &a.loop.inventory
	m := a.Ledger.Machine()
	*inv = colocation.Inventory{
		Rules: colocation.Rules{
			ExclusivePools: a.Config.Pools.Mode == config.Exclusive,
			LendIdlePins:   a.lends(), BurstAll: a.Config.Control.Burst.All,
		},
		Containers:  inv.Containers[:0],
		Pools:       a.Ledger.Pools(),
		Shared:      milli(a.Ledger.Shared()),
		Allocatable: milli(cpuset.Difference(m.Online, a.Config.Reserved)), Capacity: milli(m.Online),
		ThreadsPerCore: m.ThreadsPerCore(),
		MemoryTotal:    a.Facts().Memory, NoReclaim: a.options.Reclaim == nil,
	}
	pods := map[string]string{} // UIDs by the pods' cgroups
	shared := map[string]bool{}
	for _, c := range a.Order {
		parent := c.Pod.CgroupParent
		if uid, known := pods[parent]; known && uid != c.Pod.UID {
			shared[parent] = true
		}
		pods[parent] = c.Pod.UID
	}
	for _, c := range a.Order {
		inv.Containers = append(inv.Containers, a.inventoryOf(c, inv.Pools, shared[c.Pod.CgroupParent]))
	}
	inv.BestEffortCgroup = a.bestEffortCgroup(inv.AllPodsCgroup())
	return inv
}

// inventoryOf is a container's part of the inventory.
func (a *Agent) inventoryOf(c *node.Container, pools []placement.PoolCPUs, shared bool) colocation.Container {
	entry := colocation.Container{
		ID: c.ID, Ref: c.Ref, PodRef: c.PodRef, Pod: c.Pod,
		Path: c.Path, PodPath: c.PodPath, Above: c.Above,
		Started: c.Started, CPUsWritten: c.Touched, Reachable: a.Reaches(c), SharedPodCgroup: shared,
		Quota: c.Quota, MemoryLimit: c.Resources.MemoryLimit,
	}
	h, placed := a.Ledger.Holder(c.ID)
	if !placed {
		return entry
	}
	name := a.Ledger.PoolOf(h)
	entry.Request, entry.Since, entry.Created = &h.Request, h.Since, created(c, h)
	entry.Pool = slices.IndexFunc(pools, func(p placement.PoolCPUs) bool { return p.Name == name })
	entry.Pinned, entry.Apart = !h.CPUs.IsEmpty(), a.apart(c, h)
	return entry
}

// apart reports whether a container has CPUs on which batch work never runs.
func (a *Agent) apart(c *node.Container, h *placement.Holder) bool {
	if !h.CPUs.IsEmpty() || h.Request.Class == workload.System && !a.Config.System.IsEmpty() {
		return true
	}
	n := a.Neighbour(peers.CPUManager)
	return n != nil && slices.ContainsFunc(n.Pins, func(p peers.Pin) bool { return p.PodUID == c.Pod.UID && p.Container == c.Name })
}

// created is when the runtime made a container, which may have been before this run.
func created(c *node.Container, h *placement.Holder) time.Time {
	if made := time.Unix(0, c.CreatedNanos); c.CreatedNanos > 0 && made.Before(h.Since) {
		return made
	}
	return h.Since
}

// bestEffortCgroup is the kubelet's cgroup of BestEffort pods where the configuration says
// that these are batch and the cgroup exists; "" otherwise.
func (a *Agent) bestEffortCgroup(allPods string) string {
	if allPods == "" || a.Kernel == nil || a.Config.Defaults.BestEffort != workload.BE {
		return ""
	}
	dir := colocation.BestEffortCgroup(allPods)
	if _, err := a.Kernel.Read(dir, knobs.MemoryMax); err != nil {
		return ""
	}
	return dir
}

// isStale reports whether what runs has changed since the controllers' view was made.
func (a *Agent) isStale() bool { return a.loop.changes != a.Changes }

// look makes the controllers' view of what exists.
func (a *Agent) look() {
	l := &a.loop
	l.changes, l.looked, l.sized, l.shareOf = a.Changes, a.Ledger.Version(), a.Ledger.Version(), notShared
	l.view.SetInventory(a.loopInventory())
	l.siblings = nil
}

// measurePools enters the CPUs that the pools have now.
func (a *Agent) measurePools() {
	a.loop.sized = a.Ledger.Version()
	a.loop.view.SetPoolCPUs(a.Ledger.Pools())
}

// limitOfAllPods is the memory that all pods together may hold; 0 for no limit.
func (a *Agent) limitOfAllPods() knobs.Bytes {
	dir := a.AllPods()
	if dir == "" || a.Kernel == nil {
		return 0
	}
	limit, err := a.Kernel.Read(dir, knobs.MemoryMax)
	if err != nil {
		return 0
	}
	return max(0, limit.(knobs.Bytes))
}

func milli(cpus cpuset.Set) workload.MilliCPU { return workload.MilliCPU(cpus.Size()) * 1000 }
