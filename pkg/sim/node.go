package sim

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// simNode is the simulated machine. It gives the containers CPU and memory step by step.
type simNode struct {
	*Kernel
	machine  *topology.Machine
	hardware Hardware
	step     time.Duration

	containers []*container // running containers, the oldest first
	sharer     sharer
	shape      []shape  // by part of the sharer
	groups     []*group // by entity of the sharer
	arranged   uint64   // the kernel's version when the sharer's input was built
	memory     memory
	ceilings   []*ceiling
	bandwidths []bandwidth  // by entity of the sharer
	slowdown   float64      // of work that depends on memory only, by memory traffic
	byCache    []*container // those that use the last-level cache
}

// container is a running container.
type container struct {
	*Pod
	id, ref string
	spec    workload.Container // as the runtime reports it
	pod     *instance
	path    string
	class   workload.Class
	score   int // the OOM killer's score
	load    *source
	since   time.Duration
	entity  int // index in the sharer; 0 before it is entered

	offered float64 // arriving work, in CPUs at full speed
	backlog float64 // waiting work in CPU seconds
	demand  float64 // CPUs that it would use if it got them
	got     float64 // CPUs that it used
	done    float64 // CPU seconds of work done in this step
	lost    float64 // CPU seconds of work that clients gave up
	speed   float64
	cached  float64 // bytes of the last-level cache that it holds
	moved   float64 // bytes per second from and to memory

	ownCycles float64 // its cycles per instruction as a multiple of the usual, for reasons of its own
	weight    float64 // its share of the node's weight if all containers wanted CPU
	idle      bool    // by SCHED_IDLE
	waiting   float64 // threads that are runnable but not running

	throttled bool // by its own quota or one above it
	held      held
	ceilings  []*ceiling
	least     int64   // memory.min in bytes
	low       int64   // memory.low in bytes
	p99       float64 // in seconds; of services only
	sums      sums    // input of the sampler
}

func newNode(m *topology.Machine, hardware Hardware, step time.Duration) *simNode {
	n := &simNode{Kernel: newKernel(m), machine: m, hardware: hardware, step: step, slowdown: 1}
	n.memory.init(m)
	return n
}

// isService reports whether its response times count.
func (c *container) isService() bool { return c.Service.Time > 0 }

// violates reports whether the service exceeded its SLO in this step.
func (c *container) violates() bool { return c.p99 > c.Service.SLO.Seconds() }

// advance runs one step, which ends at the time now since the start of the scenario.
func (n *simNode) advance(now, clock time.Duration) (killed []*container) {
	n.arrange()
	for _, c := range n.containers {
		c.offered = c.load.at(now-c.since, clock-c.pod.late, n.step) * c.pod.scale
		c.ownCycles = levelAt(c.Cycles, now-c.since, 1)
	}
	n.runCPUs()
	return n.runMemory(now)
}
