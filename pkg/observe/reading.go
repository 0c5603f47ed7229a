package observe

import "time"

// Reading holds the kernel's counters at one measurement. The Mono of each part is the
// monotonic time at which it was read. It is zero if the part was not read, and the meter then
// keeps what it knows.
type Reading struct {
	Mono time.Duration // monotonic time of this measurement since any fixed point; not zero
	Wall time.Time     // wall clock of this measurement

	CPU      NodeCPUTimes
	Pressure PressureTotals
	Memory   MemoryCounters
	Load     Gauge // number of tasks; see Load
	Disk     Gauge // share in use, 0 to 1; see Disk

	// Containers holds all containers that exist, including those of which nothing was read. A
	// container that is missing has ended.
	Containers []ContainerReading
	// Same is set if Containers lists the containers of the reading before in the same order, each once, and something
	// was read of none but those whose indexes are in Read. One may be in Read twice.
	Same bool
	Read []int
}

// Gauge is a value that does not come from a counter.
type Gauge struct {
	Mono  time.Duration // time of its reading; 0 if it was not read
	Value float64
}

// NodeCPUTimes is the CPU time of every CPU since boot.
type NodeCPUTimes struct {
	Mono time.Duration
	CPUs []CPUTime // by CPU number
}

// CPUTime is one CPU's time since boot. On a tickless CPU the kernel measures idle time by the
// clock and the rest by ticks, and IOWait can go back (see get_iowait_time in fs/proc/stat.c).
type CPUTime struct {
	Online bool
	Busy   time.Duration // user, nice, system and interrupts; guests are included in user and nice
	Idle   time.Duration
	IOWait time.Duration // counts as idle
	Steal  time.Duration // kept by a hypervisor
}

// Stall is one line of a pressure file (Documentation/accounting/psi.rst).
type Stall struct {
	Total time.Duration
	Avg10 float64 // 0 to 1
}

// PressureTotals is the content of the pressure files. A resource without a file stays zero.
type PressureTotals struct {
	Mono       time.Duration
	CPU        Stall // some task waited
	Memory     Stall // some task waited
	MemoryFull Stall
	IO         Stall // some task waited
	IOFull     Stall
}

// MemoryCounters is the memory of the machine, in bytes and pages.
type MemoryCounters struct {
	Mono                                     time.Duration
	Total, Available, Free, Anon, Cache, Low int64
	HugePages                                int64 // size of the huge page pool, which Total does not include
	DirectScans                              int64 // pages since boot
	SwapTotal, SwapFree                      int64
	SwapWritten                              int64 // bytes since boot that were written to swap areas; what zswap holds is not
	SwapInMemory                             bool  // all swap areas are in memory (zram)
	SwapHeld                                 int64 // memory that zram areas occupy
	Nodes                                    []NUMACounters
}

// NUMACounters is the memory of one NUMA node, in bytes and pages.
type NUMACounters struct {
	Total, Free, Cache int64
	DirectScans        int64 // pages since boot; 0 if the kernel does not count them by node
}

// ContainerReading holds the counters of one container's cgroup.
type ContainerReading struct {
	ID         string
	CPU        CPUCounters
	Throttling ThrottlingCounters
	Pressure   PressureTotals
	RunDelay   DelayCounter
	Memory     ContainerMemoryCounters
	Swap       SwapCounters
	IO         IOCounters
	Cache      CacheCounters
	CPI        CPICounters
}

// CPUCounters is a cgroup's CPU time.
type CPUCounters struct {
	Mono  time.Duration
	Usage time.Duration
}

// ThrottlingCounters count the throttling by a cgroup's CFS quota.
type ThrottlingCounters struct {
	Mono               time.Duration
	Periods, Throttled int64
	Time               time.Duration
}

// DelayCounter is how long a container's threads waited for a CPU; see Delays.
type DelayCounter struct {
	Mono  time.Duration
	Total time.Duration
}

// ContainerMemoryCounters is the memory of a cgroup and those below it, in bytes and pages.
type ContainerMemoryCounters struct {
	Mono                                    time.Duration
	Current, Anon, ActiveFile, InactiveFile int64
	Refaults, DirectScans, OOMKills         int64
}

// SwapCounters are a cgroup's memory in swap, in bytes.
type SwapCounters struct {
	Mono       time.Duration
	Used, Free int64 // Free is how much more may go there by the cgroup's own limit
}

// IOCounters count the bytes that a container moved from and to block devices.
type IOCounters struct {
	Mono          time.Duration
	Read, Written int64
}

// CacheCounters are what resctrl counts for a container.
type CacheCounters struct {
	Mono      time.Duration
	Occupancy int64
	L3s       []L3 // parts by L3 cache; the next reading has other memory for them
}

// CPICounters are what a container did while its cycles and instructions were counted, up to Mono.
type CPICounters struct {
	Mono                 time.Duration
	Over                 time.Duration // time that was counted
	Cycles, Instructions float64
	Used                 time.Duration // CPU time
}
