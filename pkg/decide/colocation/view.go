package colocation

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// NodeView maintains the controllers' view of the node. SetInventory enters what exists, and
// Observe enters each sample of its usage. The zero value is an empty node. Both reuse the
// view's slices, so that ten samples a second allocate nothing.
type NodeView struct {
	control.View

	Members      []Container             // same order as View.Containers: grouped by pod
	BatchCgroups BatchCgroups            // cgroups of batch work in the last inventory
	Held         map[string]control.Held // memory of batch cgroups and of batch pods outside of them, by cgroup

	// MemoryClosely is set while the memory of each BE container is observed as often as that of the
	// node, because some of it is to be taken back.
	MemoryClosely bool
	// WatchClosely is the UID of an LS pod whose waiting is observed as often as CPU usage, to see
	// whether a batch pod is the cause or a bound is broken; "" for none.
	WatchClosely string
	// WatchCycles is set while that pod's cycles per instruction are counted all the time.
	WatchCycles bool

	// MachineMemory is the machine's memory in bytes, including huge pages, by which the
	// kubelet computes OOM scores; 0 before the first sample.
	MachineMemory int64

	memoryOfPods bool // View.Node.Memory is that of all pods together, which their limit bounds

	rules  Rules
	said   []bool         // whether a pod or the configuration says its tier; same order as View.Pods
	index  map[string]int // index in View.Containers, by container ID
	pods   map[string]int // index in View.Pods, by UID
	sets   []cpuset.Set   // CPUs of View.Pools
	spares []cpuset.Set   // those on which batch work may run too
	inPool []int          // number of containers, by pool

	looseBatch []int // indexes in View.Containers of batch work outside of batch cgroups

	number   uint64 // Changes.Number of the last sample; 0 after SetInventory
	inView   []int  // by index in the sample: the container's index in View.Containers, or -1
	inSample []int  // by index in View.Containers: its index in the sample, or -1
	others   []int  // indexes in the sample of what is no container

	targets, closeTargets []observe.Target // see Targets
	closeOf               closeWatch       // closeTargets
}

// SetInventory replaces what exists. All usage is unknown until the next sample.
func (v *NodeView) SetInventory(inv *Inventory) {
	if v.index == nil {
		v.index, v.pods, v.Held = map[string]int{}, map[string]int{}, map[string]control.Held{}
	}
	v.rules, v.ExclusivePools = inv.Rules, inv.ExclusivePools
	v.Shared, v.Allocatable, v.Capacity = inv.Shared, inv.Allocatable, inv.Capacity
	v.ThreadsPerCore, v.MemoryTotal, v.NoReclaim = inv.ThreadsPerCore, inv.MemoryTotal, inv.NoReclaim

	v.Pools, v.inPool = v.Pools[:0], v.inPool[:0]
	for _, p := range inv.Pools {
		v.Pools, v.inPool = append(v.Pools, control.Pool{Name: p.Name}), append(v.inPool, 0)
	}
	v.SetPoolCPUs(inv.Pools)

	clear(v.index)
	clear(v.pods)
	v.Members = inv.byPod(v.Members[:0], v.pods)
	v.Pods, v.Containers, v.said = v.Pods[:0], v.Containers[:0], v.said[:0]
	for i := range v.Members {
		v.enter(&v.Members[i])
	}
	v.SetAPIPods(v.APIPods)
	v.BatchCgroups = FindBatchCgroups(inv)
	v.findLooseBatch()
	v.enterHosts(inv)
	v.number = 0
	v.targets, v.closeOf = targets(inv, &v.BatchCgroups), closeWatch{}
}

// findLooseBatch finds the batch containers that no batch cgroup holds.
func (v *NodeView) findLooseBatch() {
	v.looseBatch = v.looseBatch[:0]
	for i := range v.Containers {
		if c := &v.Containers[i]; c.Class == workload.BE && !c.Unseen && !v.BatchCgroups.Holds(v.Members[i].Above) {
			v.looseBatch = append(v.looseBatch, i)
		}
	}
}

// closeWatch is what is observed more often than usual.
type closeWatch struct {
	memory bool   // memory of BE containers
	pod    string // UID of an LS pod whose waiting is
	cycles bool   // its cycles per instruction are, too
}

// Targets lists what must be observed. The list never changes after it has been returned.
func (v *NodeView) Targets() []observe.Target {
	of := closeWatch{v.MemoryClosely, v.WatchClosely, v.WatchCycles}
	if of == (closeWatch{}) {
		return v.targets
	}
	if v.closeOf != of {
		v.closeTargets, v.closeOf = slices.Clone(v.targets), of
		for i := range v.closeTargets {
			t := &v.closeTargets[i]
			t.Memory = t.Memory || of.memory && !t.LS && !t.CPUOnly
			if at, ok := v.index[t.ID]; ok && of.pod != "" {
				t.Waiting = v.Members[at].Pod.UID == of.pod
				t.CPIAlways = t.CPI && t.Waiting && of.cycles
			}
		}
	}
	return v.closeTargets
}

// SetAPIPods enters what the API knows of the node's pods. Their priorities give the tiers of those of
// which neither the pod nor the configuration says one.
func (v *NodeView) SetAPIPods(pods map[string]evictorder.Pod) {
	v.APIPods = pods
	for i := range v.Pods {
		if p := &v.Pods[i]; !v.said[i] {
			p.Tier, _ = workload.TierOfPriority(pods[p.UID].Priority)
		}
	}
}

// SetLatencies enters how fast the pods with an objective answer, by UID.
func (v *NodeView) SetLatencies(latencies map[string]observe.Latency) {
	for i := range v.Pods {
		v.Pods[i].Latency = latencies[v.Pods[i].UID]
	}
}

// SetPoolCPUs replaces the CPUs of the pools after a resize.
func (v *NodeView) SetPoolCPUs(pools []placement.PoolCPUs) {
	v.sets, v.spares = v.sets[:0], v.spares[:0]
	for i, p := range pools {
		v.sets, v.spares = append(v.sets, p.CPUs), append(v.spares, p.Spare)
		pool := &v.Pools[i]
		pool.Size, pool.Spare, pool.Disjoint = p.CPUs.Size(), p.Spare.Size(), 0
		for j := range pools {
			if !p.CPUs.Overlaps(pools[j].CPUs) {
				pool.Disjoint |= 1 << j
			}
		}
	}
}

// enter adds a container, and its pod if it is the pod's first container.
func (v *NodeView) enter(c *Container) {
	r := c.Request
	at := v.pods[c.Pod.UID]
	if at == len(v.Pods) {
		v.Pods = append(v.Pods, control.Pod{
			UID: c.Pod.UID, Ref: c.PodRef, Class: r.Class, Since: c.Since,
			Labels: c.Pod.Labels, Evict: r.Evict, Tier: r.Tier.Value, First: len(v.Containers),
		})
		v.said = append(v.said, false)
	}
	p := &v.Pods[at]
	p.Tier = max(p.Tier, r.Tier.Value)
	p.Egress.Tighten(r.Egress)
	p.SLO.Tighten(r.SLO)
	v.said[at] = v.said[at] || r.Tier.Set
	if rank(r.Class) < rank(p.Class) {
		p.Class = r.Class
	}
	p.Allow |= r.Allow.Value
	p.Count++
	v.index[c.ID] = len(v.Containers)
	cpu, memory := r.Grant()
	entry := control.Container{
		Container: observe.Container{ID: c.ID},
		Ref:       c.Ref, Pod: at, Pool: c.Pool, Class: r.Class, Since: c.Since, Unseen: !c.Started || !c.Reachable,
		Apart: c.Apart, Created: c.Created,
		Request: cpu, Limit: c.cpuLimit(), Memory: memory, MemoryLimit: MemoryLimit(c.MemoryLimit, r), Burst: r.Burst,
	}
	v.Containers = append(v.Containers, entry)
	if entry.Pool >= 0 {
		v.inPool[entry.Pool]++
		pool := &v.Pools[entry.Pool]
		pool.Request += r.Milli // a grant of batch resources is no claim to a pool's CPUs
		pool.Quota = max(pool.Quota, entry.Limit)
	}
}

// rank orders classes by precedence, the highest first.
func rank(c workload.Class) int {
	return slices.Index([]workload.Class{workload.System, workload.LSE, workload.LSR, workload.LS, workload.Unclassified, workload.BE}, c)
}

// Container returns the view of a container, or nil if the view does not have it.
func (v *NodeView) Container(id string) *control.Container {
	if at, ok := v.index[id]; ok && at < len(v.Containers) && v.Containers[at].ID == id {
		return &v.Containers[at]
	}
	return nil
}

// HasBatch reports whether there is a pod of batch work.
func (v *NodeView) HasBatch() bool {
	return slices.ContainsFunc(v.Pods, func(p control.Pod) bool { return p.Class == workload.BE })
}

// HeldOutside returns the memory in bytes that batch work holds outside of a cgroup and that
// the kernel can't free by dropping page cache.
func (v *NodeView) HeldOutside(cgroup string) (bytes int64) {
	for other, held := range v.Held {
		if other != cgroup && !v.IsHostApart(other) {
			bytes += held.NonCache()
		}
	}
	return bytes
}

// ForgetPoolLoad makes the load of the pools unknown until the next sample. It is called when
// the CPUs have been used by others than their pools.
func (v *NodeView) ForgetPoolLoad() {
	for i := range v.Pools {
		v.Pools[i].At = time.Time{}
	}
}
