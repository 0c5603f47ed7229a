package podsettings

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
)

// Collect lists the node's containers and pods for the control loop. The next call reuses the
// list.
func (s *Settings) Collect() *colocation.Inventory {
	inv := &s.inventory
	m := s.Ledger.Machine()
	*inv = colocation.Inventory{
		Rules: colocation.Rules{
			ExclusivePools: s.Config.Pools.Mode == config.Exclusive, LendPools: s.lendsPools(),
			LendIdlePins: s.Lends(), BurstAll: s.Config.Control.Burst.All,
			CountCycles: s.Config.Control.Culprit.CPI && s.Authority().Decides(s.Config.Control.Culprit.Mode),
		},
		Containers:  inv.Containers[:0],
		Pools:       s.Ledger.Pools(),
		Shared:      node.Milli(s.Ledger.Shared()),
		Allocatable: node.Milli(s.Allocatable()), Capacity: node.Milli(m.Online),
		ThreadsPerCore: m.ThreadsPerCore(),
		MemoryTotal:    s.Facts().Memory, NoReclaim: s.noReclaim,
	}
	pods := map[string]string{} // the pods' UIDs by their cgroups
	shared := map[string]bool{}
	for _, c := range s.Order {
		parent := c.Pod.CgroupParent
		if uid, known := pods[parent]; known && uid != c.Pod.UID {
			shared[parent] = true
		}
		pods[parent] = c.Pod.UID
	}
	for _, c := range s.Order {
		inv.Containers = append(inv.Containers, s.inventoryOf(c, inv.Pools, shared[c.Pod.CgroupParent]))
	}
	inv.BestEffortCgroup = s.bestEffortCgroup(inv.AllPodsCgroup())
	inv.HostApplications = s.hosts
	return inv
}

// inventoryOf describes one container for the inventory.
func (s *Settings) inventoryOf(c *node.Container, pools []placement.PoolCPUs, shared bool) colocation.Container {
	entry := colocation.Container{
		ID: c.ID, Ref: c.Ref, PodRef: c.PodRef, Pod: c.Pod,
		Path: c.Path, PodPath: c.PodPath, Above: c.Above,
		Started: c.Started, CPUsWritten: c.Touched, Reachable: s.Reaches(c), SharedPodCgroup: shared,
		Quota: c.Quota, MemoryLimit: c.Resources.MemoryLimit,
	}
	h, placed := s.Ledger.Holder(c.ID)
	if !placed {
		return entry
	}
	entry.Quota = s.limitOf(c)
	name := s.Ledger.PoolOf(h)
	entry.Request, entry.Since, entry.Created = &h.Request, h.Since, created(c, h)
	entry.Pool = slices.IndexFunc(pools, func(p placement.PoolCPUs) bool { return p.Name == name })
	entry.Pinned, entry.Apart = !h.CPUs.IsEmpty(), s.apart(c, h)
	return entry
}

// apart reports whether a container has CPUs that batch work never runs on.
func (s *Settings) apart(c *node.Container, h *placement.Holder) bool {
	if !h.CPUs.IsEmpty() || h.Request.Class == workload.System && !s.Config.System.IsEmpty() {
		return true
	}
	n := s.Neighbour(peers.CPUManager)
	return n != nil && slices.ContainsFunc(n.Pins, func(p peers.Pin) bool { return p.PodUID == c.Pod.UID && p.Container == c.Name })
}

// created is when the runtime made a container, which may be before this process started.
func created(c *node.Container, h *placement.Holder) time.Time {
	if made := time.Unix(0, c.CreatedNanos); c.CreatedNanos > 0 && made.Before(h.Since) {
		return made
	}
	return h.Since
}

// bestEffortCgroup is the kubelet's cgroup of BestEffort pods if the configuration counts these
// as batch work and the cgroup exists; "" otherwise.
func (s *Settings) bestEffortCgroup(allPods string) string {
	if allPods == "" || s.Kernel == nil || s.Config.Defaults.BestEffort != workload.BE {
		return ""
	}
	dir := colocation.BestEffortCgroup(allPods)
	if _, err := s.Kernel.Read(dir, knobs.MemoryMax); err != nil {
		return ""
	}
	return dir
}
