package tune

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/plan"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// kernel is a node of 64 GiB and two disks with a kernel's knobs.
func kernel(release string, knobs ...plan.Knob) *Node {
	n := &Node{Memory: 64 * gib, Disks: []string{"8:0", "8:16"}, DiskNames: map[string]string{"/dev/sda": "8:0"}, Release: release}
	for _, k := range append(knobs, plan.CPUs, plan.Mems, plan.Quota, plan.Weight, plan.MemoryMax, plan.IOMax, plan.IOWeight) {
		n.Features.Knobs[k] = plan.Feature{Support: plan.Supported}
	}
	return n
}

func (n *Node) v2() *Node {
	for k := range n.Features.Knobs {
		n.Features.Knobs[k].V2 = true
	}
	return n
}

func mainline1() *Node {
	return kernel("6.18.5", plan.Burst, plan.Idle, plan.SoftLimit, plan.NetClass)
}

func mainline2() *Node {
	n := kernel("6.12.9", plan.Burst, plan.Idle, plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh, plan.OOMGroup)
	n.Features.Reclaim = true
	return n.v2()
}

func oldMainline2() *Node {
	return kernel("5.4.0-150-generic", plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh, plan.OOMGroup).v2()
}

func anolis() *Node {
	n := kernel("5.10.134-16.al8.x86_64", plan.Burst, plan.BVT, plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh, plan.SoftLimit, plan.OOMGroup,
		plan.WmarkRatio, plan.WmarkScale, plan.WmarkMinAdj, plan.MemPriority, plan.PriorityOOM, plan.PageCache, plan.NetClass)
	n.Features.BurstOverQuota = true
	return n
}

func newAnolis() *Node {
	n := kernel("6.6.30-4.an23", plan.Burst, plan.Idle, plan.CPUIdentity, plan.CPUPriority, plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh,
		plan.OOMGroup, plan.WmarkRatio, plan.WmarkScale, plan.WmarkMinAdj, plan.MemPriority, plan.PriorityOOM, plan.PageCache)
	n.Features.Reclaim = true
	return n.v2()
}

func openEuler() *Node {
	return kernel("5.10.0-216.0.0.115.oe2203sp4", plan.Burst, plan.CPUQoS, plan.MemoryQoS, plan.MemoryMin, plan.MemoryLow, plan.MemoryHigh, plan.SoftLimit, plan.NetClass)
}

func tencentOS() *Node {
	return kernel("5.4.119-19.0009.44", plan.CgroupPriority, plan.BTShares, plan.CPUOffline, plan.PageCacheMax, plan.SoftLimit, plan.NetClass)
}

// nodes are the kernels, by what they are called in tests.
func nodes() map[string]*Node {
	return map[string]*Node{
		"mainline v1": mainline1(), "mainline v2": mainline2(), "mainline v2 5.4": oldMainline2(),
		"Anolis v1": anolis(), "Anolis v2 6.6": newAnolis(), "openEuler v1": openEuler(), "TencentOS v1": tencentOS(),
	}
}

// full asks for all that a container of a class may ask for.
func full(class workload.Class) workload.Tuning {
	some := workload.Some[int]
	switch class {
	case workload.LSE, workload.LSR:
		return workload.Tuning{Identity: some(2), Burst: workload.Burst{Percent: 100}, Memory: workload.MemoryQoS{MinPercent: some(100), WmarkMinAdj: some(-25), Priority: some(12)}}
	case workload.LS:
		return workload.Tuning{
			Burst: workload.Burst{Percent: 100}, Identity: some(2), Weight: 150,
			Memory: workload.MemoryQoS{MinPercent: some(10), LowPercent: some(100), HighPercent: some(80), WmarkRatio: some(95), WmarkScale: some(20), WmarkMinAdj: some(-25), Priority: some(10), OOMGroup: workload.Some(true)},
			IO:     workload.IO{Weight: some(500), Devices: []workload.DeviceIO{{Device: "/dev/sda", Weight: some(800)}}}, NetClass: workload.Some(uint32(0x10001)),
		}
	case workload.BE:
		return workload.Tuning{
			Burst: workload.Burst{Percent: 100}, Identity: some(-1),
			Memory: workload.MemoryQoS{WmarkRatio: some(80), WmarkScale: some(50), WmarkMinAdj: some(50), Priority: some(0)},
			IO:     workload.IO{Weight: some(10), Limits: workload.IOLimits{ReadBPS: 10 * mib, WriteBPS: 5 * mib}},
			Batch:  workload.Batch{CPURequest: workload.Some[workload.MilliCPU](1000), MemoryLimit: workload.Some[int64](gib)},
		}
	}
	return workload.Tuning{}
}

func limit(cpus float64) plan.CPUQuota {
	const period = 100 * time.Millisecond
	return plan.CPUQuota{Quota: time.Duration(cpus * float64(period)), Period: period}
}

// pod is a pod of n equal containers of a class with 2 CPUs and 1 GiB of 2 GiB
// requested, by the kubelet's rules of its QoS.
func pod(class workload.Class, n int) *Pod {
	p := &Pod{QoS: workload.Burstable}
	c := Container{Request: workload.Request{Class: class, Memory: gib, Tuning: full(class)}, Quota: limit(2), MemoryLimit: 2 * gib}
	switch class {
	case workload.LSE, workload.LSR:
		p.QoS, c.Own, c.MemoryLimit = workload.Guaranteed, true, gib
	case workload.BE:
		p.QoS, c.Quota, c.MemoryLimit, c.Request.Memory = workload.BestEffort, plan.CPUQuota{}, 0, 0
	}
	for range n {
		p.Containers = append(p.Containers, c)
	}
	return p
}
