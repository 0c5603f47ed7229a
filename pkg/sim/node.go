package sim

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// simNode is the simulated machine: it gives the containers CPU and memory, step by
// step.
type simNode struct {
	*Kernel
	machine  *topology.Machine
	hardware Hardware
	step     time.Duration

	containers []*container // that run, by age
	sharer     sharer
	shape      []shape  // of the sharer's parts
	groups     []*group // of the sharer's entities
	arranged   uint64   // the kernel's version then
	memory     memory
	ceilings   []*ceiling
	bandwidths []bandwidth // of the sharer's entities
	slowdown   float64     // by memory traffic, of work that is wholly sensitive
}

// container is one that runs, and what it does.
type container struct {
	*Pod
	id, ref string
	spec    workload.Container // as the runtime would tell it
	pod     *instance
	path    string
	class   workload.Class
	score   int // for the OOM killer
	load    *source
	since   time.Duration
	entity  int // in the sharer; 0 not yet

	offered float64 // CPUs of work that come, at full speed
	backlog float64 // CPU seconds of work that wait
	asked   float64 // CPUs that it would use, were they given
	got     float64 // CPUs that it used
	done    float64 // CPU seconds of work in this step
	lost    float64 // CPU seconds of work that nobody waits for any more
	speed   float64
	weight  float64 // as a part of the node's, if all wanted
	idle    bool    // by SCHED_IDLE
	waiting float64 // threads that could run and don't

	throttled bool // by its own quota or one above
	held      held
	ceilings  []*ceiling
	least     int64   // memory.min
	low       int64   // memory.low
	p99       float64 // seconds; of services
	sums      sums    // for the sampler
}

func newNode(m *topology.Machine, hardware Hardware, step time.Duration) *simNode {
	n := &simNode{Kernel: newKernel(m), machine: m, hardware: hardware, step: step, slowdown: 1}
	n.memory.init(m)
	return n
}

// isService reports whether its answers are timed.
func (c *container) isService() bool { return c.Service.Time > 0 }

// violates reports whether the service was slower than its SLO in this step.
func (c *container) violates() bool { return c.p99 > c.Service.SLO.Seconds() }

// advance is one step, that ends at a time since the start of the scenario.
func (n *simNode) advance(now, clock time.Duration) (killed []*container) {
	n.arrange()
	for _, c := range n.containers {
		c.offered = c.load.at(now-c.since, clock-c.pod.late, n.step) * c.pod.scale
	}
	n.runCPUs()
	return n.runMemory(now)
}
