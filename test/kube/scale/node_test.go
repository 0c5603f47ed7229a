package scale

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// These are a node's size, and what its services use of it.
const (
	nodeCPUs   = 64
	nodeMemory = 256 << 30
	interval   = time.Second // between two measurements
	// The share of CPUs and memory in use is between these, by node.
	usedLeast, usedMost = 0.1, 0.35
	// CPU follows the time of day, up and down by this share.
	dayShare = 0.25
	// CPU and memory wander around their means, by these shares as standard deviations, and return within
	// these times. A single measurement of CPU is off by more.
	cpuShare, cpuReturns       = 0.1, 5 * time.Minute
	memoryShare, memoryReturns = 0.02, 30 * time.Minute
	cpuFlickers                = 0.2
	// A node was measured for so long before the test begins.
	measuredBefore = 10 * time.Minute
)

// node is what a node's services use, and what the plugin's controller of the offer makes of that.
type node struct {
	random      *rand.Rand
	dayBegins   float64 // as a share of the day
	cpu, memory wandering
	view        control.View
	offering    *control.Offering
	offer       control.Offer
}

// wandering is a value that wanders around its mean: an Ornstein-Uhlenbeck process.
type wandering struct {
	mean, deviation float64
	returns         time.Duration
	off             float64 // in standard deviations
}

func (w *wandering) step(random *rand.Rand) float64 {
	keep := math.Exp(-float64(interval) / float64(w.returns))
	w.off = w.off*keep + math.Sqrt(1-keep*keep)*random.NormFloat64()
	return w.mean * (1 + w.deviation*w.off)
}

// newNode returns a node that was measured until now. Its seed makes it differ from others.
func newNode(seed uint64, now time.Time) *node {
	random := rand.New(rand.NewPCG(seed, 0))
	used := func() float64 { return usedLeast + (usedMost-usedLeast)*random.Float64() }
	n := &node{
		random: random, dayBegins: random.Float64(),
		cpu:      wandering{used() * nodeCPUs * 1000, cpuShare, cpuReturns, random.NormFloat64()},
		memory:   wandering{used() * nodeMemory, memoryShare, memoryReturns, random.NormFloat64()},
		offering: control.NewOffering(control.DefaultConfig().Offer, control.Amount{}, interval, control.Peaks{}),
	}
	n.view = control.View{Capacity: nodeCPUs * 1000, Allocatable: nodeCPUs * 1000, Shared: nodeCPUs * 1000, MemoryTotal: nodeMemory}
	for at := now.Add(-measuredBefore); at.Before(now); at = at.Add(interval) {
		n.measure(at)
	}
	return n
}

// measure takes a measurement, and lets the controller make its offer.
func (n *node) measure(now time.Time) {
	day := math.Sin(2 * math.Pi * (float64(now.Unix())/(24*3600) + n.dayBegins))
	cpu := n.cpu.step(n.random) * (1 + dayShare*day) * (1 + cpuFlickers*n.random.NormFloat64())
	memory := int64(n.memory.step(n.random))
	n.view.Now = now
	n.view.Node.CPU = observe.NodeCPU{At: now, Interval: interval, Usage: workload.MilliCPU(min(max(cpu, 0), nodeCPUs*1000))}
	n.view.Node.Memory = observe.NodeMemory{At: now, Total: nodeMemory, Available: nodeMemory - min(max(memory, 0), nodeMemory)}
	n.offer, _ = n.offering.Step(&n.view, nil)
}

// status is the status of the node's plugin: that of another one, with what this one measures. The offer is divided.
func (n *node) status(like *status.Status, divisor int64) *status.Status {
	s, loop := *like, *like.Loop
	s.Loop, s.Time = &loop, n.view.Now
	loop.MeasuredAt, loop.Offer = n.view.Now, n.offer
	for _, amount := range []*control.Amount{&loop.Offer.ShortTerm, &loop.Offer.LongTerm} {
		amount.CPU /= workload.MilliCPU(divisor)
		amount.MemoryBytes /= divisor
	}
	loop.Node.CPU.MeasuredAt, loop.Node.CPU.Usage = n.view.Now, n.view.Node.CPU.Usage
	loop.Node.Memory = status.NodeMemory{MeasuredAt: n.view.Now, TotalBytes: nodeMemory, AvailableBytes: n.view.Node.Memory.Available}
	return &s
}
