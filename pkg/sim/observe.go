package sim

import (
	"math"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// sampler provides the agent with measurements at the rate of the real one: the CPU usage of batch
// work at each step, that of all others each second, and other counters of containers every ten
// seconds, as means since the previous measurement.
type sampler struct {
	node     *simNode
	rdt      bool // containers' cache and memory traffic are counted
	snapshot observe.Snapshot
	targets  []target
	batch    map[string]*whole // by ID of the target
}

// target is a container that the agent measures, or a cgroup of batch work as a whole.
type target struct {
	*container
	whole  *whole
	fast   bool
	memory bool // its memory is measured as often as the node's
	waits  bool // its waiting and its cache are measured as often as its CPU usage
	cycles bool // its cycles per instruction are counted for ten seconds of each minute
	always bool // they are all the time
}

// whole is a cgroup with all containers below it.
type whole struct {
	sums
	below string
}

// sums accumulates what a container did since its last measurement.
type sums struct {
	since                time.Time // begin of the CPU time
	cpu                  float64   // in seconds
	allSince             time.Time // begin of the quota's counters
	periods, throttled   int64
	missing              float64   // CPU seconds that the quota withheld
	slowSince            time.Time // begin of the counters below
	waited, some, memory float64   // in seconds
	direct, refaults     float64   // in pages
	moved                float64   // bytes from and to memory
	count                count
	reading              observe.Container
}

// usageEvery is the time between two measurements of each container's CPU usage, and of batch work's
// memory.
const usageEvery = time.Second

// follow sets the containers to measure.
func (s *sampler) follow(targets []observe.Target) {
	byID := make(map[string]*container, len(s.node.containers))
	for _, c := range s.node.containers {
		byID[c.id] = c
	}
	s.targets = s.targets[:0]
	batch := map[string]*whole{}
	for _, t := range targets {
		if c := byID[t.ID]; c != nil {
			s.targets = append(s.targets, target{container: c, fast: t.Fast, memory: t.Memory, waits: t.Waiting, cycles: t.CPI, always: t.CPIAlways})
		} else if dir, ok := strings.CutPrefix(t.ID, colocation.BatchCgroupTarget); ok {
			w := s.batch[t.ID]
			if w == nil {
				w = &whole{below: dir + "/"}
				w.reading.ID = t.ID
			}
			batch[t.ID] = w
			s.targets = append(s.targets, target{whole: w, fast: t.Fast})
		}
	}
	s.batch = batch
}

// note adds a step that has just ended.
func (s *sampler) note(now time.Time) {
	dt := s.node.step.Seconds()
	for _, w := range s.batch {
		if w.since.IsZero() {
			w.since, w.allSince = now.Add(-s.node.step), now.Add(-s.node.step)
		}
		for _, c := range s.node.containers {
			if strings.HasPrefix(c.path, w.below) {
				w.cpu += c.got * dt
			}
		}
	}
	for _, c := range s.node.containers {
		sum := &c.sums
		if sum.since.IsZero() {
			sum.since = now.Add(-s.node.step)
			sum.allSince, sum.slowSince = sum.since, sum.since
			sum.reading.ID = c.id
		}
		sum.cpu += c.got * dt
		if !math.IsInf(s.node.sharer.entities[c.entity].limit, 1) {
			sum.periods++
			if limit := s.node.sharer.entities[c.entity].limit; c.demand > limit {
				sum.throttled++
				sum.missing += (c.demand - limit) * dt
			}
		}
		sum.waited += c.waiting * dt
		sum.some += min(1, c.waiting) * dt
		sum.memory += min(dt, c.held.stall)
		sum.direct += c.held.direct * dt
		sum.refaults += c.held.refaults * dt
		sum.moved += c.moved * dt
		sum.count.add(c.got*dt, c.done)
	}
}

// measure returns a snapshot of the targets, which is valid until the next call.
func (s *sampler) measure(now time.Time) *observe.Snapshot {
	v := &s.snapshot
	v.Now = now
	s.lookAtCPUs(now)
	s.lookAtMemory(now)
	v.Containers = v.Containers[:0]
	every := observe.SlowInterval
	if m := &v.Node.Memory; v.Node.Pressure.Memory >= 0.05 || m.Free < 2*m.Low && m.Available < m.Total/10 { // as the real one
		every /= 4
	}
	for _, t := range s.targets {
		if t.whole != nil {
			s.measureWhole(now, &t)
			continue
		}
		sum := &t.sums
		if sum.since.IsZero() {
			continue
		}
		due := now.Sub(sum.allSince) >= usageEvery
		if t.fast || due {
			sum.tellUsage(now)
		}
		if due {
			sum.tellThrottling(now)
		}
		if sum.reading.Memory.At.IsZero() || now.Sub(sum.slowSince) >= every || due && t.waits {
			sum.tellRest(now, t.container, s.rdt)
		} else if due && t.memory {
			sum.tellMemory(now, t.container)
		}
		if t.cycles {
			sum.tellCycles(now, t.container, t.always)
		}
		v.Containers = append(v.Containers, sum.reading)
	}
	return v
}

// measureWhole adds the reading of a cgroup of batch work.
func (s *sampler) measureWhole(now time.Time, t *target) {
	w := t.whole
	if w.since.IsZero() {
		return
	}
	due := now.Sub(w.allSince) >= usageEvery
	if t.fast || due {
		w.tellUsage(now)
	}
	if due {
		w.allSince = now
		m := observe.ContainerMemory{At: now}
		for _, c := range s.node.containers {
			if strings.HasPrefix(c.path, w.below) {
				m.Current, m.Anon, m.Cache = m.Current+c.held.all(), m.Anon+c.held.anon, m.Cache+c.held.cache
			}
		}
		w.reading.Memory = m
	}
	s.snapshot.Containers = append(s.snapshot.Containers, w.reading)
}

func (sum *sums) tellUsage(now time.Time) {
	over := now.Sub(sum.since)
	t := &sum.reading.CPU
	t.At, t.Interval, t.Usage = now, over, milli(sum.cpu/over.Seconds())
	sum.since, sum.cpu = now, 0
}

func (sum *sums) tellThrottling(now time.Time) {
	t := &sum.reading.CPU
	t.StatAt, t.Periods, t.Throttled = time.Time{}, sum.periods, sum.throttled
	if sum.periods > 0 {
		t.StatAt = now
	}
	t.ThrottledTime = time.Duration(sum.missing * float64(time.Second))
	sum.allSince, sum.periods, sum.throttled, sum.missing = now, 0, 0, 0
}

func (sum *sums) tellRest(now time.Time, c *container, rdt bool) {
	over := now.Sub(sum.slowSince).Seconds()
	t := &sum.reading
	sum.tellMemory(now, c)
	t.Pressure = observe.Pressure{At: now, CPU: min(1, sum.some/over), Memory: min(1, sum.memory/over)}
	t.RunDelay = observe.RunDelay{At: now, Waiting: sum.waited / over}
	t.Memory.Refaults, t.Memory.Direct = sum.refaults/over, sum.direct/over
	if rdt {
		t.Cache = observe.Cache{At: now, Occupancy: int64(c.cached), Bandwidth: sum.moved / over}
	}
	sum.slowSince, sum.waited, sum.some, sum.memory, sum.direct, sum.refaults, sum.moved = now, 0, 0, 0, 0, 0, 0
}

func (sum *sums) tellMemory(now time.Time, c *container) {
	t, h := &sum.reading.Memory, &c.held
	t.At, t.Current, t.WorkingSet, t.Anon, t.Cache, t.OOMKills = now, h.all(), h.anon+h.cache/2, h.anon, h.cache, h.oomKills
}

func (s *sampler) lookAtCPUs(now time.Time) {
	v := &s.snapshot
	if len(v.CPUs) == 0 {
		v.CPUs = make([]observe.CPU, s.node.machine.Online.Last()+1)
	}
	for i := range v.CPUs {
		v.CPUs[i] = observe.CPU{Known: s.node.machine.Online.Contains(i)}
	}
	for p := range s.node.shape {
		for c, cpus := range s.node.shape[p].cells {
			at := &s.node.sharer.parts[p].cells[c]
			for cpu := range cpus.All() {
				v.CPUs[cpu].Busy = at.used / at.cpus
			}
		}
	}
	used, waiting := 0.0, 0.0
	for _, c := range s.node.containers {
		used += c.got
		waiting += c.waiting
	}
	v.Node.CPU = observe.NodeCPU{At: now, Interval: s.node.step, Usage: milli(used)}
	stall := min(1, s.node.memory.direct*page/float64(s.node.hardware.Reclaim))
	v.Node.Pressure = observe.Pressure{At: now, CPU: min(1, waiting/float64(s.node.machine.Online.Size())), Memory: stall}
}

func (s *sampler) lookAtMemory(now time.Time) {
	m, v := &s.node.memory, &s.snapshot.Node.Memory
	v.At, v.Total, v.Free, v.Low, v.Direct = now, m.total, m.free, m.low, m.direct
	v.Anon, v.Cache = 0, 0
	for _, c := range s.node.containers {
		v.Anon += c.held.anon
		v.Cache += c.held.cache
	}
	v.Available = max(0, m.free-m.low) + v.Cache - min(v.Cache/2, m.low) // as si_mem_available
	v.Nodes = v.Nodes[:0]
	for i := range s.node.machine.Nodes { // memory is spread evenly over the nodes
		node := &s.node.machine.Nodes[i]
		part := float64(node.MemoryBytes) / float64(m.total)
		for len(v.Nodes) <= node.ID {
			v.Nodes = append(v.Nodes, observe.NUMANode{})
		}
		v.Nodes[node.ID] = observe.NUMANode{
			Total: node.MemoryBytes, Free: int64(part * float64(m.free)), Reclaimable: int64(part * float64(v.Cache)), Direct: part * m.direct,
		}
	}
}

func milli(cpus float64) workload.MilliCPU { return workload.MilliCPU(cpus*1000 + 0.5) }
