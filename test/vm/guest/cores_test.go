package guest

import (
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const mib = 1 << 20

func milli(cpus int) workload.MilliCPU { return workload.MilliCPU(1000 * cpus) }

// whole returns the resources of a Guaranteed container with that many CPUs and some memory.
func whole(cpus int) runtime.Resources { return runtime.Whole(milli(cpus), 128*mib) }

// wholeCores reports whether the CPUs are whole cores of the guest, whose cores are the pairs 0-1,
// 2-3 and so on.
func wholeCores(cpus cpuset.Set) bool { return cpus.Size() == 2*coresOf(cpus) }

// coresOf counts the cores that CPUs are on.
func coresOf(cpus cpuset.Set) int {
	var cores cpuset.Set
	for cpu := range cpus.All() {
		cores.Add(cpu / 2)
	}
	return cores.Size()
}
