package knobs

import (
	"strconv"
	"time"
)

// Knob is a kernel setting of a cgroup.
type Knob uint8

// The knobs; pkg/kernel/cgroupfs knows their files.
const (
	CPUs  Knob = iota // cpuset.cpus; CPUSet
	Mems              // cpuset.mems; CPUSet
	Quota             // CFS quota per period; CPUQuota

	Burst  // CFS burst per period; CPUBurst
	Weight // CPU weight; Shares
	Idle   // SCHED_IDLE for the whole group; Number 0, 1

	BVT            // Anolis: cpu.bvt_warp_ns; Number -1..2
	CPUIdentity    // newer Anolis: cpu.identity; Number -1..1
	CPUPriority    // newer Anolis: cpu.priority; Number -1..1
	CPUQoS         // openEuler: cpu.qos_level; Number -1..2
	CgroupPriority // TencentOS: cgroup.priority; Number 0..7
	CPUOffline     // TencentOS: cpu.offline; Number 0, 1
	BTShares       // TencentOS: cpu.bt_shares; Shares

	MemoryMax    // hard limit; Bytes
	MemoryMin    // protected from all reclaim; Bytes
	MemoryLow    // reclaimed last; Bytes
	MemoryHigh   // above it the group reclaims its own; Bytes
	SoftLimit    // v1: reclaimed to this first when the node is short; Bytes
	OOMGroup     // killed together; Number 0, 1
	WmarkRatio   // Anolis: memory.wmark_ratio; Number 0..100
	WmarkScale   // Anolis: memory.wmark_scale_factor; Number 1..1000
	WmarkMinAdj  // Anolis: memory.wmark_min_adj; Number -25..50
	MemPriority  // Anolis: memory.priority; Number 0..12
	PriorityOOM  // Anolis: memory.use_priority_oom; Number 0, 1
	MemoryQoS    // openEuler: memory.qos_level; Number -1, 0
	PageCache    // Anolis: memory.pagecache_limit.size; Bytes
	PageCacheMax // TencentOS: memory.pagecache.max_ratio; Number 1..100

	IOWeight // default and by device; PerDevice
	IOMax    // throttles by device; PerDevice

	NetClass // v1: net_cls.classid; Number

	Knobs // how many there are
)

var knobNames = [...]string{
	"cpuset.cpus", "cpuset.mems", "cpu.quota",
	"cpu.burst", "cpu.weight", "cpu.idle",
	"cpu.bvt_warp_ns", "cpu.identity", "cpu.priority", "cpu.qos_level", "cgroup.priority", "cpu.offline", "cpu.bt_shares",
	"memory.max", "memory.min", "memory.low", "memory.high", "memory.soft_limit", "memory.oom.group",
	"memory.wmark_ratio", "memory.wmark_scale_factor", "memory.wmark_min_adj",
	"memory.priority", "memory.use_priority_oom", "memory.qos_level",
	"memory.pagecache_limit", "memory.pagecache.max_ratio",
	"io.weight", "io.max",
	"net_cls.classid",
}

func (k Knob) String() string { return knobNames[k] }

// MarshalText writes the knob's name.
func (k Knob) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Number is a plain number, in the unit of its knob.
type Number int64

func (n Number) String() string { return strconv.FormatInt(int64(n), 10) }

// Bytes is an amount of memory; Max is without limit.
type Bytes int64

// Max is the amount that limits nothing.
const Max Bytes = -1

func (b Bytes) String() string {
	if b < 0 {
		return "max"
	}
	return strconv.FormatInt(int64(b), 10) + " bytes"
}

// CPUBurst is how much CPU time above the quota may be used in a period, out of what
// was left in those before.
type CPUBurst time.Duration

func (b CPUBurst) String() string { return time.Duration(b).String() + " a period" }

// Shares is a CPU weight in the units of v1's cpu.shares, 2..262144; 1024 is one
// CPU's request.
type Shares int64

func (s Shares) String() string { return strconv.FormatInt(int64(s), 10) + " shares" }

// PerDevice is the lines of a file with one line a device, by device number,
// without what is the kernel's default ("default 100", "rbps=max"):
// "8:0 rbps=1048576\n8:16 wiops=100", "default 50\n8:0 200". Weights and Throttles
// write it.
type PerDevice string

func (p PerDevice) String() string {
	if p == "" {
		return "default"
	}
	return strconv.Quote(string(p))
}
