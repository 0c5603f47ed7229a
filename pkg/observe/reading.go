package observe

import "time"

// Reading is the kernel's counters at one look. Each part has the time at which it
// was read, of a clock that nobody sets (Mono); a part whose Mono is zero was not
// read, and the meter keeps what it knows of it.
type Reading struct {
	Mono time.Duration // of this look, since any fixed point; not zero
	Wall time.Time     // of this look

	CPU      NodeCPUTimes
	Pressure PressureTotals
	Memory   MemoryCounters
	Load     Gauge // tasks, see Load
	Disk     Gauge // 0..1, see Disk

	// Containers are all that there are, also those of which nothing was read: one
	// that is missing here has ended.
	Containers []ContainerReading
}

// Gauge is a value that is none of a counter's.
type Gauge struct {
	Mono  time.Duration // of its reading; 0 not read
	Value float64
}

// NodeCPUTimes is the CPU time of every CPU since boot.
type NodeCPUTimes struct {
	Mono time.Duration
	CPUs []CPUTime // by CPU number
}

// CPUTime is one CPU's time since boot. On a tickless CPU the kernel counts idle time
// by the clock and the rest by ticks, and IOWait can go back (get_iowait_load and
// fs/proc/stat.c's get_iowait_time).
type CPUTime struct {
	Online bool
	Busy   time.Duration // user, nice, system and interrupts; guests are in user and nice
	Idle   time.Duration
	IOWait time.Duration // idle too
	Steal  time.Duration // kept by a hypervisor
}

// Stall is one line of a pressure file (Documentation/accounting/psi.rst).
type Stall struct {
	Total time.Duration
	Avg10 float64 // 0..1
}

// PressureTotals is what pressure files show. A resource without a file stays zero.
type PressureTotals struct {
	Mono       time.Duration
	CPU        Stall // some
	Memory     Stall // some
	MemoryFull Stall
	IO         Stall // some
	IOFull     Stall
}

// MemoryCounters is the machine's memory, in bytes and pages.
type MemoryCounters struct {
	Mono                                     time.Duration
	Total, Available, Free, Anon, Cache, Low int64
	HugePages                                int64 // the pool of huge pages, which Total leaves out
	DirectScans                              int64 // pages since boot
	Nodes                                    []NUMACounters
}

// NUMACounters is the memory of one NUMA node, in bytes and pages.
type NUMACounters struct {
	Total, Free, Cache int64
	DirectScans        int64 // pages since boot; 0 where the node doesn't count them
}

// ContainerReading is the counters of one container's cgroup.
type ContainerReading struct {
	ID         string
	CPU        CPUCounters
	Throttling ThrottlingCounters
	Pressure   PressureTotals
	RunDelay   DelayCounter
	Memory     ContainerMemoryCounters
	IO         IOCounters
	Cache      CacheCounters
}

// CPUCounters is a cgroup's CPU time.
type CPUCounters struct {
	Mono  time.Duration
	Usage time.Duration
}

// ThrottlingCounters is what its CFS quota did.
type ThrottlingCounters struct {
	Mono               time.Duration
	Periods, Throttled int64
	Time               time.Duration
}

// DelayCounter is how long its threads waited for a CPU; see Delays.
type DelayCounter struct {
	Mono  time.Duration
	Total time.Duration
}

// ContainerMemoryCounters is a cgroup's memory with that of the cgroups below, in
// bytes and pages.
type ContainerMemoryCounters struct {
	Mono                                    time.Duration
	Current, Anon, ActiveFile, InactiveFile int64
	Refaults, DirectScans, OOMKills         int64
}

// IOCounters is the bytes that it moved from and to block devices.
type IOCounters struct {
	Mono          time.Duration
	Read, Written int64
}

// CacheCounters is what resctrl counts.
type CacheCounters struct {
	Mono      time.Duration
	Occupancy int64
	Moved     int64 // bytes from and to memory
	L3s       []L3  // each of its parts
}
