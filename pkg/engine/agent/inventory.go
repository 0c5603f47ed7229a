package agent

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// loopInventory is what exists on the node now, for the control loop. The next call reuses it.
func (a *Agent) loopInventory() *colocation.Inventory {
	inv := &a.loop.inventory
	m := a.ledger.Machine()
	*inv = colocation.Inventory{
		Rules: colocation.Rules{
			ExclusivePools: a.Config.Pools.Mode == config.Exclusive,
			LendIdlePins:   a.lends(), BurstAll: a.Config.Control.Burst.All,
		},
		Containers:  inv.Containers[:0],
		Pools:       a.ledger.Pools(),
		Shared:      milli(a.ledger.Shared()),
		Allocatable: milli(cpuset.Difference(m.Online, a.Config.Reserved)), Capacity: milli(m.Online),
		ThreadsPerCore: m.ThreadsPerCore(),
		MemoryTotal:    a.facts().Memory, NoReclaim: a.Reclaim == nil,
	}
	pods := map[string]string{} // UIDs by the pods' cgroups
	shared := map[string]bool{}
	for _, c := range a.order {
		parent := c.pod.CgroupParent
		if uid, known := pods[parent]; known && uid != c.pod.UID {
			shared[parent] = true
		}
		pods[parent] = c.pod.UID
	}
	for _, c := range a.order {
		inv.Containers = append(inv.Containers, a.inventoryOf(c, inv.Pools, shared[c.pod.CgroupParent]))
	}
	inv.BestEffortCgroup = a.bestEffortCgroup(inv.AllPodsCgroup())
	return inv
}

// inventoryOf is a container's part of the inventory.
func (a *Agent) inventoryOf(c *container, pools []placement.PoolCPUs, shared bool) colocation.Container {
	entry := colocation.Container{
		ID: c.ID, Ref: c.ref, PodRef: c.podRef, Pod: c.pod,
		Path: c.path, PodPath: c.podPath, Above: c.above,
		Started: c.started, CPUsWritten: c.touched, Reachable: a.reaches(c), SharedPodCgroup: shared,
		Quota: c.quota, MemoryLimit: c.Resources.MemoryLimit,
	}
	h, placed := a.ledger.Holder(c.ID)
	if !placed {
		return entry
	}
	name := a.ledger.PoolOf(h)
	entry.Request, entry.Since, entry.Created = &h.Request, h.Since, created(c, h)
	entry.Pool = slices.IndexFunc(pools, func(p placement.PoolCPUs) bool { return p.Name == name })
	entry.Pinned, entry.Apart = !h.CPUs.IsEmpty(), a.apart(c, h)
	return entry
}

// apart reports whether a container has CPUs on which batch work never runs.
func (a *Agent) apart(c *container, h *placement.Holder) bool {
	if !h.CPUs.IsEmpty() || h.Request.Class == workload.System && !a.Config.System.IsEmpty() {
		return true
	}
	n := a.neighbour(peers.CPUManager)
	return n != nil && slices.ContainsFunc(n.Pins, func(p peers.Pin) bool { return p.PodUID == c.pod.UID && p.Container == c.Name })
}

// created is when the runtime made a container, which may have been before this run.
func created(c *container, h *placement.Holder) time.Time {
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

// look makes the controllers' view of what exists.
func (a *Agent) look() {
	l := &a.loop
	l.stale, l.looked, l.sized, l.shareOf = false, a.ledger.Version(), a.ledger.Version(), notShared
	l.view.SetInventory(a.loopInventory())
	l.siblings = nil
}

// measurePools enters the CPUs that the pools have now.
func (a *Agent) measurePools() {
	a.loop.sized = a.ledger.Version()
	a.loop.view.SetPoolCPUs(a.ledger.Pools())
}

// limitOfAllPods is the memory that all pods together may hold; 0 for no limit.
func (a *Agent) limitOfAllPods() knobs.Bytes {
	dir := a.allPods()
	if dir == "" || a.Kernel == nil {
		return 0
	}
	limit, err := a.Kernel.Read(dir, knobs.MemoryMax)
	if err != nil {
		return 0
	}
	return max(0, limit.(knobs.Bytes))
}

// allPods is the cgroup that holds all pods; "" where there is none.
func (a *Agent) allPods() string {
	for _, c := range a.order {
		if dir := colocation.AllPodsCgroup(c.above); dir != "" {
			return dir
		}
	}
	return ""
}

func milli(cpus cpuset.Set) workload.MilliCPU { return workload.MilliCPU(cpus.Size()) * 1000 }
