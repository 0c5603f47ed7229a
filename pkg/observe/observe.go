// Package observe describes what a node and its containers do: usage, throttling, pressure,
// memory, cache and I/O, as rates over the time since the previous measurement. It contains
// data, and the arithmetic that computes it from the kernel's counters, but no I/O.
package observe

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// SlowInterval is the time between two readings of a container's pressure, memory, I/O, run delay and
// cache, at most.
const SlowInterval = 10 * time.Second

// Snapshot is one measurement of a node. The At of each part is the time when the part was
// measured, or zero if the part is unknown. Parts are read at different intervals, so that some
// are older than others. JSON lines with one snapshot each form a recording.
type Snapshot struct {
	Now        time.Time   `json:"now"` // time of this measurement
	Node       Node        `json:"node,omitzero"`
	CPUs       []CPU       `json:"cpus,omitempty"` // by CPU number
	Containers []Container `json:"containers,omitempty"`
	Changes    Changes     `json:"-"`
}

// Changes tells which containers of a snapshot may differ from those of the snapshot before. With the zero value,
// all of them may.
type Changes struct {
	Number     uint64 // of the snapshot among those of its meter, from 1; 0 if a meter did not make it
	Partial    bool   // no container has come or gone since the snapshot before, and only the listed ones may have changed
	Containers []int  // indexes in Snapshot.Containers; one may be listed twice
}

// CPU is the usage of one CPU.
type CPU struct {
	Busy  float64 `json:"busy,omitempty"`  // share of the interval of Node.CPU, 0 to 1, in which it was neither idle nor waiting for I/O
	Known bool    `json:"known,omitempty"` // false if it is offline or its rate is not known yet
}

// Node is the whole machine.
type Node struct {
	CPU      NodeCPU    `json:"cpu,omitzero"`
	Pressure Pressure   `json:"psi,omitzero"`
	Memory   NodeMemory `json:"mem,omitzero"`
	Load     Load       `json:"load,omitzero"`
	Disk     Disk       `json:"disk,omitzero"`
	Steal    float64    `json:"steal,omitempty"` // number of CPUs whose time a hypervisor kept, over the interval of CPU
}

// Load is the number of tasks that run, wait for a CPU or can't be interrupted.
type Load struct {
	At    time.Time `json:"at,omitzero"`
	Tasks float64   `json:"tasks,omitempty"` // mean over 1 min from /proc/loadavg
}

// Disk is the usage of the fullest file system that holds pods' data.
type Disk struct {
	At   time.Time `json:"at,omitzero"`
	Used float64   `json:"used,omitempty"` // share in use, 0 to 1
}

// NodeCPU is the machine's CPU time.
type NodeCPU struct {
	At       time.Time         `json:"at"`
	Interval time.Duration     `json:"over"`
	Usage    workload.MilliCPU `json:"milli"`
}

// Pressure holds the shares of time (0 to 1) in which tasks waited; see
// Documentation/accounting/psi.rst. They cover the time since the previous measurement, or 10 s
// at the first one.
type Pressure struct {
	At         time.Time `json:"at"`
	CPU        float64   `json:"cpu,omitempty"` // some task waited
	Memory     float64   `json:"mem,omitempty"` // some task waited
	MemoryFull float64   `json:"memFull,omitempty"`
	IO         float64   `json:"io,omitempty"` // some task waited
	IOFull     float64   `json:"ioFull,omitempty"`
}

// NodeMemory is the machine's memory, in bytes.
type NodeMemory struct {
	At        time.Time `json:"at"`
	Total     int64     `json:"total"`               // without huge pages
	HugePages int64     `json:"hugePages,omitempty"` // size of the huge page pool in bytes
	Available int64     `json:"available"`           // the kernel's estimate of what new work can get without swapping
	Free      int64     `json:"free,omitempty"`
	Anon      int64     `json:"anon,omitempty"`
	Cache     int64     `json:"cache,omitempty"` // page cache that can be dropped: active and inactive file pages
	Low       int64     `json:"low,omitempty"`   // free memory below which background reclaim begins: the sum of the zones' low watermarks
	// Direct is the number of pages per second that tasks scanned for reclaim themselves; 0 at
	// the first measurement.
	Direct       float64    `json:"direct,omitempty"`
	SwapTotal    int64      `json:"swap,omitempty"`
	SwapFree     int64      `json:"swapFree,omitempty"`
	SwapWrites   float64    `json:"swapWrites,omitempty"`   // bytes per second that were written to swap areas; 0 at the first measurement
	SwapInMemory bool       `json:"swapInMemory,omitempty"` // all swap areas are in memory (zram)
	SwapHeld     int64      `json:"swapHeld,omitempty"`     // memory that these areas occupy for what was swapped to them
	Nodes        []NUMANode `json:"nodes,omitempty"`        // by node number; Total is 0 for a node without memory
}

// NUMANode is the memory of one NUMA node, in bytes.
type NUMANode struct {
	Total       int64   `json:"total"`
	Free        int64   `json:"free"`
	Reclaimable int64   `json:"cache,omitempty"`  // page cache
	Direct      float64 `json:"direct,omitempty"` // like that of NodeMemory; 0 on kernels that count it only for the whole machine
}

// Container is what one container does. The values are of its own cgroup.
type Container struct {
	ID       string          `json:"id"`
	CPU      ContainerCPU    `json:"cpu,omitzero"`
	Pressure Pressure        `json:"psi,omitzero"`
	RunDelay RunDelay        `json:"delay,omitzero"`
	Memory   ContainerMemory `json:"mem,omitzero"`
	Swap     ContainerSwap   `json:"swap,omitzero"`
	IO       ContainerIO     `json:"io,omitzero"`
	Cache    Cache           `json:"llc,omitzero"`
	CPI      CPI             `json:"cpi,omitzero"`
}

// ContainerCPU is the CPU usage of a container.
type ContainerCPU struct {
	At       time.Time         `json:"at"`
	Interval time.Duration     `json:"over"`
	Usage    workload.MilliCPU `json:"milli"`

	// The following fields describe the CFS quota, over the time between the present and the
	// previous StatAt. StatAt is zero if the cgroup has no file for it.
	StatAt        time.Time     `json:"statAt,omitzero"`
	Periods       int64         `json:"periods,omitempty"`       // periods that ended in the interval
	Throttled     int64         `json:"throttled,omitempty"`     // throttled periods among them
	ThrottledTime time.Duration `json:"throttledTime,omitempty"` // sum over its CPUs
}

// RunDelay is how long the threads of a container were ready to run and did not.
type RunDelay struct {
	At      time.Time `json:"at"`
	Waiting float64   `json:"waiting"` // mean number of waiting threads
}

// ContainerMemory is the memory of a container in bytes.
type ContainerMemory struct {
	At         time.Time `json:"at"`
	Current    int64     `json:"current"`
	WorkingSet int64     `json:"set"` // Current without inactive page cache, as the kubelet computes it
	Anon       int64     `json:"anon,omitempty"`
	Cache      int64     `json:"cache,omitempty"`    // page cache that can be dropped: active and inactive file pages
	Refaults   float64   `json:"refaults,omitempty"` // pages per second that were read again soon after they were dropped; 0 at the first measurement
	Direct     float64   `json:"direct,omitempty"`   // pages per second that its tasks scanned for reclaim themselves (cgroup v2, Linux 5.19); 0 at the first measurement
	OOMKills   int64     `json:"oom,omitempty"`      // kills since the container began
}

// ContainerSwap is the memory of a container that is in swap, in bytes. It is unknown on a node
// without swap.
type ContainerSwap struct {
	At   time.Time `json:"at"`
	Used int64     `json:"used,omitempty"`
	Free int64     `json:"free,omitempty"` // how much more may go there by the container's own limit
}

// ContainerIO is the block I/O of a container.
type ContainerIO struct {
	At       time.Time `json:"at"`
	ReadBPS  float64   `json:"read"` // bytes per second
	WriteBPS float64   `json:"write"`
}

// Cache is what resctrl counts for a container.
type Cache struct {
	At        time.Time `json:"at"`
	Occupancy int64     `json:"bytes"`         // bytes of last-level cache
	Bandwidth float64   `json:"bps,omitempty"` // bytes per second from and to memory; 0 at the first measurement
	L3s       []L3      `json:"l3s,omitempty"` // parts by L3 cache; must not be changed
}

// CPI is how many cycles a container needs per instruction. Contention for caches and for the bandwidth of
// memory raises it, because a thread that waits for memory counts as running. Cores of different kinds and a
// different instruction mix change it, too, so that a container is compared only with itself.
type CPI struct {
	At     time.Time         `json:"at"`
	Over   time.Duration     `json:"over"`   // time that was counted, which ended at At
	Cycles float64           `json:"cycles"` // per instruction
	Usage  workload.MilliCPU `json:"milli"`  // CPU usage over that time
}

// L3 is what resctrl counts for a container in one L3 cache and the memory behind it. A
// negative value is one that the kernel can't read now or that this machine does not count.
type L3 struct {
	ID             int   `json:"id"`             // ID of the L3 cache.
	OccupancyBytes int64 `json:"occupancyBytes"` // Bytes of the cache that the container occupies.
	TotalBytes     int64 `json:"totalBytes"`     // Bytes moved from and to memory since the container's monitoring group was made.
	LocalBytes     int64 `json:"localBytes"`     // Bytes moved from and to the memory of the cache's own NUMA node since then.
}

// Target is a container, or another cgroup, to measure.
type Target struct {
	ID   string
	Path string // path of the cgroup, below the root of each hierarchy
	Fast bool   // its CPU usage is read at each measurement, not only now and then
	LS   bool   // its run delay is measured
	// Memory is set if its memory is read as often as the node's, not only now and then.
	Memory bool
	// Waiting is set if its pressure, run delay and cache are read as often as CPU time, not only now
	// and then.
	Waiting bool
	// CPI is set if its cycles and instructions are counted for some seconds of each minute.
	CPI bool
	// CPIAlways is set with CPI if they are counted all the time and read as often as CPU time.
	CPIAlways bool
	// CPUOnly is set if nothing but its CPU time and the throttling by its quota is read.
	CPUOnly bool
}
