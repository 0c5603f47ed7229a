package knobs

import (
	"strconv"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
)

const (
	class     = "class.sluice.dev"
	burst     = "cpu-burst.sluice.dev"
	identity  = "cpu-identity.sluice.dev"
	memoryQoS = "memory-qos.sluice.dev"
	io        = "io.sluice.dev"

	koordClass = "koordinator.sh/qosClass"
)

// limited returns a Burstable container's resources with a CPU limit.
func limited(request, limit workload.MilliCPU) runtime.Resources {
	return runtime.Resources{CPURequest: request, CPULimit: limit}
}

// steps is a memory request in thousandths of the node's memory.
const steps = 10

// part returns a Burstable container's resources with a memory limit above its request, and a CPU
// limit if given.
func part(t *testing.T, cpu workload.MilliCPU) runtime.Resources {
	t.Helper()
	memory, err := runtime.NodeMemory()
	must(t, err)
	// The request lies in the middle of a step, because a virtual machine's memory may change by
	// some percent.
	request := memory*steps/1000 + memory/2000
	return runtime.Resources{CPURequest: 100, CPULimit: cpu, MemoryRequest: request, MemoryLimit: (request + 64*mib) / 4096 * 4096}
}

// labelled returns the pod with a label in place of its class.
func labelled(p runtime.PodSpec, key, value string) runtime.PodSpec {
	p.Labels = map[string]string{key: value}
	return p
}

// sliced returns the pod in a cgroup named as with the systemd driver. Without systemd, its
// containers are not where their scopes would be, so only the pod's cgroup is checked.
func sliced(p runtime.PodSpec) runtime.PodSpec {
	p.Slices = true
	return p
}

// beside returns the pod with a second container "d".
func beside(p runtime.PodSpec, r runtime.Resources) runtime.PodSpec {
	p.Containers = append(p.Containers, runtime.ContainerSpec{Name: "d", Resources: r})
	return p
}

// rows returns the table: knobs by classes, by levels.
func (b *Bed) rows(t *testing.T) []row {
	rows := classRows(t)
	rows = append(rows, burstRows()...)
	rows = append(rows, b.memoryRows(t)...)
	rows = append(rows, ioRows(t)...)
	return append(rows, dialectRows()...)
}

// bursts returns the expected bursts by level, in µs.
func bursts(name string, levels map[string]int) seen {
	s := seen{}
	for level, burst := range levels {
		s[level] = files{name: strconv.Itoa(burst)}
	}
	return s
}

// burstRow expects the same bursts in the files of both versions.
func burstRow(name string, spec runtime.PodSpec, levels map[string]int) row {
	return row{name: name, spec: spec, v1: bursts("cpu.cfs_burst_us", levels), v2: bursts("cpu.max.burst", levels)}
}

// alike expects the same files on both versions.
func alike(name string, spec runtime.PodSpec, s seen) row {
	return row{name: name, spec: spec, v1: s, v2: s}
}

// plain returns the settings of a container that requests nothing besides its class.
func plain(v1 bool, idle string, containerWeight string) seen {
	burst, weight := "cpu.max.burst", "cpu.weight"
	if v1 {
		burst, weight = "cpu.cfs_burst_us", "cpu.shares"
	}
	return seen{
		"c":        {burst: "0", "cpu.idle": "0", weight: containerWeight},
		podLevel:   {burst: "0", "cpu.idle": idle},
		classLevel: {"cpu.idle": "0"},
	}
}

// classRows has the settings of a class alone. Only BE is ranked, by its pod's own cgroup; the
// container's weight stays the kubelet's.
func classRows(t *testing.T) []row {
	pinned, pinnedV2 := "1024", "39|100"
	if threads(t) == 2 {
		pinned, pinnedV2 = "2048", "79|174"
	}
	idleClass := func(name, idle string, r runtime.Resources, shares, weight string) row {
		return row{name: name, spec: pod(name, r, class, name), v1: plain(true, idle, shares), v2: plain(false, idle, weight)}
	}
	return []row{
		idleClass("LSE", "0", pin(t), pinned, pinnedV2),
		idleClass("LSR", "0", pin(t), pinned, pinnedV2),
		idleClass("LS", "0", limited(500, 1000), "512", "20|59"),
		idleClass("BE", "1", runtime.Resources{}, "2", "1"),
		idleClass("SYSTEM", "0", limited(500, 1000), "512", "20|59"),
		{
			name: "BE with requests", // the kubelet writes this pod's weight, which the kernel would refuse for an idle cgroup
			spec: pod("be-requests", limited(500, 1000), class, "BE"),
			v1:   seen{podLevel: {"cpu.idle": "0", "cpu.shares": "2"}, "c": {"cpu.idle": "0"}},
			v2:   seen{podLevel: {"cpu.idle": "0", "cpu.weight": "1"}, "c": {"cpu.idle": "0"}},
		},
		alike("LS of identity -1", pod("ls-low", runtime.Resources{}, class, "LS", identity, "-1"), seen{podLevel: {"cpu.idle": "1"}}),
	}
}

// burstRows has bursts in percent of the quota, limited to the quota on a mainline kernel; the pod
// has the sum.
func burstRows() []row {
	return []row{
		burstRow("burst 50 %", pod("burst-50", limited(500, 1000), class, "LS", burst, "50%"), map[string]int{"c": 50000, podLevel: 50000, classLevel: 0}),
		burstRow("burst 1000 %", pod("burst-1000", limited(500, 1000), class, "LS", burst, "1000%"), map[string]int{"c": 100000, podLevel: 100000}),
		burstRow("burst of a Guaranteed pod", pod("burst-guaranteed", runtime.Whole(1000, 64*mib), class, "LS", burst, "20%"), map[string]int{"c": 20000, podLevel: 20000}),
		burstRow("burst of two", beside(pod("burst-two", limited(500, 1000), class, "LS", burst, "50%"), limited(200, 500)), map[string]int{"c": 50000, "d": 25000, podLevel: 75000}),
		burstRow("burst of one of two", beside(pod("burst-one", limited(500, 1000), class, "LS", burst+"/container.d", "100%"), limited(200, 500)), map[string]int{"c": 0, "d": 50000, podLevel: 50000}),
		burstRow("burst without a limit", pod("burst-free", limited(500, 0), class, "LS", burst, "50%"), map[string]int{"c": 0, podLevel: 0}),
		burstRow("burst in systemd's slices", sliced(pod("burst-sliced", limited(500, 1000), class, "LS", burst, "50%")), map[string]int{podLevel: 50000}),
		burstRow("burst off", pod("burst-off", limited(500, 1000), class, "LS", burst, "off"), map[string]int{"c": 0, podLevel: 0}),
	}
}

// memoryRows has a limit and a soft limit on v1 and all settings on v2, with the sums in the
// cgroups above.
func (b *Bed) memoryRows(t *testing.T) []row {
	whole := runtime.Whole(200, 128*mib)
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	burstable := part(t, 0)
	limit := burstable.MemoryLimit
	// The kubelet's score contains the request in steps of the node's memory.
	request, _ := workload.MemoryRequest(&workload.Pod{CgroupParent: "/kubepods/burstable/pod"},
		&workload.Container{OOMScoreAdj: 1000 - steps}, b.status(t).Machine.MemoryBytes)
	high := text((request + (limit-request)*80/100) / 4096 * 4096)
	return []row{
		{
			name: "memory.min",
			spec: pod("memory-min", whole, class, "LS", memoryQoS, "{minPercent: 100}"),
			v2: seen{
				"c":        {"memory.min": text(128 * mib)},
				podLevel:   {"memory.min": text(128 * mib)},
				classLevel: {"memory.min": text(128 * mib)},
			},
		},
		{
			name: "memory.min and low of two",
			spec: beside(pod("memory-min-two", whole, class, "LS", memoryQoS, "{minPercent: 25, lowPercent: 50}"), whole),
			v2: seen{
				"c":        {"memory.min": text(32 * mib), "memory.low": text(64 * mib)},
				"d":        {"memory.min": text(32 * mib), "memory.low": text(64 * mib)},
				podLevel:   {"memory.min": text(64 * mib), "memory.low": text(128 * mib)},
				classLevel: {"memory.min": text(64 * mib), "memory.low": text(128 * mib)},
			},
		},
		{
			name: "memory.high",
			spec: pod("memory-high", burstable, class, "LS", memoryQoS, "{highPercent: 80}"),
			v1:   seen{"c": {"memory.soft_limit_in_bytes": high, "memory.limit_in_bytes": text(limit)}},
			v2:   seen{"c": {"memory.high": high, "memory.max": text(limit)}},
		},
		{
			name: "memory.oom.group",
			spec: pod("oom-group", whole, class, "LS", memoryQoS, "{oomGroup: true}"),
			v2:   seen{"c": {"memory.oom.group": "1"}},
		},
	}
}

// ioRows has throttles for each disk without a line of its own.
func ioRows(t *testing.T) []row {
	var read, write, iops, all string
	for i, disk := range disks(t) {
		if i > 0 {
			read, write, iops, all = read+"\n", write+"\n", iops+"\n", all+"\n"
		}
		read += disk + " 10485760"
		write += disk + " 1048576"
		iops += disk + " 100"
		all += disk + " rbps=10485760 wbps=1048576 riops=100 wiops=max"
	}
	return []row{
		{
			name: "io throttled",
			spec: pod("io", limited(100, 0), class, "BE", io, "{readBPS: 10Mi, writeBPS: 1Mi, readIOPS: 100}"),
			v1: seen{"c": {
				"blkio.throttle.read_bps_device": read, "blkio.throttle.write_bps_device": write,
				"blkio.throttle.read_iops_device": iops, "blkio.throttle.write_iops_device": "",
			}},
			v2: seen{"c": {"io.max": all}},
		},
		{
			name: "io weight",
			spec: pod("io-weight", limited(100, 0), class, "LS", io, "{weight: 50}"),
			v1:   seen{"c": {"blkio.bfq.weight": "50"}},
			v2:   seen{"c": {"io.weight": "default 50", "io.bfq.weight": "default 50"}},
		},
	}
}

// dialectRows has pods of Koordinator and Katalyst, which get what their own node agents would
// set.
func dialectRows() []row {
	be := func(name string, annotations ...string) runtime.PodSpec {
		return labelled(pod(name, runtime.Resources{}, annotations...), koordClass, "BE")
	}
	const batch = `{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"64Mi"},` +
		`"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"64Mi"}}}}`
	ls := func(p runtime.PodSpec) runtime.PodSpec { return labelled(p, koordClass, "LS") }
	idle := seen{podLevel: {"cpu.idle": "1"}}
	rows := []row{
		alike("Koordinator BE", be("koord-be"), idle),
		alike("Katalyst reclaimed_cores", pod("katalyst", runtime.Resources{}, "katalyst.kubewharf.io/qos_level", "reclaimed_cores"), idle),
		{
			name: "Koordinator batch", // the pod's idle cgroup has no weight of its own
			spec: be("koord-batch", "node.koordinator.sh/extended-resource-spec", batch),
			v1: seen{
				"c":      {"cpu.shares": "1024", "cpu.cfs_quota_us": "100000", "memory.limit_in_bytes": "67108864"},
				podLevel: {"cpu.idle": "1", "cpu.cfs_quota_us": "100000", "memory.limit_in_bytes": "67108864"},
			},
			v2: seen{
				"c":      {"cpu.weight": "39|100", "cpu.max": "100000 100000", "memory.max": "67108864"},
				podLevel: {"cpu.idle": "1", "cpu.max": "100000 100000", "memory.max": "67108864"},
			},
		},
		burstRow("Koordinator cpuBurst", ls(pod("koord-burst", limited(500, 1000), "koordinator.sh/cpuBurst", `{"policy":"cpuBurstOnly","cpuBurstPercent":50}`)),
			map[string]int{"c": 50000, podLevel: 50000}),
		{
			name: "Koordinator memoryQOS",
			spec: ls(pod("koord-memory", runtime.Whole(200, 64*mib), "koordinator.sh/memoryQOS", `{"policy":"auto","minLimitPercent":50,"lowLimitPercent":100}`)),
			v2:   seen{"c": {"memory.min": "33554432", "memory.low": "67108864"}, podLevel: {"memory.min": "33554432"}},
		},
	}
	score := ls(pod("koord-oom", limited(100, 0), "koordinator.sh/oom-score-adj", "1000"))
	return append(rows, row{name: "Koordinator oom-score-adj", spec: score, oomScore: 1000})
}
