package node

import (
	"cmp"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// Facts are the properties of the node that the meaning of a request depends on. They are
// computed once for each machine, since every container needs them.
func (n *Node) Facts() annotation.Facts {
	if m := n.Ledger.Machine(); m != n.factsOf {
		n.factsOf = m
		n.machineFacts = annotation.Facts{ThreadsPerCore: m.ThreadsPerCore()}
	}
	n.machineFacts.Memory = n.Memory()
	return n.machineFacts
}

// FindMemory reads the machine's memory size, by which the kubelet computes OOM scores. The
// first Synchronize needs it before the first sample.
func (n *Node) FindMemory() {
	total, err := sysfs.Memory(n.Host)
	if err != nil {
		n.Log.WithError(err).Warn("The machine's memory can't be read: until the control loop's first sample it is what the NUMA nodes have together")
	}
	n.MachineMemory = total
}

// Memory is the machine's memory in bytes: MemTotal of /proc/meminfo at the last sample, since
// a hypervisor may change it at any time. If that is unknown, it is the sum of the NUMA nodes'
// memory.
func (n *Node) Memory() int64 {
	m := n.Ledger.Machine()
	return cmp.Or(n.MachineMemory, m.Memory(m.MemoryNodes()))
}

// Usable is the set of CPUs that containers can use.
func (n *Node) Usable() cpuset.Set {
	return cpuset.Difference(n.Ledger.Machine().Online, n.barred)
}

// FindBarred finds the CPUs that no pod can use because the cgroup of all pods lacks them: on
// v1 no cgroup below it may include them, and on v2 including them has no effect.
func (n *Node) FindBarred() {
	dir := n.AllPods()
	if dir == "" || n.Kernel == nil {
		return
	}
	value, err := n.Kernel.Read(dir, knobs.CPUs)
	if err != nil {
		return // without its CPUs nothing can be set; whoever tries reports the error
	}
	set, _ := value.(knobs.CPUSet)
	barred := cpuset.Set{}
	if has := cpuset.Set(set); !has.IsEmpty() {
		barred = cpuset.Difference(n.Ledger.Machine().Online, has)
	}
	if barred == n.barred && n.KnowsBarred() {
		return
	}
	if barred != n.barred {
		n.Log.WithFields(logrus.Fields{"cgroup": dir, "cpus": barred.String()}).Warn("The cgroup of all pods lacks CPUs of this machine (AllowedCPUs= of its slice, or of one above?): no container is placed on them")
	}
	n.barred, n.barredOf = barred, n.Ledger
	n.Ledger.Bar(barred)
}

// KnowsBarred reports whether the ledger has the CPUs that no pod can use.
func (n *Node) KnowsBarred() bool { return n.barredOf == n.Ledger }

// Barred is the set of CPUs that no pod can use.
func (n *Node) Barred() cpuset.Set { return n.barred }

// Allocatable is the CPUs that pods may have: those online, without the reserved ones.
func (n *Node) Allocatable() cpuset.Set {
	return cpuset.Difference(n.Ledger.Machine().Online, n.Config.Reserved)
}

// Milli is the CPU time of a set of CPUs, in thousandths of a CPU.
func Milli(cpus cpuset.Set) workload.MilliCPU { return workload.MilliCPU(cpus.Size()) * 1000 }
