package colocation

import (
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

var start = time.Unix(1000, 0)

// running returns a started container named "pod/container" of a class, in the kubelet's cgroup
// "besteffort" or "burstable", or "" for a Guaranteed pod.
func running(name, cgroup string, class workload.Class) Container {
	pod, _, _ := strings.Cut(name, "/")
	above := strings.TrimSuffix("/kubepods/"+cgroup, "/")
	return Container{
		ID: name, Ref: "ns/" + name, PodRef: "ns/" + pod, Pod: &workload.Pod{UID: pod, Name: pod, Namespace: "ns"},
		Path: above + "/pod" + name, PodPath: above + "/pod" + pod, Above: above,
		Started: true, Reachable: true,
		Request: &workload.Request{Class: class}, Since: start, Created: start,
	}
}

// inventory returns the inventory of a node with 8 CPUs in one pool.
func inventory(containers ...Container) *Inventory {
	return &Inventory{
		Containers: containers, Pools: []placement.PoolCPUs{{Name: "all", CPUs: cpus(0, 8)}},
		Shared: 8000, Allocatable: 8000, Capacity: 8000, ThreadsPerCore: 1, MemoryTotal: 16 << 30,
	}
}

func cpus(first, end int) (set cpuset.Set) {
	for id := first; id < end; id++ {
		set = cpuset.Union(set, cpuset.Of(id))
	}
	return set
}

// uses returns a sample of a container or cgroup with that usage of CPU and memory.
func uses(id string, cpu workload.MilliCPU, memory int64) observe.Container {
	return observe.Container{
		ID:  id,
		CPU: observe.ContainerCPU{At: start, Usage: cpu}, Memory: observe.ContainerMemory{At: start, Current: memory},
	}
}

func quotaOf(micros int) knobs.CPUQuota {
	return knobs.CPUQuota{Quota: time.Duration(micros) * time.Microsecond, Period: 100 * time.Millisecond}
}
