package node

import (
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Kernel reads and writes cgroups; see pkg/kernel/cgroupfs. Nil where the host has
// none: everything then goes through the runtime.
type Kernel interface {
	Apply(changes []knobs.Change) error
	Read(path string, knob knobs.Knob) (knobs.Value, error)
	Populated(path string) (bool, error)
	GiveBack(path string, cpus cpuset.Set) error
	Processes(path string) ([]int, error)
	// Nest looks for a cgroup that the runtime has made for the processes below the
	// container's own, which Apply and Read then know of.
	Nest(path string)
	// Rejoin puts a cgroup's processes back into its cpuset where hotplug has moved
	// them out of it, and tells how many.
	Rejoin(path string) (int, error)
	// Same reports whether the kernel shows have where want was written, which it
	// may round.
	Same(knob knobs.Knob, want, have knobs.Value) bool
	// Forget lets go what is held open of a cgroup.
	Forget(path string)
}

// Unlimited throttles nothing.
var Unlimited = knobs.UnlimitedQuota()

// PodObject names a pod's own cgroup; ok is false where it can't be told.
func PodObject(pod *workload.Pod) (o knobs.Object, ok bool) {
	path, err := cgroupfs.PodPath(pod.CgroupParent)
	return knobs.Object{Path: path, Name: pod.Namespace + "/" + pod.Name, Level: knobs.PodLevel}, err == nil && path != "/"
}
