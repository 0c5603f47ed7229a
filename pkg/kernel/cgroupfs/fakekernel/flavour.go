package fakekernel

// Flavour says which kernel to imitate.
type Flavour struct {
	Name string
	V2   bool

	BurstOverQuota bool // the vendors' older patch, which allows a burst above the quota
	DivideBurst    bool // cgroup v2 before 6.10: a write of cpu.max divides the burst by 1000
	ZeroBurst      bool // some vendors' 4.19: a write of the quota sets the burst to 0
	Idle           bool // cpu.idle, from 5.15
	Reclaim        bool // memory.reclaim, from 5.19
	NoSwap         bool // cgroup v2 without CONFIG_SWAP, or booted with swapaccount=0

	BVT       bool // Anolis: cpu.bvt_warp_ns
	Identity  bool // newer Anolis: cpu.identity and cpu.priority, in place of cpu.bvt_warp_ns
	Memory    bool // Anolis: watermarks, priorities and page cache limits; also v2's memory amounts on v1
	QoSLevel  bool // openEuler: cpu.qos_level and memory.qos_level
	NoWayBack bool // openEuler 5.10: a cpu.qos_level of -1 can't be raised again
	RUE       bool // TencentOS: cgroup.priority and the files that depend on it
	CFQ       bool // before 5.0: blkio.weight with a default of its own
	IOCost    bool // cgroup v2: io.weight
	BFQ       bool // cgroup v2: io.bfq.weight
	IOPrio    bool // io.prio.class, from 5.14
}

// MainlineV1 is a recent mainline kernel booted with cgroup v1.
func MainlineV1() Flavour { return Flavour{Name: "mainline v1", Idle: true, IOPrio: true} }

// MainlineV2 is a recent mainline kernel with cgroup v2.
func MainlineV2() Flavour {
	return Flavour{Name: "mainline v2", V2: true, Idle: true, Reclaim: true, IOCost: true, IOPrio: true}
}

// OldMainlineV2 is mainline 6.1 with cgroup v2 and the scheduler BFQ.
func OldMainlineV2() Flavour {
	return Flavour{Name: "mainline v2 before 6.10", V2: true, Idle: true, Reclaim: true, DivideBurst: true, IOCost: true, BFQ: true}
}

// AnolisV1 is Alibaba Cloud Linux 3 with cgroup v1, its default.
func AnolisV1() Flavour {
	return Flavour{Name: "Anolis v1", BurstOverQuota: true, BVT: true, Memory: true}
}

// OldAnolisV1 is Alibaba Cloud Linux 2, with kernel 4.19.
func OldAnolisV1() Flavour {
	return Flavour{Name: "Anolis 4.19 v1", BurstOverQuota: true, ZeroBurst: true, BVT: true, Memory: true, CFQ: true}
}

// AnolisV2 is Alibaba Cloud Linux 3 with cgroup v2.
func AnolisV2() Flavour {
	return Flavour{Name: "Anolis v2", V2: true, BurstOverQuota: true, DivideBurst: true, BVT: true, Memory: true, Reclaim: true, IOCost: true}
}

// NewAnolisV2 is Anolis 23.
func NewAnolisV2() Flavour {
	return Flavour{Name: "Anolis 23 v2", V2: true, DivideBurst: true, Idle: true, Identity: true, Memory: true, Reclaim: true, IOCost: true}
}

// OpenEuler is openEuler 22.03, with kernel 5.10.
func OpenEuler() Flavour {
	return Flavour{Name: "openEuler v1", BurstOverQuota: true, QoSLevel: true, NoWayBack: true}
}

// TencentOS is OpenCloudOS or TencentOS 4, with RUE.
func TencentOS() Flavour {
	return Flavour{Name: "TencentOS v1", BurstOverQuota: true, Idle: true, RUE: true}
}

// Flavours lists all of them.
func Flavours() []Flavour {
	return []Flavour{
		MainlineV1(), MainlineV2(), OldMainlineV2(), AnolisV1(), OldAnolisV1(), AnolisV2(), NewAnolisV2(), OpenEuler(), TencentOS(),
	}
}

// These are the vendors' switches, as paths below the host's root.
const (
	IdentitySwitch  = "proc/sys/kernel/sched_group_identity_enabled"
	CPUQoSSwitch    = "proc/sys/kernel/cpu_qos"
	MemoryQoSSwitch = "proc/sys/vm/memcg_qos_enable"
	PageCacheSwitch = "sys/kernel/mm/pagecache_limit/enabled"
)

func (f Flavour) gates() []string {
	var all []string
	if f.BVT || f.Identity {
		all = append(all, IdentitySwitch)
	}
	if f.Memory {
		all = append(all, PageCacheSwitch)
	}
	if f.QoSLevel {
		all = append(all, MemoryQoSSwitch)
	}
	if f.RUE {
		all = append(all, CPUQoSSwitch)
	}
	return all
}

func (f Flavour) defaultWeight() int64 {
	if f.CFQ {
		return 500
	}
	return 100
}

// files returns the files of a hierarchy with these controllers.
func (f Flavour) files(controllers []string) map[string]file {
	all := map[string]file{}
	f.core(all, controllers)
	for _, controller := range controllers {
		f.usageFiles(all, controller)
		switch controller {
		case "cpuset":
			f.cpusetFiles(all)
		case "cpu":
			f.cpuFiles(all)
			f.identityFiles(all)
		case "memory":
			f.memoryFiles(all)
			f.vendorMemory(all)
		case "io", "blkio":
			f.ioFiles(all)
		case "net_cls":
			all["net_cls.classid"] = plain(func(g *group) *int64 { return &g.classID }, 0, 1<<32-1)
		}
	}
	return all
}
