// Package qos decides the settings of a pod and its containers: the values that the knobs of
// their cgroups should have for what the pod asks for, by the best mechanism of this kernel.
// The package does no I/O.
package qos

import (
	"math"
	"math/bits"
	"slices"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Node is what settings depend on besides the pod.
type Node struct {
	Features  knobs.Features
	Memory    int64             // allocatable memory in bytes
	PageSize  int64             // bytes; 0 is 4096
	Disks     []string          // "major:minor" of whole disks
	DiskNames map[string]string // "major:minor" by name: "/dev/sda" to "8:0"
	Release   string            // kernel release, to refuse group identity where it crashes the host, and memory.high before 5.9

	BurstLoop bool // the control loop raises the quotas of containers that ask for it

	Swap bool // the node has swap

	CostDisks []string // "major:minor" of the disks on which io.cost is known to be enabled

	CPURatio int // by which the CPU limits of services are divided, in hundredths; up to 100 for not at all

	BEPageCachePercent int // limit of BE containers' page cache in percent of their memory limit; 0 for none
}

// Pod is a pod with its containers that run or are about to.
type Pod struct {
	QoS        workload.QoS
	Quota      knobs.CPUQuota // the kubelet's quota of the pod's cgroup; the sum of the containers' if it is zero or unlimited
	Containers []Container

	Loop          Loop // loop's quota for the pod's cgroup
	Ceiling       Loop // loop's quota for the cgroups above the pod
	WeightPercent int  // CPU weight in percent of the usual one; 0 for no change
	KeepWeight    bool // neither a key nor a grant raises the weight
}

// Container is a container with the kubelet's limits.
type Container struct {
	Request     workload.Request
	Quota       knobs.CPUQuota // the kubelet's quota; zero or unlimited for none
	MemoryLimit int64          // in bytes; 0 for none
	Starting    bool           // the runtime may have yet to make its cgroup, with the kubelet's quota
	Own         bool           // whether it has CPUs of its own, and therefore no quota
	Loop        Loop
}

// Setting is the value that one knob of a cgroup should have, and why.
type Setting struct {
	Knob  knobs.Knob
	Value knobs.Value
	// Percent replaces Value by a percentage of the value that the cgroup has without Sluice.
	// It is for Weight only.
	Percent int
	// AtMostOriginal bounds Value by the value that the cgroup has without Sluice. It is for Quota only.
	AtMostOriginal bool
	ScalePercent   int    // percentage of the result of Value or Percent, for Weight only; 0 stands for 100
	Why            string // "cpu-burst 100 % of 2 CPUs"
}

// Settings are the settings of a pod. No cgroup has two settings of one knob, nor both Idle 1
// and a Weight, which the kernel refuses.
type Settings struct {
	Pod        []Setting
	Containers [][]Setting // in the order of Pod.Containers
	Notes      [][]Note    // in the order of Pod.Containers
	Reclaim    []Reclaim   // in the order of Pod.Containers; nil if no container needs it
}

// Reclaim is what must be reclaimed from a container on kernels without files for it. The zero
// value is nothing. It converts to the Target of pkg/kernel/reclaim.
type Reclaim struct {
	StartAt, Until knobs.Bytes // usage above which reclaim starts, and usage at which it stops; both 0 for never
	CacheMax       knobs.Bytes // page cache above it is reclaimed; 0 for unlimited
	Offload        bool        // memory that it does not use is reclaimed bit by bit
}

// For returns the settings of a pod.
func For(n *Node, p *Pod) Settings {
	t := tuner{node: n, pod: p, Settings: Settings{
		Containers: make([][]Setting, len(p.Containers)), Notes: make([][]Note, len(p.Containers)),
	}}
	t.batch()
	t.normalize()
	t.burst()
	t.loop()
	t.identity()
	t.weight()
	t.memory()
	t.io()
	t.netClass()
	return t.Settings
}

type tuner struct {
	node *Node
	pod  *Pod
	Settings

	shares knobs.Shares // shares of the pod from its batch resources; 0 for none
	idle   bool         // the pod's cgroup gets cpu.idle
	lowest bool         // the pod's cgroup gets the lowest weight in place of cpu.idle
}

func (t *tuner) has(k knobs.Knob) bool { return t.node.Features.Has(k) }

func (t *tuner) setPod(k knobs.Knob, v knobs.Value, why string) {
	t.Pod = append(t.Pod, Setting{Knob: k, Value: v, Why: why})
}

func (t *tuner) set(i int, k knobs.Knob, v knobs.Value, why string) {
	if t.Containers[i] == nil {
		t.Containers[i] = make([]Setting, 0, 8) // most containers that get settings get several
	}
	t.Containers[i] = append(t.Containers[i], Setting{Knob: k, Value: v, Why: why})
}

// reclaim returns the container's entry in Settings.Reclaim.
func (t *tuner) reclaim(i int) *Reclaim {
	if t.Reclaim == nil {
		t.Reclaim = make([]Reclaim, len(t.pod.Containers))
	}
	return &t.Reclaim[i]
}

// Find returns the setting of a knob.
func Find(settings []Setting, k knobs.Knob) (Setting, bool) {
	i := slices.IndexFunc(settings, func(s Setting) bool { return s.Knob == k })
	if i < 0 {
		return Setting{}, false
	}
	return settings[i], true
}

func (t *tuner) netClass() {
	for i := range t.pod.Containers {
		class := t.pod.Containers[i].Request.NetClass
		switch {
		case !class.Set:
		case t.has(knobs.NetClass):
			t.set(i, knobs.NetClass, knobs.Number(class.Value), "its network class")
		default:
			t.missing(i, netClassKey, "net_cls.classid is not there (cgroup v1's net_cls is not mounted): its packets are not marked")
		}
	}
}

// percentOf returns n × percent / 100, rounded down, or the largest number if the result is
// larger.
func percentOf(n int64, percent int) int64 {
	if n <= 0 || percent <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n), uint64(percent))
	if hi >= 100 {
		return math.MaxInt64
	}
	part, _ := bits.Div64(hi, lo, 100)
	return int64(min(part, math.MaxInt64))
}

// pages rounds an amount of memory down to whole pages, as the kernel does.
func (n *Node) pages(bytes int64) int64 {
	size := n.PageSize
	if size <= 0 {
		size = 4096
	}
	return bytes - bytes%size
}
