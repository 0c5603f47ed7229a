// Package qos decides on the settings of a pod and its containers, which are the values
// that the knobs of their cgroups are to have for what they ask for, by the best mechanism
// that this kernel has. Pure.
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
	Disks     []string          // whole disks, "major:minor"
	DiskNames map[string]string // their numbers by name: "/dev/sda" to "8:0"
	Release   string            // the kernel's, to refuse group identity where it crashes the host, and memory.high before 5.9

	BurstLoop bool // the control loop raises quotas of containers that ask for it

	BEPageCachePercent int // page cache of BE containers, in percent of their memory limit; 0 unlimited
}

// Pod is a pod with its containers that run or are about to.
type Pod struct {
	QoS        workload.QoS
	Quota      knobs.CPUQuota // the kubelet's, of the pod's own cgroup; zero or unlimited: not known, the sum of the containers'
	Containers []Container

	Loop    Loop // of the pod's cgroup
	Ceiling Loop // of what holds the pod
	Favour  int  // CPU weight in percent of what it is otherwise; 0 none
}

// Container is a container with the kubelet's limits.
type Container struct {
	Request     workload.Request
	Quota       knobs.CPUQuota // the kubelet's; zero or unlimited: none
	MemoryLimit int64          // bytes; 0 none
	Own         bool           // has CPUs of its own, and no quota
	Loop        Loop
}

// Setting is the value that a cgroup is to have of one knob, and why.
type Setting struct {
	Knob  knobs.Knob
	Value knobs.Value
	// Percent of the value that the cgroup has without Sluice, in place of Value;
	// for Weight alone.
	Percent int
	Favour  int    // percent of what Value or Percent make; for Weight alone, 0 is 100
	Why     string // "cpu-burst 100 % of 2 CPUs"
}

// Settings is what a pod gets. No cgroup has two settings of one knob, nor both
// Idle 1 and a Weight, which the kernel refuses.
type Settings struct {
	Pod        []Setting
	Containers [][]Setting // as Pod.Containers
	Notes      [][]Note    // as Pod.Containers
	Reclaim    []Reclaim   // as Pod.Containers; nil where no container needs it
}

// Reclaim is what is to be reclaimed from a container on kernels whose own files
// don't do it; the zero value is nothing. It converts to pkg/kernel/reclaim's Target.
type Reclaim struct {
	StartAt, Until knobs.Bytes // memory in use: reclaim when above StartAt until it is Until; 0, 0 never
	CacheMax       knobs.Bytes // page cache above it is reclaimed; 0 unlimited
}

// For returns the settings of a pod.
func For(n *Node, p *Pod) Settings {
	t := tuner{node: n, pod: p, Settings: Settings{
		Containers: make([][]Setting, len(p.Containers)), Notes: make([][]Note, len(p.Containers)),
	}}
	t.batch()
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

	shares knobs.Shares // the pod's by its batch resources; 0 none
	idle   bool         // the pod's cgroup gets cpu.idle
	lowest bool         // the pod's cgroup gets the lowest weight in idle's place
}

func (t *tuner) has(k knobs.Knob) bool { return t.node.Features.Has(k) }

func (t *tuner) setPod(k knobs.Knob, v knobs.Value, why string) {
	t.Pod = append(t.Pod, Setting{Knob: k, Value: v, Why: why})
}

func (t *tuner) set(i int, k knobs.Knob, v knobs.Value, why string) {
	if t.Containers[i] == nil {
		t.Containers[i] = make([]Setting, 0, 8) // most of those that get any get several
	}
	t.Containers[i] = append(t.Containers[i], Setting{Knob: k, Value: v, Why: why})
}

// reclaim is where what is reclaimed from a container is entered.
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

// percentOf is n × percent / 100, rounded down; the largest number where it is
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
