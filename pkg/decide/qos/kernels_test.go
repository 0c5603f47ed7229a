package qos

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// kernel returns a node of 64 GiB and two disks whose kernel has these knobs.
func kernel(release string, has ...knobs.Knob) *Node {
	n := &Node{Memory: 64 * gib, Disks: []string{"8:0", "8:16"}, DiskNames: map[string]string{"/dev/sda": "8:0"}, Release: release}
	for _, k := range append(has, knobs.CPUs, knobs.Mems, knobs.Quota, knobs.Weight, knobs.MemoryMax, knobs.IOMax, knobs.IOWeight) {
		n.Features.Knobs[k] = knobs.Feature{State: knobs.Supported}
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
	return kernel("6.18.5", knobs.Burst, knobs.Idle, knobs.SoftLimit, knobs.NetClass)
}

func mainline2() *Node {
	n := kernel("6.12.9", knobs.Burst, knobs.Idle, knobs.MemoryMin, knobs.MemoryLow, knobs.MemoryHigh, knobs.OOMGroup)
	n.Features.Reclaim = true
	return n.v2()
}

func oldMainline2() *Node {
	return kernel("5.4.0-150-generic", knobs.MemoryMin, knobs.MemoryLow, knobs.MemoryHigh, knobs.OOMGroup).v2()
}

func anolis() *Node {
	n := kernel("5.10.134-16.al8.x86_64", knobs.Burst, knobs.BVT, knobs.MemoryMin, knobs.MemoryLow, knobs.MemoryHigh, knobs.SoftLimit, knobs.OOMGroup,
		knobs.WmarkRatio, knobs.WmarkScale, knobs.WmarkMinAdj, knobs.MemPriority, knobs.PriorityOOM, knobs.PageCache, knobs.NetClass)
	n.Features.BurstOverQuota = true
	return n
}

func newAnolis() *Node {
	n := kernel("6.6.30-4.an23", knobs.Burst, knobs.Idle, knobs.CPUIdentity, knobs.CPUPriority, knobs.MemoryMin, knobs.MemoryLow, knobs.MemoryHigh,
		knobs.OOMGroup, knobs.WmarkRatio, knobs.WmarkScale, knobs.WmarkMinAdj, knobs.MemPriority, knobs.PriorityOOM, knobs.PageCache)
	n.Features.Reclaim = true
	return n.v2()
}

func openEuler() *Node {
	return kernel("5.10.0-216.0.0.115.oe2203sp4", knobs.Burst, knobs.CPUQoS, knobs.MemoryQoS, knobs.MemoryMin, knobs.MemoryLow, knobs.MemoryHigh, knobs.SoftLimit, knobs.NetClass)
}

func tencentOS() *Node {
	return kernel("5.4.119-19.0009.44", knobs.CgroupPriority, knobs.BTShares, knobs.CPUOffline, knobs.PageCacheMax, knobs.SoftLimit, knobs.NetClass)
}

// nodes returns the kernels by their names in tests.
func nodes() map[string]*Node {
	return map[string]*Node{
		"mainline v1": mainline1(), "mainline v2": mainline2(), "mainline v2 5.4": oldMainline2(),
		"Anolis v1": anolis(), "Anolis v2 6.6": newAnolis(), "openEuler v1": openEuler(), "TencentOS v1": tencentOS(),
	}
}

// full requests everything that a container of a class may have.
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

func limit(cpus float64) knobs.CPUQuota {
	const period = 100 * time.Millisecond
	return knobs.CPUQuota{Quota: time.Duration(cpus * float64(period)), Period: period}
}

// pod returns a pod of n equal containers of a class. Each requests 2 CPUs and 1 of 2 GiB, and the
// pod's QoS follows the kubelet's rules.
func pod(class workload.Class, n int) *Pod {
	p := &Pod{QoS: workload.Burstable}
	c := Container{Request: workload.Request{Class: class, Memory: gib, Tuning: full(class)}, Quota: limit(2), MemoryLimit: 2 * gib}
	switch class {
	case workload.LSE, workload.LSR:
		p.QoS, c.Own, c.MemoryLimit = workload.Guaranteed, true, gib
	case workload.BE:
		p.QoS, c.Quota, c.MemoryLimit, c.Request.Memory = workload.BestEffort, knobs.CPUQuota{}, 0, 0
	}
	for range n {
		p.Containers = append(p.Containers, c)
	}
	return p
}
