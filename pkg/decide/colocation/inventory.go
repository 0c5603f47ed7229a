// Package colocation is the control loop around its controllers (pkg/decide/control): it
// makes their view of the node from an inventory of what runs there and from samples of what
// that does, and steps them from that view and their inputs to what is desired. It also
// computes which cgroups hold batch work, how batch work's CPU budget is divided, which
// weights are raised, what may start, and the failsafe's plan. It is pure: the engine takes
// the inventory and carries out what is desired.
package colocation

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Inventory is what exists on the node, whatever it does. The engine makes a new one when
// containers, their places or the configuration have changed.
type Inventory struct {
	Rules
	Containers []Container // by age, the oldest first

	Pools          []placement.PoolCPUs // the batch pool last
	Shared         workload.MilliCPU    // the CPUs that the pools divide
	Allocatable    workload.MilliCPU    // all CPUs that are online but the reserved ones
	Capacity       workload.MilliCPU    // all CPUs that are online
	ThreadsPerCore int
	MemoryTotal    int64 // bytes
	NoReclaim      bool  // the kernel can't take memory back from a single cgroup

	// BestEffortCgroup is the kubelet's cgroup of BestEffort pods where the configuration
	// says that these are batch and the cgroup exists; "" otherwise. Its memory is limited
	// also while it holds no pod, so that a pod that starts finds the limit in force.
	BestEffortCgroup string
}

// Rules are the parts of the configuration, as far as they are in force, that decide what
// has to be observed.
type Rules struct {
	ExclusivePools bool // batch work has CPUs of its own, and shares none with others
	LendIdlePins   bool // batch work may run on the CPUs of idle LSR pins
	BurstAll       bool // the limits of all containers may be raised, not only of those that ask for it
}

// Container is a container that the runtime has created, with its place on the node.
type Container struct {
	ID     string
	Ref    string        // "namespace/pod/container"
	PodRef string        // "namespace/pod"
	Pod    *workload.Pod // not to be changed

	Path    string // its cgroup; "" unknown
	PodPath string // its pod's cgroup; "" unknown
	Above   string // the cgroup that holds the pod's; "" unknown

	Started         bool
	CPUsWritten     bool // Sluice has written its cpuset
	Reachable       bool // its cgroup can be read and written: it is known, and not in a virtual machine
	SharedPodCgroup bool // other pods have containers in its pod's cgroup

	Quota       knobs.CPUQuota // as the kubelet asked for it; zero for no limit
	MemoryLimit int64          // bytes, as the kubelet asked for it; 0 for no limit

	// Request is what the container was placed by; nil for a container without a place, of
	// which the fields below are zero. It is not to be changed.
	Request *workload.Request
	Since   time.Time // when it got its place
	Created time.Time // when the runtime made it, which may have been before this run
	Pool    int       // in Inventory.Pools; -1 with CPUs of its own, or the system's
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

// cpuLimit is the container's CPU limit, by the kubelet or by its grant of batch
// resources, whichever is less; 0 for none.
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

// MemoryLimit is a container's memory limit in bytes, by the kubelet or by its grant of
// batch resources, whichever is less; 0 for none.
func MemoryLimit(kubelets int64, r *workload.Request) int64 {
	limit := max(0, kubelets)
	if grant := r.Batch.MemoryLimit; grant.Set && grant.Value > 0 && (limit == 0 || grant.Value < limit) {
		return grant.Value
	}
	return limit
}

// AllPodsCgroup is the cgroup that holds all pods and the kubelet's cgroups of their
// classes; "" where there is none.
func (inv *Inventory) AllPodsCgroup() string {
	for i := range inv.Containers {
		if dir := AllPodsCgroup(inv.Containers[i].Above); dir != "" {
			return dir
		}
	}
	return ""
}

// byPod returns the placed containers, those of a pod together, the oldest pod first.
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
