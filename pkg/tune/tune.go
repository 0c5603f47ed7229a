// Package tune decides which knobs a pod and its containers get for what they ask
// for, by the best mechanism that this kernel has. Pure.
package tune

import (
	"github.com/sluice-dev/sluice/pkg/plan"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Node is what settings depend on besides the pod.
type Node struct {
	Features plan.Features
	Memory   int64    // allocatable memory in bytes
	Disks    []string // whole disks, "major:minor"
	Release  string   // the kernel's, to refuse group identity where it crashes the host
}

// Pod is a pod with its containers that run or are about to.
type Pod struct {
	QoS        workload.QoS
	Containers []Container
}

// Container is a container with the kubelet's limits.
type Container struct {
	Request     workload.Request
	Quota       plan.CPUQuota // the kubelet's; zero or unlimited: none
	MemoryLimit int64         // bytes; 0 none
	Own         bool          // has CPUs of its own, and no quota
}

// Setting is one knob that a cgroup is to have, and why.
type Setting struct {
	Knob  plan.Knob
	Value plan.Value
	// Percent of the value that the cgroup has without Sluice, in place of Value;
	// for Weight alone.
	Percent int
	Why     string // "cpu-burst 100 % of 2 CPUs"
}

// Note says that something asked for is had in another way than the best, or not
// at all.
type Note struct {
	Key     string // the own key that asks for it: "cpu-burst"
	Missing bool   // it is not there at all
	Text    string // what this kernel lacks, and what is done instead
}

// Settings is what a pod gets.
type Settings struct {
	Pod        []Setting
	Containers [][]Setting // as Pod.Containers
	Notes      [][]Note    // as Pod.Containers
}

// For returns the settings of a pod.
func For(n *Node, p *Pod) Settings {
	return Settings{Containers: make([][]Setting, len(p.Containers)), Notes: make([][]Note, len(p.Containers))}
}
