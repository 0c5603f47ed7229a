package knobs

import (
	"cmp"
	"strconv"
	"time"
)

// Knob is a control file of a cgroup, with one name for both versions of cgroups. Each knob has
// one entry in the table. A value that is wanted for a knob is a setting; see pkg/decide/qos.
type Knob uint8

// The knobs, with the types of their values.
const (
	CPUs  Knob = iota // cpuset.cpus; CPUSet
	Mems              // cpuset.mems; CPUSet
	Quota             // CFS quota per period; CPUQuota

	Burst  // CFS burst per period; CPUBurst
	Weight // CPU weight; Shares
	Idle   // SCHED_IDLE for the whole group; Number

	BVT            // Anolis: cpu.bvt_warp_ns; Number
	CPUIdentity    // newer Anolis: cpu.identity; Number
	CPUPriority    // newer Anolis: cpu.priority; Number
	CPUQoS         // openEuler: cpu.qos_level; Number
	CgroupPriority // TencentOS: cgroup.priority; Number
	CPUOffline     // TencentOS: cpu.offline; Number
	BTShares       // TencentOS: cpu.bt_shares; Shares

	MemoryMax    // hard limit; Bytes
	MemoryMin    // memory protected from all reclaim; Bytes
	MemoryLow    // memory that is reclaimed last; Bytes
	MemoryHigh   // usage above which the group reclaims its own memory; Bytes
	SoftLimit    // v1: usage to which the group is reclaimed first when the node is short; Bytes
	OOMGroup     // all processes are killed together; Number
	SwapMax      // v2: memory that may be in swap; Bytes
	Swappiness   // v1: how readily memory is swapped out; Number
	WmarkRatio   // Anolis: memory.wmark_ratio; Number
	WmarkScale   // Anolis: memory.wmark_scale_factor; Number
	WmarkMinAdj  // Anolis: memory.wmark_min_adj; Number
	MemPriority  // Anolis: memory.priority; Number
	PriorityOOM  // Anolis: memory.use_priority_oom; Number
	MemoryQoS    // openEuler: memory.qos_level; Number
	PageCache    // Anolis: memory.pagecache_limit.size; Bytes
	PageCacheMax // TencentOS: memory.pagecache.max_ratio; Number

	IOWeight  // default and by device; PerDevice
	BFQWeight // v2: the same for disks with the scheduler bfq; PerDevice
	IOMax     // throttles by device; PerDevice
	IOClass   // what becomes of the priority class of I/O; IOPolicy

	NetClass // v1: net_cls.classid; Number

	Knobs // number of knobs
)

// String is the knob's name.
func (k Knob) String() string { return table[k].name }

// MarshalText writes the knob's name.
func (k Knob) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Values are the values of some knobs of one cgroup; nil where a knob is not among them.
type Values [Knobs]Value

// Number is a level, a switch or a percentage, as the kernel's documentation of the knob
// defines it.
type Number int64

func (n Number) String() string { return strconv.FormatInt(int64(n), 10) }

// Bytes is an amount of memory. Max stands for no limit.
type Bytes int64

// Max is the amount that limits nothing.
const Max Bytes = -1

// Compare returns a negative number if b is less than c, a positive one if it is more, and 0 if
// they are equal.
func (b Bytes) Compare(c Bytes) int {
	switch {
	case b < 0 && c < 0:
		return 0
	case b < 0:
		return 1
	case c < 0:
		return -1
	}
	return cmp.Compare(b, c)
}

func (b Bytes) String() string {
	if b < 0 {
		return "max"
	}
	return strconv.FormatInt(int64(b), 10) + " bytes"
}

// CPUBurst is how much CPU time above the quota may be used in a period. It comes from quota
// that earlier periods left unused.
type CPUBurst time.Duration

func (b CPUBurst) String() string { return time.Duration(b).String() + " a period" }

// Shares is a CPU weight in the units of v1's cpu.shares, from MinShares to MaxShares;
// 1024 is one CPU's request.
type Shares int64

// These are the kernel's bounds of cpu.shares, to which it clamps (MIN_SHARES and MAX_SHARES in
// kernel/sched/sched.h), and the value of a new cgroup.
const (
	MinShares     Shares = 2
	MaxShares     Shares = 262144
	DefaultShares Shares = 1024
)

// RequestShares is what the kubelet gives for a CPU request in thousandths of a CPU
// (MilliCPUToShares in Kubernetes' pkg/kubelet/cm).
func RequestShares(milli int64) Shares {
	const enough = 1e9 // far from overflow: no machine has a million CPUs
	return min(max(Shares(min(milli, enough)*1024/1000), MinShares), MaxShares)
}

func (s Shares) String() string { return strconv.FormatInt(int64(s), 10) + " shares" }

// IOPolicy is a policy of the kernel's block/blk-ioprio.c, such as IdleIO. It may be one that this
// version does not know.
type IOPolicy string

// These are the policy of a new cgroup, and the one that puts all of a cgroup's I/O into the idle
// class, write-back included.
const (
	SameIO IOPolicy = "no-change"
	IdleIO IOPolicy = "idle"
)

func (p IOPolicy) String() string { return string(p) }

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
