package sim

import (
	"math"
	"math/bits"
)

// patience is the maximum backlog in seconds of work. Clients give up the rest.
const patience = 10.0

// runCPUs divides the CPU time of one step among the containers.
func (n *simNode) runCPUs() {
	dt := n.step.Seconds()
	n.refill(dt)
	for _, c := range n.containers {
		c.speed = n.speedOf(c)
		work := c.offered
		if c.isService() {
			work += c.backlog / dt
		}
		c.demand = work / c.speed
		if !c.isService() {
			c.demand = work // a hog's threads are always busy and do less on a slower CPU
		}
		if c.Load.Threads > 0 {
			c.demand = min(c.demand, float64(c.Load.Threads))
		}
		n.sharer.entities[c.entity].want = c.demand
	}
	n.sharer.divide()
	n.drain(dt)
	for _, c := range n.containers {
		n.account(c, dt)
	}
	n.contend()
}

// refill sets the limits of this step: the quota, and the time that the burst has saved.
func (n *simNode) refill(dt float64) {
	for i, g := range n.groups {
		n.sharer.entities[i].limit = n.bandwidths[i].quota + g.saved/dt
	}
}

// drain subtracts what containers used above their quota from the saved burst, or adds what they
// left.
func (n *simNode) drain(dt float64) {
	all := n.sharer.entities
	for i := len(all) - 1; i > 0; i-- {
		if e := &all[i]; e.parent >= 0 {
			all[e.parent].got += e.got
		}
	}
	for i, g := range n.groups {
		if b := &n.bandwidths[i]; b.quota < math.Inf(1) {
			g.saved = min(b.burst, max(0, g.saved+b.seconds-all[i].got*dt))
		} else {
			g.saved = 0
		}
	}
}

// account records what a container did in the step.
func (n *simNode) account(c *container, dt float64) {
	e := &n.sharer.entities[c.entity]
	p := &n.sharer.parts[e.part]
	c.got = e.got
	c.done = e.got * c.speed * dt
	c.throttled = c.demand > e.limit+epsilon
	for up := e.parent; up >= 0 && !c.throttled; up = n.sharer.entities[up].parent {
		at := &n.sharer.entities[up]
		c.throttled = at.limit < math.Inf(1) && at.got >= at.limit-1e-6 && c.demand > e.got+epsilon
	}
	c.waiting = max(0, c.demand-c.got)
	if !c.isService() {
		return
	}
	before := c.backlog
	c.backlog = max(0, before+c.offered*dt-c.done)
	c.lost = max(0, c.backlog-patience*max(c.offered, epsilon))
	c.backlog -= c.lost

	servers := min(max(e.could, e.got+p.idle(e.cells)), e.limit)
	if c.Load.Threads > 0 {
		servers = min(servers, float64(c.Load.Threads))
	}
	q := queue{service: c.Service.Time, speed: c.speed, servers: servers, offered: c.offered, backlog: before, blocked: n.blocked(c)}
	c.p99 = q.p99() + c.held.stall
	if c.backlog > 0 && c.backlog > c.offered*dt {
		c.p99 = max(c.p99, c.backlog/max(epsilon, c.got*c.speed))
	}
	c.waiting += c.got * q.blocked
}

// spots is the number of CPUs on which the scheduler looks for an idle one when a task wakes (on a
// busy machine select_idle_cpu looks at few).
const spots = 8

// blocked returns the probability that a waking task of c finds no idle CPU and does not preempt
// the running task. SCHED_IDLE tasks are preempted at once, and so are containers with a small
// weight, in proportion to it. This is an assumption: in measurements (design/testing.md) hogs of
// weight 1 beside a service added nothing to its p99, and hogs of its own weight up to one slice.
func (n *simNode) blocked(c *container) float64 {
	e := &n.sharer.entities[c.entity]
	p := &n.sharer.parts[e.part]
	cpus := 0.0
	for m := e.cells; m != 0; m &= m - 1 {
		cpus += p.cells[bits.TrailingZeros64(m)].cpus
	}
	full := math.Pow(1-p.idle(e.cells)/cpus, min(spots, cpus))
	if full < 0.01 { // too rare to show in the 99th percentile
		return 0
	}
	others := 0.0
	for _, o := range n.containers {
		at := &n.sharer.entities[o.entity]
		if o == c || o.idle && !c.idle || at.part != e.part || at.cells&e.cells == 0 {
			continue
		}
		inside := float64(bits.OnesCount64(at.cells&e.cells)) / float64(bits.OnesCount64(at.cells))
		others += at.got * inside * min(1, o.weight/c.weight)
	}
	return full * min(1, others/cpus)
}

// speedOf returns the speed of a container's work, 1 being full speed. It depends on how busy the
// sibling threads were in the previous step, on memory traffic, and on the cache that others took.
func (n *simNode) speedOf(c *container) float64 {
	e := &n.sharer.entities[c.entity]
	sum, cpus := 0.0, 0.0
	e.eachCell(func(k, at int) {
		size := n.sharer.parts[e.part].cells[at].cpus
		if k < len(e.placed) && e.got > epsilon {
			size = e.placed[k]
		}
		sum += size * n.siblings(e.part, at)
		cpus += size
	})
	busy := sum / max(cpus, epsilon)
	smt := 1 - (1-float64(n.hardware.SMT))*busy
	return smt / (1 + float64(c.Sensitivity)*(n.slowdown-1+c.lostCache())) / c.ownCycles
}

// siblings returns the fraction of a cell's busy threads whose sibling is busy as well. Within a
// cell the scheduler fills idle cores first (select_idle_core). The speed of a thread beside a
// busy sibling, hardware.smt, is assumed to be 62 %: two threads of a core then do 1.24 times the
// work of one, which is in the middle of vendors' figures.
func (n *simNode) siblings(part, at int) float64 {
	s, here := &n.shape[part], &n.sharer.parts[part].cells[at]
	sum := 0.0
	if inside := s.inside[at]; inside > 0 {
		if busy := here.used * inside / here.cpus; 2*busy > inside {
			sum = inside * (2*busy - inside) / busy
		}
	}
	for _, l := range s.across[at] {
		other := &n.sharer.parts[l.part].cells[l.cell]
		sum += l.cpus * other.used / other.cpus
	}
	return sum / here.cpus
}
