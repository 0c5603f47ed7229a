// Package colocation connects the controllers (pkg/decide/control) with the node. It makes
// their view from an inventory of what runs and from samples of its usage, and it steps them
// and collects what they want. It also computes which cgroups hold batch work, how the CPU
// budget of batch work is divided, which weights are raised, which containers may start, and
// the failsafe's plan. The package does no I/O: the engine provides the inventory and carries
// out what is wanted.
package colocation

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Inventory is what exists on the node, without its usage. The engine makes a new one when
// containers, their placement or the configuration have changed.
type Inventory struct {
	Rules
	Containers []Container // the oldest first

	Pools          []placement.PoolCPUs // the batch pool is the last
	Shared         workload.MilliCPU    // CPUs that the pools divide
	Allocatable    workload.MilliCPU    // all online CPUs but the reserved ones
	Capacity       workload.MilliCPU    // all online CPUs
	ThreadsPerCore int
	MemoryTotal    int64 // in bytes
	NoReclaim      bool  // the kernel can't take memory back from a single cgroup

	// BestEffortCgroup is the kubelet's cgroup of BestEffort pods, if it exists and the
	// configuration says that these are batch work; it is empty otherwise. Its memory is
	// limited even while it holds no pod, so that a pod that starts finds the limit in force.
	BestEffortCgroup string

	// HostApplications are those of the configuration whose cgroups exist.
	HostApplications []HostApplication
}

// HostApplication is batch work in a cgroup of the node that holds no pods.
type HostApplication struct {
	*control.HostApplication
	HoldsMemory bool // its cgroup has a memory limit; on cgroup v1, one of the CPU controller may have none
}

// Rules are the parts of the configuration in force that decide what must be observed.
type Rules struct {
	ExclusivePools bool // pools have CPUs of their own
	LendPools      bool // batch work may run on spare CPUs of exclusive pools
	LendIdlePins   bool // batch work may run on the CPUs of idle LSR pins
	BurstAll       bool // the limits of all containers may be raised, including those that don't ask for it
	CountCycles    bool // the cycles per instruction of services are counted
}

// batchShares reports whether batch work runs on the CPUs of others.
func (r *Rules) batchShares() bool { return !r.ExclusivePools || r.LendPools }

// Container is a container that the runtime has created, with its place on the node.
type Container struct {
	ID     string
	Ref    string        // "namespace/pod/container"
	PodRef string        // "namespace/pod"
	Pod    *workload.Pod // must not be changed

	Path    string // cgroup of the container; "" if unknown
	PodPath string // cgroup of the pod; "" if unknown
	Above   string // parent of PodPath; "" if unknown

	Started         bool
	CPUsWritten     bool // Sluice has written its cpuset
	Reachable       bool // its cgroup can be read and written: its path is known and it is not in a virtual machine
	SharedPodCgroup bool // the cgroup of its pod also holds containers of other pods

	Quota       knobs.CPUQuota // quota from the kubelet, normalized (qos.Node.Normalized); zero for no limit
	MemoryLimit int64          // limit in bytes from the kubelet; 0 for no limit

	// Request is the request by which the container was placed. It is nil for a container
	// without a place, whose fields below are zero. It must not be changed.
	Request *workload.Request
	Since   time.Time // time of its placement
	Created time.Time // time when the runtime created it, which may be before this process started
	Pool    int       // index in Inventory.Pools; -1 for a pin and for the system's CPUs
	Pinned  bool      // it has CPUs of its own
	Apart   bool      // it has CPUs on which batch work never runs
}

// Is reports whether the container is placed and of that class.
func (c *Container) Is(class workload.Class) bool {
	return c.Request != nil && c.Request.Class == class
}

// Object names the container's cgroup.
func (c *Container) Object() knobs.Object {
	return knobs.Object{Path: c.Path, Name: c.Ref, Level: knobs.ContainerLevel}
}

// cpuLimit returns the lower of the container's CPU limits from the kubelet and from its grant
// of batch resources; 0 if it has none.
func (c *Container) cpuLimit() workload.MilliCPU {
	limit := workload.MilliCPU(0)
	if c.Quota.Finite() {
		limit = workload.MilliCPU(c.Quota.Milli())
	}
	grant := c.Request.Batch.CPULimit
	if !grant.Set {
		grant = c.Request.Batch.CPURequest
	}
	if grant.Set && grant.Value > 0 && (limit == 0 || grant.Value < limit) {
		return grant.Value
	}
	return limit
}

// MemoryLimit returns the lower of a container's memory limits from the kubelet and from its
// grant of batch resources, in bytes; 0 if it has none.
func MemoryLimit(kubelets int64, r *workload.Request) int64 {
	limit := max(0, kubelets)
	if grant := r.Batch.MemoryLimit; grant.Set && grant.Value > 0 && (limit == 0 || grant.Value < limit) {
		return grant.Value
	}
	return limit
}

// AllPodsCgroup returns the cgroup that holds all pods and the kubelet's cgroups of QoS
// classes; it is empty if there is none.
func (inv *Inventory) AllPodsCgroup() string {
	for i := range inv.Containers {
		if dir := AllPodsCgroup(inv.Containers[i].Above); dir != "" {
			return dir
		}
	}
	return ""
}

// byPod returns the placed containers grouped by pod, the oldest pod first.
func (inv *Inventory) byPod(into []Container, pods map[string]int) []Container {
	for i := range inv.Containers {
		c := &inv.Containers[i]
		if c.Request == nil {
			continue
		}
		into = append(into, *c)
		if _, known := pods[c.Pod.UID]; !known {
			pods[c.Pod.UID] = len(pods)
		}
	}
	slices.SortStableFunc(into, func(a, b Container) int { return pods[a.Pod.UID] - pods[b.Pod.UID] })
	return into
}
