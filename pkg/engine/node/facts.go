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

// Facts is what the meaning of a request depends on. They are counted once for a machine, since
// every container needs them.
func (n *Node) Facts() annotation.Facts {
	if m := n.Ledger.Machine(); m != n.factsOf {
		n.factsOf = m
		n.machineFacts = annotation.Facts{ThreadsPerCore: m.ThreadsPerCore()}
	}
	n.machineFacts.Memory = n.Memory()
	return n.machineFacts
}

// FindMemory reads the machine's memory, by which the kubelet scores containers. The first
// synchronization needs it, which comes before the first sample.
func (n *Node) FindMemory() {
	total, err := sysfs.Memory(n.Host)
	if err != nil {
		n.Log.WithError(err).Warn("The machine's memory can't be read: until the control loop's first sample it is what the NUMA nodes have together")
	}
	n.MachineMemory = total
}

// Memory is the machine's, in bytes: MemTotal of /proc/meminfo at the last sample, since a
// hypervisor may change it at any time; where it isn't known, what its NUMA nodes had
// together.
func (n *Node) Memory() int64 {
	m := n.Ledger.Machine()
	return cmp.Or(n.MachineMemory, m.Memory(m.MemoryNodes()))
}

// Usable is the CPUs that containers can have.
func (n *Node) Usable() cpuset.Set {
	return cpuset.Difference(n.Ledger.Machine().Online, n.barred)
}

// FindBarred finds the CPUs that no pod can have, since the cgroup that holds all pods
// lacks them: no set below it may name them on v1, nor has an effect on v2.
func (n *Node) FindBarred() {
	dir := n.AllPods()
	if dir == "" || n.Kernel == nil {
		return
	}
	value, err := n.Kernel.Read(dir, knobs.CPUs)
	if err != nil {
		return // nothing can be set there, which whoever tries it reports
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

// KnowsBarred reports whether the ledger has been told of the CPUs that no pod can have.
func (n *Node) KnowsBarred() bool { return n.barredOf == n.Ledger }

// Barred is the CPUs that no pod can have.
func (n *Node) Barred() cpuset.Set { return n.barred }

// Milli is the CPU time of a set of CPUs.
func Milli(cpus cpuset.Set) workload.MilliCPU { return workload.MilliCPU(cpus.Size()) * 1000 }
