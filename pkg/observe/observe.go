// Package observe says what a node and its containers do: usage, throttling,
// pressure, memory, cache and I/O, as rates over the time since the look before.
// Pure data, and the arithmetic that turns the kernel's counters into it.
package observe

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Snapshot is one look at a node. Each part says when it was measured; a part whose
// At is zero is not known. Parts are read at different intervals, so that some are
// older than others. As JSON, with one line for each, it is a recording.
type Snapshot struct {
	Now        time.Time   `json:"now"` // of this look
	Node       Node        `json:"node,omitzero"`
	CPUs       []CPU       `json:"cpus,omitempty"` // by CPU number
	Containers []Container `json:"containers,omitempty"`
}

// CPU is one CPU's time.
type CPU struct {
	Busy  float64 `json:"busy,omitempty"`  // 0..1, of the interval of Node.CPU; neither idle nor waiting for I/O
	Known bool    `json:"known,omitempty"` // false: offline, or its rate isn't known yet
}

// Node is the whole machine.
type Node struct {
	CPU      NodeCPU    `json:"cpu,omitzero"`
	Pressure Pressure   `json:"psi,omitzero"`
	Memory   NodeMemory `json:"mem,omitzero"`
	Load     Load       `json:"load,omitzero"`
	Disk     Disk       `json:"disk,omitzero"`
	Steal    float64    `json:"steal,omitempty"` // CPUs' worth of time that a hypervisor kept, over CPU's interval
}

// Load is how many tasks run, wait for a CPU or can't be interrupted.
type Load struct {
	At    time.Time `json:"at,omitzero"`
	Tasks float64   `json:"tasks,omitempty"` // mean over 1 min, of /proc/loadavg
}

// Disk is the fullest file system with pods' data.
type Disk struct {
	At   time.Time `json:"at,omitzero"`
	Used float64   `json:"used,omitempty"` // 0..1
}

// NodeCPU is the machine's CPU time.
type NodeCPU struct {
	At       time.Time         `json:"at"`
	Interval time.Duration     `json:"over"`
	Usage    workload.MilliCPU `json:"milli"`
}

// Pressure is the share of time (0..1) in which tasks waited, see
// Documentation/accounting/psi.rst: over the interval since the look before, or over
// 10 s at the first look.
type Pressure struct {
	At         time.Time `json:"at"`
	CPU        float64   `json:"cpu,omitempty"` // some
	Memory     float64   `json:"mem,omitempty"` // some
	MemoryFull float64   `json:"memFull,omitempty"`
	IO         float64   `json:"io,omitempty"` // some
	IOFull     float64   `json:"ioFull,omitempty"`
}

// NodeMemory is the machine's memory, in bytes.
type NodeMemory struct {
	At        time.Time `json:"at"`
	Total     int64     `json:"total"`               // without HugePages
	HugePages int64     `json:"hugePages,omitempty"` // the pool of huge pages, in bytes
	Available int64     `json:"available"`           // the kernel's estimate of what new work can have without swapping
	Free      int64     `json:"free,omitempty"`
	Anon      int64     `json:"anon,omitempty"`
	Cache     int64     `json:"cache,omitempty"` // page cache that can be dropped: active and inactive file
	Low       int64     `json:"low,omitempty"`   // free memory at which background reclaim begins: the zones' low watermarks
	// Direct counts the pages that tasks had to scan for reclaim themselves, per
	// second; 0 at the first look.
	Direct float64    `json:"direct,omitempty"`
	Nodes  []NUMANode `json:"nodes,omitempty"` // by node number; Total 0 is a node without memory
}

// NUMANode is the memory of one NUMA node, in bytes.
type NUMANode struct {
	Total       int64   `json:"total"`
	Free        int64   `json:"free"`
	Reclaimable int64   `json:"cache,omitempty"`  // page cache
	Direct      float64 `json:"direct,omitempty"` // as NodeMemory's; 0 on kernels that count it for the whole machine alone
}

// Container is what one container does. Values are of its own cgroup.
type Container struct {
	ID       string          `json:"id"`
	CPU      ContainerCPU    `json:"cpu,omitzero"`
	Pressure Pressure        `json:"psi,omitzero"`
	RunDelay RunDelay        `json:"delay,omitzero"`
	Memory   ContainerMemory `json:"mem,omitzero"`
	IO       ContainerIO     `json:"io,omitzero"`
	Cache    Cache           `json:"llc,omitzero"`
}

// ContainerCPU is its CPU time.
type ContainerCPU struct {
	At       time.Time         `json:"at"`
	Interval time.Duration     `json:"over"`
	Usage    workload.MilliCPU `json:"milli"`

	// Of the CFS quota, over the time since StatAt was another; StatAt is zero where
	// it has no file for it.
	StatAt        time.Time     `json:"statAt,omitzero"`
	Periods       int64         `json:"periods,omitempty"`       // that ended in the interval
	Throttled     int64         `json:"throttled,omitempty"`     // of them
	ThrottledTime time.Duration `json:"throttledTime,omitempty"` // summed over its CPUs
}

// RunDelay is how long its threads were ready to run and did not.
type RunDelay struct {
	At      time.Time `json:"at"`
	Waiting float64   `json:"waiting"` // threads, on average
}

// ContainerMemory is its memory, in bytes.
type ContainerMemory struct {
	At         time.Time `json:"at"`
	Current    int64     `json:"current"`
	WorkingSet int64     `json:"set"` // Current without inactive page cache, as the kubelet counts
	Anon       int64     `json:"anon,omitempty"`
	Cache      int64     `json:"cache,omitempty"`    // page cache that can be dropped: active and inactive file
	Refaults   float64   `json:"refaults,omitempty"` // pages a second that were read again soon after they were dropped; 0 at the first look
	Direct     float64   `json:"direct,omitempty"`   // pages a second that its tasks had to scan for reclaim themselves (v2, Linux 5.19); 0 at the first look
	OOMKills   int64     `json:"oom,omitempty"`      // since the container began
}

// ContainerIO is its block I/O.
type ContainerIO struct {
	At       time.Time `json:"at"`
	ReadBPS  float64   `json:"read"` // bytes per second
	WriteBPS float64   `json:"write"`
}

// Cache is what resctrl counts of it.
type Cache struct {
	At        time.Time `json:"at"`
	Occupancy int64     `json:"bytes"`         // of last-level cache
	Bandwidth float64   `json:"bps,omitempty"` // memory bytes per second; 0 at the first look
	L3s       []L3      `json:"l3s,omitempty"` // each of its parts; never changed
}

// L3 is what resctrl counts of a container in one L3 cache and the memory behind it.
// Negative is what the kernel can't read now, or this machine doesn't count.
type L3 struct {
	ID             int   `json:"id"`             // ID of the L3 cache.
	OccupancyBytes int64 `json:"occupancyBytes"` // Bytes of the cache that the container occupies.
	TotalBytes     int64 `json:"totalBytes"`     // Bytes moved from and to memory since the container's monitoring group was made.
	LocalBytes     int64 `json:"localBytes"`     // Bytes moved from and to the memory of the cache's own NUMA node since then.
}

// Target is a container to look at, or another cgroup.
type Target struct {
	ID   string
	Path string // of its cgroup, below each hierarchy's root
	Fast bool   // its CPU usage is read at each look, not only now and then
	LS   bool   // its run delay is of interest
	// Memory: its memory is read as often as the node's, not only now and then.
	Memory bool
	// CPUOnly: nothing is read but its CPU time and what its quota did.
	CPUOnly bool
}
