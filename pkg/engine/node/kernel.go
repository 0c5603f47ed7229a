package node

import (
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Kernel reads and writes cgroups; see pkg/kernel/cgroupfs. It is nil on a host without
// cgroups, where all settings go through the runtime.
type Kernel interface {
	reconcile.Kernel
	Populated(path string) (bool, error)
	GiveBack(path string, cpus cpuset.Set) error
	Processes(path string) ([]int, error)
	// Nest looks for a cgroup that the runtime has made below the container's own for its
	// processes. Apply and Read handle that one, too, from then on.
	Nest(path string)
	// Rejoin moves a cgroup's processes that hotplug has moved out of its cpuset back into it,
	// and returns their number.
	Rejoin(path string) (int, error)
	// Forget closes the files that are open for a cgroup.
	Forget(path string)
}

// PodObject describes a pod's own cgroup; ok is false if the cgroup is unknown.
func PodObject(pod *workload.Pod) (o knobs.Object, ok bool) {
	path, err := cgroupfs.PodPath(pod.CgroupParent)
	return knobs.Object{Path: path, Name: pod.Namespace + "/" + pod.Name, Level: knobs.PodLevel}, err == nil && path != "/"
}
