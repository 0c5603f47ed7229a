package fakekernel

// Flavour is what a kernel is built with.
type Flavour struct {
	Name string
	V2   bool

	BurstOverQuota bool // the vendors' older patch
	DivideBurst    bool // v2 before 6.10: writing cpu.max divides the burst by 1000
	ZeroBurst      bool // some 4.19 of vendors: writing the quota does away with the burst
	Idle           bool // cpu.idle, 5.15
	Reclaim        bool // memory.reclaim, 5.19

	BVT       bool // Anolis: cpu.bvt_warp_ns
	Identity  bool // newer Anolis: cpu.identity and cpu.priority in its place
	Memory    bool // Anolis: watermarks, priorities, page cache; v2's amounts on v1
	QoSLevel  bool // openEuler: cpu.qos_level and memory.qos_level
	NoWayBack bool // openEuler 5.10: cpu.qos_level stays -1
	RUE       bool // TencentOS: cgroup.priority and what goes with it
	CFQ       bool // before 5.0: blkio.weight with its own default
	IOCost    bool // v2: io.weight; without it io.bfq.weight
}

// The flavours.

// MainlineV1 is a recent mainline kernel booted with cgroup v1.
func MainlineV1() Flavour { return Flavour{Name: "mainline v1", Idle: true} }

// MainlineV2 is a recent mainline kernel.
func MainlineV2() Flavour {
	return Flavour{Name: "mainline v2", V2: true, Idle: true, Reclaim: true, IOCost: true}
}

// OldMainlineV2 is 6.1.
func OldMainlineV2() Flavour {
	return Flavour{Name: "mainline v2 before 6.10", V2: true, Idle: true, Reclaim: true, DivideBurst: true}
}

// AnolisV1 is Alibaba Cloud Linux 3, the usual way.
func AnolisV1() Flavour {
	return Flavour{Name: "Anolis v1", BurstOverQuota: true, BVT: true, Memory: true}
}

// OldAnolisV1 is Alibaba Cloud Linux 2 on 4.19.
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

// OpenEuler is 22.03 on 5.10.
func OpenEuler() Flavour {
	return Flavour{Name: "openEuler v1", BurstOverQuota: true, QoSLevel: true, NoWayBack: true}
}

// TencentOS is OpenCloudOS or TencentOS 4 with RUE.
func TencentOS() Flavour {
	return Flavour{Name: "TencentOS v1", BurstOverQuota: true, Idle: true, RUE: true}
}

// Flavours are all of them.
func Flavours() []Flavour {
	return []Flavour{
		MainlineV1(), MainlineV2(), OldMainlineV2(), AnolisV1(), OldAnolisV1(), AnolisV2(), NewAnolisV2(), OpenEuler(), TencentOS(),
	}
}

// The vendors' switches, below the host's root.
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

// files are those of a hierarchy with these controllers.
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
