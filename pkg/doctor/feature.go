package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// mechanism is one implementation of a feature; it needs all of its knobs.
type mechanism struct {
	knobs []knobs.Knob
	what  string // description, in addition to the files' names
	level Level
	do    string
}

// feature is something that a pod can request, with its mechanisms in order of preference.
type feature struct {
	name string
	ways []mechanism
	none Finding // the finding if no mechanism works
}

// on lists the kinds of cgroups on which Sluice sets at least one of the feature's knobs.
func (f *feature) on() (kinds []string) {
	for _, kind := range []struct {
		level knobs.Level
		name  string
	}{{knobs.PodLevel, "pod"}, {knobs.ContainerLevel, "container"}} {
		if slices.ContainsFunc(f.ways, func(m mechanism) bool {
			return slices.ContainsFunc(m.knobs, func(k knobs.Knob) bool { return k.SetAt(kind.level) })
		}) {
			kinds = append(kinds, kind.name)
		}
	}
	return kinds
}

func by(what string, knobs ...knobs.Knob) mechanism { return mechanism{knobs: knobs, what: what} }

// instead returns a mechanism that is not the preferred one.
func instead(do, what string, knobs ...knobs.Knob) mechanism {
	return mechanism{knobs, what, Note, do}
}

// evaluate returns a finding about the first mechanism that works.
func (n *node) evaluate(f feature) Finding {
	var unclear []string
	for _, way := range f.ways {
		if !slices.ContainsFunc(way.knobs, func(k knobs.Knob) bool { return !n.Features.Has(k) }) {
			what := n.files(way.knobs)
			if way.what != "" {
				what += ": " + way.what
			}
			return Finding{Name: f.name, Level: way.level, What: what, Do: way.do, On: f.on()}
		}
		for _, k := range way.knobs {
			if feature := n.Features.Knobs[k]; feature.State == knobs.Inconclusive {
				unclear = append(unclear, fmt.Sprintf("%s: %s", k, feature.Why))
			}
		}
	}
	if unclear != nil {
		return note(f.name, "it could not be tried: "+some(unclear), "run sluice doctor again when that has changed; everything else could be tried")
	}
	missing := f.none
	missing.Name = f.name
	for _, way := range f.ways { // a cause that the user can remove goes into the finding
		for _, k := range way.knobs {
			if feature := &n.Features.Knobs[k]; feature.Cause != "" {
				missing.Do = k.String() + ": " + feature.Why
			}
		}
	}
	return missing
}

// files lists the files of knobs, with the version of their hierarchy.
func (n *node) files(knobs []knobs.Knob) string {
	names := make([]string, len(knobs))
	for i, k := range knobs {
		names[i] = n.Features.Knobs[k].File
	}
	version := " (v1)"
	if n.Features.Knobs[knobs[0]].V2 {
		version = " (v2)"
	}
	return strings.Join(names, ", ") + version
}

// probed reports whether probing gave a result for any knob.
func (n *node) probed() bool {
	if n.Features == nil {
		return false
	}
	for k := range knobs.Knobs {
		if n.Features.Knobs[k].State != knobs.Inconclusive {
			return true
		}
	}
	return false
}

// all checks features. It returns nothing if nothing could be probed, which cpuFeatures
// reports.
func (n *node) all(features ...feature) []Finding {
	if !n.probed() {
		return nil
	}
	findings := make([]Finding, len(features))
	for i, f := range features {
		findings[i] = n.evaluate(f)
	}
	return findings
}

const vendors = "the kernels of Anolis OS and Alibaba Cloud Linux, openEuler, TencentOS and OpenCloudOS have it"

func (n *node) cpuFeatures() []Finding {
	if !n.probed() {
		why := "the cgroup tree is not there"
		if n.FeaturesErr != nil {
			why = oneLine(n.FeaturesErr)
		}
		return []Finding{warn("features", "what the kernel has could not be tried: "+why, "run sluice doctor as root, on the node itself or with its cgroup tree writable")}
	}
	burst := "at most 100 % of the quota"
	if n.Features.BurstOverQuota {
		burst = "more than 100 % of the quota too"
	}
	findings := n.all(
		feature{"cpusets", []mechanism{by("", knobs.CPUs, knobs.Mems)},
			fail("", "no container can have CPUs of its own", "mount or enable the cpuset controller")},
		feature{"quota", []mechanism{by("", knobs.Quota)},
			warn("", "not available: the quota of pinned containers cannot be lifted", "a kernel with CONFIG_CFS_BANDWIDTH")},
		feature{"weight", []mechanism{by("", knobs.Weight)},
			warn("", "not available: pods have no CPU priorities", "mount or enable the cpu controller")},
		feature{"burst", []mechanism{by(burst, knobs.Burst)},
			note("", "not available: containers are throttled at their limit", "Linux 5.14 brings it; Anolis OS and Alibaba Cloud Linux have it in 4.19 and 5.10")},
		n.identity(),
	)
	if last := &findings[len(findings)-1]; last.Level > OK { // no vendor's mechanism replaces it
		findings = append(findings, n.evaluate(feature{"idle", []mechanism{by("BestEffort pods alone: the kubelet writes the weight of others", knobs.Idle)},
			note("", "not available: batch pods have the lowest weight instead", "Linux 5.15 brings it")}))
	}
	return findings
}

func (n *node) identity() feature {
	const expels = "keeps SMT siblings of high classes free of the lowest; excludes core scheduling"
	f := feature{"group identity", []mechanism{
		by(expels, knobs.BVT),
		by(expels, knobs.CPUIdentity, knobs.CPUPriority),
		by(expels, knobs.CPUIdentity),
		by("", knobs.CPUPriority),
		by("the lowest, normal, and levels above where the kernel has them", knobs.CPUQoS),
		by("the lowest and normal; higher classes by weight", knobs.CgroupPriority),
		by("the lowest and normal; higher classes by weight", knobs.CPUOffline),
		instead("no action needed; "+vendors, "idle for BestEffort pods, weights for others; SMT siblings are not kept free", knobs.Idle, knobs.Weight),
		instead("Linux 5.15 brings cpu.idle; "+vendors, "weights alone", knobs.Weight),
	}, warn("", "not available: pods have no CPU priorities", "mount or enable the cpu controller")}
	if knobs.GroupIdentityCrashes(n.text("proc/sys/kernel/osrelease")) {
		f.ways = slices.DeleteFunc(f.ways, func(m mechanism) bool {
			return slices.ContainsFunc(m.knobs, knobs.Knob.GroupIdentity)
		})
	}
	return f
}

func (n *node) memoryFeatures() []Finding {
	const v2 = "cgroup v2 brings it"
	reclaim := n.Features != nil && n.Features.Reclaim
	emulated := func(f feature, what string) feature {
		if reclaim {
			native, _, _ := strings.Cut(f.none.Do, ";")
			f.none = Finding{Level: Note, What: what, Do: "no action needed; " + native, On: []string{"container"}}
		}
		return f
	}
	return n.all(
		feature{"limit", []mechanism{by("", knobs.MemoryMax)},
			warn("", "not available: batch pods have no memory limit", "mount or enable the memory controller")},
		feature{"min, low", []mechanism{
			by("", knobs.MemoryMin, knobs.MemoryLow),
			instead("Linux 4.18 on cgroup v2 brings memory.min", "low alone", knobs.MemoryLow),
			instead("Linux 4.18 on cgroup v2 brings both", "min alone", knobs.MemoryMin),
		}, note("", "not available: nothing protects a container's memory from reclaim", v2+"; Anolis OS and Alibaba Cloud Linux have it on v1")},
		n.high(),
		feature{"swap limit", []mechanism{
			by("", knobs.SwapMax),
			instead("cgroup v2 brings memory.swap.max", "the node still swaps when hardly any page cache is left", knobs.Swappiness),
		}, note("", "not available: nothing keeps a container's memory out of swap", "a kernel with CONFIG_SWAP, booted without swapaccount=0")},
		emulated(feature{"watermark", []mechanism{
			by("the kernel reclaims in the background", knobs.WmarkRatio, knobs.WmarkScale),
			by("the kernel reclaims in the background, and chooses how much", knobs.WmarkRatio),
		}, note("", "none: a container reclaims only at its limit", "the kernels of Anolis OS and Alibaba Cloud Linux have it; Linux 5.19 on cgroup v2 lets Sluice emulate it")},
			"emulated: Sluice reclaims through memory.reclaim (v2), as pressure allows"),
		feature{"watermark offset", []mechanism{by("", knobs.WmarkMinAdj)},
			note("", "none: memory.low and the node's own watermarks are used instead", "no action needed; the kernels of Anolis OS and Alibaba Cloud Linux have it")},
		feature{"OOM group", []mechanism{by("", knobs.OOMGroup)},
			note("", "not available: the kernel kills one process of a container at a time", "Linux 4.19 on cgroup v2 brings it")},
		feature{"OOM priority", []mechanism{
			by("", knobs.MemPriority, knobs.PriorityOOM),
			by("", knobs.MemPriority),
			by("two levels", knobs.MemoryQoS),
		}, note("", "not available: Sluice uses oom_score_adj instead", "no action needed; the kernels of Anolis OS and openEuler have it")},
		emulated(feature{"page-cache limit", []mechanism{by("", knobs.PageCache), by("", knobs.PageCacheMax)},
			note("", "none: page cache is bounded by the memory limit alone", "the kernels of Anolis OS and TencentOS have it; Linux 5.19 on cgroup v2 lets Sluice emulate it")},
			"emulated: Sluice reclaims through memory.reclaim (v2)"),
	)
}

// high checks memory.high, which has been seen to stall its processes before Linux 5.9.
func (n *node) high() feature {
	const soft = "memory above it is reclaimed only when the node is short"
	f := feature{"high", []mechanism{
		by("", knobs.MemoryHigh),
		instead("cgroup v2 brings memory.high", soft, knobs.SoftLimit),
	}, note("", "not available: only the limit bounds a container", "cgroup v2 brings it")}
	if before(n.text("proc/sys/kernel/osrelease"), 5, 9) {
		f.ways = []mechanism{instead("Linux 5.9 on cgroup v2 brings a memory.high that stalls nobody", soft, knobs.SoftLimit)}
		f.none = note("", "not used: memory.high of this kernel can stall its processes", "Linux 5.9 fixes it")
	}
	return f
}

// before reports whether a release is older than major.minor; it returns false for a release
// that can't be parsed.
func before(release string, major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(release, "%d.%d", &a, &b); err != nil {
		return false
	}
	return a < major || a == major && b < minor
}

func (n *node) ioFeatures() []Finding {
	throttles := by("", knobs.IOMax)
	if n.Features != nil && !n.Features.Knobs[knobs.IOMax].V2 {
		throttles = instead("cgroup v2 throttles buffered writes too", "buffered writes escape it on v1", knobs.IOMax)
	}
	heeded := "heeded by disks with bfq"
	if n.Features != nil && n.Features.Knobs[knobs.IOWeight].V2 {
		heeded = "heeded by disks with io.cost"
	}
	return n.all(
		feature{"I/O weight", []mechanism{
			by("heeded by disks with io.cost or bfq", knobs.IOWeight, knobs.BFQWeight),
			by(heeded, knobs.IOWeight),
			by("heeded by disks with bfq", knobs.BFQWeight),
		},
			note("", "not available: pods have no I/O weight", "on cgroup v2, a kernel with CONFIG_BLK_CGROUP_IOCOST, and ioCost: {mode: on} in the configuration; else the bfq scheduler for the disks: echo bfq > /sys/block/DISK/queue/scheduler")},
		feature{"I/O throttles", []mechanism{throttles},
			note("", "not available: containers' I/O cannot be limited", "mount or enable the io controller (blkio on v1), on a kernel with CONFIG_BLK_DEV_THROTTLING")},
		feature{"network class", []mechanism{by("", knobs.NetClass)},
			note("", "not available: packets carry no class of their container", "mount v1's net_cls where a traffic shaper needs it: mount -t cgroup -o net_cls none /sys/fs/cgroup/net_cls")},
	)
}
