package knobs

// table describes every knob. Only pkg/kernel/cgroupfs knows their files and the differences
// between kernel versions.
var table = [Knobs]properties{
	CPUs: {name: "cpuset.cpus", kind: cpuSet, levels: inContainers, slow: never, local: true, placement: true, runtime: CPUsField},
	Mems: {name: "cpuset.mems", kind: cpuSet, levels: inContainers, slow: always, local: true, placement: true, runtime: MemsField},

	Quota:  {name: "cpu.quota", kind: cpuQuota, levels: everywhere, slow: never, local: true, placement: true, runtime: QuotaField, kubelet: true, systemd: true},
	Burst:  {name: "cpu.burst", kind: cpuBurst, levels: inPods, slow: never, local: true, height: -3, blocksResize: true},
	Weight: {name: "cpu.weight", kind: shares, levels: everywhere, slow: never, runtime: SharesField, kubelet: true, systemd: true},
	Idle:   {name: "cpu.idle", kind: number, levels: onPods, slow: never, outermost: true, blocksResize: true},

	BVT:            {name: "cpu.bvt_warp_ns", kind: number, levels: inPods, slow: never, priority: moreIsHigher, groupIdentity: true, expels: true},
	CPUIdentity:    {name: "cpu.identity", kind: number, levels: inPods, slow: never, priority: moreIsHigher, groupIdentity: true, expels: true},
	CPUPriority:    {name: "cpu.priority", kind: number, levels: inPods, slow: never, priority: moreIsHigher, groupIdentity: true},
	CPUQoS:         {name: "cpu.qos_level", kind: number, levels: inPods, slow: never, priority: moreIsHigher, inherited: true, expels: true},
	CgroupPriority: {name: "cgroup.priority", kind: number, levels: inPods, slow: never, priority: moreIsLower, inherited: true},
	CPUOffline:     {name: "cpu.offline", kind: number, levels: inPods, slow: never, priority: moreIsLower},
	BTShares:       {name: "cpu.bt_shares", kind: shares, levels: inPods, slow: never},

	MemoryMax:  {name: "memory.max", kind: amount, levels: everywhere, slow: whenLowered, local: true, runtime: MemoryLimitField, kubelet: true, systemd: true},
	MemoryMin:  {name: "memory.min", kind: amount, levels: everywhere, slow: never, local: true, height: -3, runtime: UnifiedField, kubelet: true, systemd: true, deferred: true},
	MemoryLow:  {name: "memory.low", kind: amount, levels: everywhere, slow: never, local: true, height: -2, runtime: UnifiedField, kubelet: true, systemd: true, deferred: true},
	MemoryHigh: {name: "memory.high", kind: amount, levels: inContainers, slow: whenLowered, local: true, height: -1, runtime: UnifiedField, kubelet: true, systemd: true, deferred: true},
	SoftLimit:  {name: "memory.soft_limit", kind: amount, levels: inContainers, slow: never, height: -1},
	OOMGroup:   {name: "memory.oom.group", kind: number, levels: inContainers, slow: never, local: true, systemd: true},
	SwapMax:    {name: "memory.swap.max", kind: amount, levels: inContainers, slow: never, local: true, systemd: true},
	Swappiness: {name: "memory.swappiness", kind: number, levels: inContainers, slow: never, local: true, inherited: true},

	WmarkRatio:   {name: "memory.wmark_ratio", kind: percent, levels: inPods, slow: never},
	WmarkScale:   {name: "memory.wmark_scale_factor", kind: number, levels: inPods, slow: never},
	WmarkMinAdj:  {name: "memory.wmark_min_adj", kind: number, levels: inPods, slow: never, inherited: true},
	MemPriority:  {name: "memory.priority", kind: number, levels: inPods, slow: never},
	PriorityOOM:  {name: "memory.use_priority_oom", kind: number, levels: abovePods, slow: never},
	MemoryQoS:    {name: "memory.qos_level", kind: number, levels: inPods, slow: never, inherited: true},
	PageCache:    {name: "memory.pagecache_limit", kind: amount, levels: inContainers, slow: whenLowered},
	PageCacheMax: {name: "memory.pagecache.max_ratio", kind: percent, levels: inContainers, slow: always},

	IOWeight:  {name: "io.weight", kind: weights, levels: everywhere, slow: always, systemd: true},
	BFQWeight: {name: "io.bfq.weight", kind: weights, levels: everywhere, slow: always, systemd: true},
	IOMax:     {name: "io.max", kind: throttles, levels: inContainers, slow: always, systemd: true},
	IOClass:   {name: "io.prio.class", kind: policy, levels: inContainers, slow: never, local: true},

	NetClass: {name: "net_cls.classid", kind: number, levels: inContainers, slow: never},
}

// properties are true of a knob on every kernel.
type properties struct {
	name   string
	kind   *kind
	levels levels // levels of the cgroups in which Sluice sets it
	slow   slowness

	// height is the rank of the knob among those that bound each other in one cgroup, from the
	// lowest: min ≤ low ≤ high ≤ max, burst ≤ quota. It is 0 for the highest of them and for
	// all other knobs.
	height int8
	// outermost is set if the knob must be set after everything else and reset before it. The
	// kernel refuses a weight while cpu.idle is 1.
	outermost bool
	priority  direction

	// local is set if the knob limits or protects the processes of one level of cgroups only.
	// Other knobs rank a cgroup among its siblings, or apply to everything below it.
	local bool
	// inherited is set if the kernel gives a new cgroup its parent's value, or shows the
	// parent's where that is stricter.
	inherited bool
	// blocksResize is set if the kernel may refuse the quota or the weight that the kubelet
	// writes in a resize while the knob is set.
	blocksResize bool
	// placement is set if the placement of containers on CPUs and memory nodes writes the knob
	// too.
	placement bool

	runtime RuntimeField
	kubelet bool // the kubelet writes it in pods' and classes' cgroups (pkg/kubelet/cm in Kubernetes; min, low and high with its MemoryQoS)
	systemd bool // systemd writes it whenever it writes any property of a scope
	// deferred is set if the kubelet's MemoryQoS, which is off by default, may own the knob. A
	// value from another program that was there before Sluice's first write is then left alone.
	deferred bool

	groupIdentity bool // it is part of Anolis' group identity
	expels        bool // its value -1 keeps the cgroup off CPUs that others want, and off the SMT siblings beside them
}

// levels is a set of levels.
type levels uint8

const (
	onClasses    levels = 1 << ClassLevel
	onPods       levels = 1 << PodLevel
	inContainers levels = 1 << ContainerLevel
	abovePods           = onClasses | onPods
	inPods              = onPods | inContainers
	everywhere          = onClasses | onPods | inContainers
)

// direction is the meaning of a CPU priority's larger value.
type direction uint8

const (
	noPriority direction = iota
	moreIsHigher
	moreIsLower
)

// slowness says which writes the kernel may take long over:
//
//   - cpuset.mems moves the pages of all processes (cpuset_write_resmask in
//     kernel/cgroup/cpuset.c waits for them);
//   - memory.max and memory.high, before Linux 6.16, and v1's limit reclaim what is
//     above them (memory_high_write in mm/memcontrol.c), as do limits of page cache;
//   - io.max and io.weight may freeze the disk's queue (blk_mq_freeze_queue), which
//     waits for what a slow disk has in hand.
//
// The others set numbers, under locks that are held for as long (tg_set_cfs_bandwidth,
// sched_group_set_shares, memory_min_write and the like). A write of cpuset.cpus has its
// effect before it waits for pages, and pkg/kernel/cgroupfs returns then.
type slowness uint8

const (
	never slowness = 1 + iota
	whenLowered
	always
)

// RuntimeField is the field for a knob's value among a container's resources in the OCI runtime
// specification and in NRI's messages.
type RuntimeField uint8

// These are the fields.
const (
	NoField          RuntimeField = iota // runtimes don't know the knob
	CPUsField                            // cpu.cpus
	MemsField                            // cpu.mems
	QuotaField                           // cpu.quota and cpu.period
	SharesField                          // cpu.shares
	MemoryLimitField                     // memory.limit
	UnifiedField                         // unified, on cgroup v2 alone; its key is the knob's name
)

// SetAt reports whether Sluice sets the knob in cgroups of a level.
func (k Knob) SetAt(l Level) bool { return table[k].levels&(1<<l) != 0 }

// RuntimeField returns the field in which a runtime can set the knob.
func (k Knob) RuntimeField() RuntimeField { return table[k].runtime }

// Recorded reports whether runtimes record the knob for each container, whoever set it, and
// write it with each update.
func (k Knob) Recorded() bool {
	field := table[k].runtime
	return field != NoField && field != UnifiedField
}

// Local reports whether the knob limits or protects the processes of one level of cgroups
// alone, so that a container with two levels needs it in both.
func (k Knob) Local() bool { return table[k].local }

// Inherited reports whether a new cgroup may show the value that its parent has.
func (k Knob) Inherited() bool { return table[k].inherited }

// BlocksResize reports whether the kernel may refuse what the kubelet writes in a resize while
// the knob is set.
func (k Knob) BlocksResize() bool { return table[k].blocksResize }

// Placement reports whether the placement of containers on CPUs and memory nodes writes the
// knob, too.
func (k Knob) Placement() bool { return table[k].placement }

// OriginalIsAll reports whether the knob's original value is always all that its parent has, so
// that a restore needs no record of it.
func (k Knob) OriginalIsAll() bool { return table[k].kind == cpuSet }

// Deferred reports whether a value from another program, found before Sluice's first write, is
// left alone, since the kubelet's MemoryQoS feature may have written it.
func (k Knob) Deferred() bool { return table[k].deferred }

// GroupIdentity reports whether the knob is part of Anolis' group identity.
func (k Knob) GroupIdentity() bool { return table[k].groupIdentity }

// Expels reports whether the knob's value -1 keeps a cgroup off CPUs that others want, and
// off the SMT siblings beside them.
func (k Knob) Expels() bool { return table[k].expels }

// BySystemd lists the knobs that systemd writes, with the kernel's default where it was
// told none, whenever it writes any property of a container's scope
// (cgroup_context_apply in systemd's core/cgroup.c).
func BySystemd() []Knob {
	var all []Knob
	for k := range Knobs {
		if table[k].systemd {
			all = append(all, k)
		}
	}
	return all
}

// MayTakeLong reports whether the kernel may take long to carry out a change.
func (c *Change) MayTakeLong() bool {
	switch table[c.Knob].slow {
	case always:
		return true
	case whenLowered:
		from, known := c.From.(Bytes)
		to, amount := c.To.(Bytes)
		return !known || !amount || to.Compare(from) < 0
	}
	return false
}
