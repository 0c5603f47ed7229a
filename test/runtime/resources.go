package runtime

import (
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Resources holds a container's requests and limits as in a pod's manifest; zero stands for
// absent. As in the API server, an absent request is the limit.
type Resources struct {
	CPURequest, CPULimit       workload.MilliCPU
	MemoryRequest, MemoryLimit int64 // in bytes
}

// Whole returns the resources of a Guaranteed container, whose request equals its limit.
func Whole(cpu workload.MilliCPU, memory int64) Resources {
	return Resources{CPURequest: cpu, CPULimit: cpu, MemoryRequest: memory, MemoryLimit: memory}
}

const period = 100000 // in µs, the kubelet's default

func (r Resources) defaulted() Resources {
	if r.CPURequest == 0 {
		r.CPURequest = r.CPULimit
	}
	if r.MemoryRequest == 0 {
		r.MemoryRequest = r.MemoryLimit
	}
	return r
}

// shares does what MilliCPUToShares of the kubelet's pkg/kubelet/cm/helpers_linux.go does.
func shares(milli workload.MilliCPU) int64 {
	return min(max(int64(milli)*1024/1000, 2), 262144)
}

// quota does what MilliCPUToQuota of the same file does: µs per period, or 0 without a limit.
func quota(milli workload.MilliCPU) int64 {
	if milli == 0 {
		return 0
	}
	return max(int64(milli)*period/1000, 1000)
}

// Weight returns cgroup v2's cpu.weight for CPU shares, by the mapping of KEP-2254, as the kubelet does.
func Weight(shares int64) int64 { return 1 + (shares-2)*9999/262142 }

// linux returns what the kubelet sends for a container, see generateLinuxContainerResources.
func (r Resources) linux(qos workload.QoS, nodeMemory int64) *cri.LinuxContainerResources {
	r = r.defaulted()
	return &cri.LinuxContainerResources{
		CpuShares:          shares(r.CPURequest),
		CpuQuota:           quota(r.CPULimit),
		CpuPeriod:          period,
		MemoryLimitInBytes: r.MemoryLimit,
		OomScoreAdj:        oomScoreAdj(r, qos, nodeMemory),
	}
}

// oomScoreAdj does what GetContainerOOMScoreAdjust of the kubelet's pkg/kubelet/qos does.
func oomScoreAdj(r Resources, qos workload.QoS, nodeMemory int64) int64 {
	switch qos {
	case workload.Guaranteed:
		return -997
	case workload.BestEffort:
		return 1000
	default:
		return min(max(1000-1000*r.MemoryRequest/nodeMemory, 3), 999)
	}
}

// qosOf derives the QoS class as Kubernetes does.
func qosOf(containers []ContainerSpec) workload.QoS {
	guaranteed, bestEffort := true, true
	for _, c := range containers {
		r := c.Resources.defaulted()
		bestEffort = bestEffort && r == Resources{}
		guaranteed = guaranteed && r.CPULimit > 0 && r.MemoryLimit > 0 && r.CPURequest == r.CPULimit && r.MemoryRequest == r.MemoryLimit
	}
	switch {
	case bestEffort:
		return workload.BestEffort
	case guaranteed:
		return workload.Guaranteed
	default:
		return workload.Burstable
	}
}

// total returns a pod's resources, summed as the kubelet's ResourceConfigForPod does: a limit
// counts only if every container has one.
func total(containers []ContainerSpec) Resources {
	var sum Resources
	allCPU, allMemory := true, true
	for _, c := range containers {
		r := c.Resources.defaulted()
		sum.CPURequest += r.CPURequest
		sum.CPULimit += r.CPULimit
		sum.MemoryRequest += r.MemoryRequest
		sum.MemoryLimit += r.MemoryLimit
		allCPU = allCPU && r.CPULimit > 0
		allMemory = allMemory && r.MemoryLimit > 0
	}
	if !allCPU {
		sum.CPULimit = 0
	}
	if !allMemory {
		sum.MemoryLimit = 0
	}
	return sum
}
