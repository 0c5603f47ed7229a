package web

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

// bigMachine has 512 CPUs.
const bigMachine = "2 packages 4 nodes 32 cores 2 threads l3 8 cores memory 192G numbering adjacent"

// node is a made-up node that moves on from one status to the next.
type node struct {
	machine *topology.Machine
	count   int // number of containers

	mu     sync.Mutex
	asked  int
	change func(*status.Status) // applied to each status at the end
	err    error                // returned in place of an answer
}

// changes sets the change that is applied to each status from now on.
func (n *node) changes(change func(*status.Status)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.change = change
}

func (n *node) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
}

func newNode(text string, containers int) (*node, error) {
	machine, err := synth.Machine(text)
	return &node{machine: machine, count: containers}, err
}

func (n *node) Machine() (*topology.Machine, error) { return n.machine, nil }

// Status returns in its version how often it was requested.
func (n *node) Status() (*status.Status, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return nil, n.err
	}
	n.asked++
	now := time.Now()
	m := n.machine
	all := m.Online.Size()
	kept := all / 128 // CPUs that belong to nobody
	s := &status.Status{
		Schema: status.Schema, Version: fmt.Sprintf("test-%d", n.asked), Time: now, StartedAt: now.Add(-time.Hour), Mode: "on",
		Runtime: status.Runtime{Connected: true, Name: "containerd", Version: "2.4.0", NRIVersion: "0.12.5", ChangedAt: now.Add(-time.Hour), RecordUpdates: status.RecordUpdatesOn},
		Machine: status.Machine{
			Online: m.Online, Packages: len(m.Packages), Nodes: len(m.Nodes), L3s: len(m.L3s), Cores: len(m.Cores),
			MemoryBytes: m.Memory(m.MemoryNodes()), Reserved: span(0, kept),
		},
		Config: status.Config{File: "/etc/sluice/sluice.yaml", Hash: strings.Repeat("5f0c7a3e", 8), LoadedAt: now.Truncate(time.Hour), Reloads: 3, Refused: 1},
		Features: []status.Feature{
			{Name: "cpu.burst", State: "supported", File: "cpu.max.burst"}, {Name: "memory.low", State: "supported", File: "memory.low"},
			{Name: "cpu.identity", State: "unsupported", Why: "cpu.bvt_warp_ns is a file of other kernels; cpu.idle takes its place"},
			{Name: "io.cost", State: "inconclusive", File: "io.cost.qos", Why: "no block device has pods' data"},
		},
		Handlers: []status.Handler{
			handler("Synchronize", 0, 0, 0, 0, 0, 0, 1), handler("CreateContainer", 10, 80, 8, 1, 0, 1), handler("StopContainer"),
		},
		Errors: []status.KnobErrors{{Knob: "cpu.quota", Errno: "EINVAL", Count: 2}, {Knob: "memory.high", Errno: "EBUSY", Count: 1}},
	}
	online := span(kept+all/8, all-all/4)
	batch := span(all-all/4, all)
	pinned := n.containers(s, online, now)
	s.Machine.Pinned = pinned
	critical := cpuset.Difference(span(kept, kept+all/8), pinned)
	s.Pools = []status.Pool{n.pool("critical", critical, 40, 60, 0), n.pool("online", cpuset.Difference(online, pinned), 45, 60, 1), n.pool("batch", batch, 60, 80, 2)}
	for i := range s.Containers {
		for p := range s.Pools {
			if s.Pools[p].Name == s.Containers[i].Pool {
				s.Pools[p].Containers++
				s.Pools[p].Requested += s.Containers[i].Requested
			}
		}
	}
	s.Loop = n.loop(now)
	if n.change != nil {
		n.change(s)
	}
	return s, nil
}

// span returns the CPUs from first to end, without end.
func span(first, end int) cpuset.Set {
	if first >= end {
		return cpuset.Set{}
	}
	return cpuset.Range(first, end-1)
}

// wave oscillates between 0 and 1, with a shift for each phase.
func (n *node) wave(phase int) float64 {
	return (1 + math.Sin(float64(n.asked)/3+float64(phase))) / 2
}

func (n *node) pool(name string, cpus cpuset.Set, low, high, phase int) status.Pool {
	size := cpus.Size()
	load := 0.3 + 0.4*n.wave(phase)
	return status.Pool{Name: name, CPUs: cpus, Load: &status.PoolLoad{
		MeasuredAt: time.Now(), Usage: workload.MilliCPU(load * 1000 * float64(size)), SizeCPUs: size, LoadFraction: load, PressureFraction: 0.01, BandLowPercent: low, BandHighPercent: high, WantedCPUs: size + n.asked%3,
	}}
}

// containers adds the containers and returns the pinned CPUs.
func (n *node) containers(s *status.Status, online cpuset.Set, now time.Time) cpuset.Set {
	var pinned cpuset.Set
	next := online.First()
	for i := range n.count {
		class := []workload.Class{workload.LS, workload.BE, workload.LS, workload.BE, workload.LS}[i%5]
		pool := map[workload.Class]string{workload.LS: "online", workload.BE: "batch"}[class]
		c := status.Container{
			ID: fmt.Sprintf("%064x", i), PodUID: fmt.Sprintf("5f0c7a3e-%04d-4d1e-9f6b-0242ac120002", i), Ref: fmt.Sprintf("%s/%s-%d/main", []string{"shop", "data", "ml"}[i%3], []string{"web", "index", "train", "cache"}[i%4], i),
			Class: class, Pool: pool, State: placement.Held, Controlled: true, Requested: workload.MilliCPU(250 + 250*(i%8)),
			Why:    "shares pool " + pool + " with others of its class",
			Cgroup: fmt.Sprintf("/kubepods/burstable/pod5f0c7a3e-%04d/%064x", i, i),
			Keys: []workload.RequestKey{
				{Key: "class", Value: class.String(), Source: "annotation class.sluice.dev/pod"}, {Key: "cpu-burst", Value: "20%", Source: "config classes." + class.String()},
			},
			Settings: []status.Setting{
				{Level: "container", Knob: "cpu.burst", File: "cpu.max.burst", Value: "20ms", Why: "cpu-burst of the class"},
				{Level: "pod", Knob: "memory.low", File: "memory.low", Value: "512Mi", Why: "its request is protected"},
			},
			Usage: &status.Usage{
				CPU:      status.CPUUsage{MeasuredAt: now, Usage: workload.MilliCPU(100 + 1500*n.wave(i)), Limit: 2000, ThrottledFraction: 0.2 * n.wave(i) * float64(i%2)},
				Memory:   status.MemoryUsage{MeasuredAt: now, WorkingSetBytes: int64(64+i) << 20, CurrentBytes: int64(96+i) << 20, LimitBytes: 1 << 30},
				Pressure: status.PressureUsage{MeasuredAt: now, CPUFraction: 0.05 * n.wave(i)},
			},
		}
		if i%40 == 0 && next+8 <= online.Last() {
			c.Class, c.Pool, c.Unlimited, c.Why = workload.LSE, "", true, "4 whole cores of one L3"
			c.CPUs = cpuset.Range(next, next+7)
			c.Mems = cpuset.Of(1)
			pinned = cpuset.Union(pinned, c.CPUs)
			next += 16
		}
		if i%17 == 0 {
			c.Warnings = []string{"cpu-burst has no effect: the container has no CPU limit"}
		}
		s.Containers = append(s.Containers, c)
	}
	return pinned
}

func (n *node) loop(now time.Time) *status.Loop {
	size := n.machine.Online.Size()
	all := workload.MilliCPU(size) * 1000
	memory := n.machine.Memory(n.machine.MemoryNodes())
	l := &status.Loop{
		Mode: control.On, MeasuredAt: now, Interval: time.Second,
		Node: status.NodeUsage{
			CPU:            status.CPUUsage{MeasuredAt: now, Usage: all/3 + workload.MilliCPU(float64(all)/4*n.wave(0)), Limit: all},
			Memory:         status.NodeMemory{MeasuredAt: now, TotalBytes: memory, AvailableBytes: memory * 2 / 5},
			Pressure:       status.PressureUsage{MeasuredAt: now, CPUFraction: 0.04, MemoryFraction: 0.01, IOFraction: 0.02},
			CPULoadPercent: n.loads(),
		},
		Batch:  status.Batch{State: status.BatchOpen, Mechanism: "pools", Known: true, Budget: all / 4, Used: workload.MilliCPU(float64(all) / 5 * n.wave(2)), Requested: all / 3, Floor: all / 64, Switch: status.Switch{State: "auto"}},
		Memory: status.BatchMemory{OnlineBytes: memory * 9 / 20, UsedBytes: memory * 3 / 20, GoalBytes: memory / 5, LimitBytes: memory / 5},
		Advice: []control.Advice{{Object: "shop/cache-3/main", Text: "it is throttled often: raise its CPU limit from 2 to 2.5"}},
		Disturbed: []control.Disturbance{
			{Ref: "shop/web-0", Learned: true, Calm: control.Strain{CPUFraction: 0.02}},
			{Ref: "shop/cache-3", Learned: true, Calm: control.Strain{CPUFraction: 0.02}, Excess: control.Strain{CPUFraction: 0.12, RunDelayFraction: 0.04}, Suspects: []control.Suspect{{Ref: "data/index-1", UsageFraction: 0.62}}},
			{Ref: "data/web-4", Learned: true, Excess: control.Strain{IOFraction: 0.31}, Suspects: []control.Suspect{{Ref: "ml/train-6", UsageFraction: 0.5}, {Ref: "data/index-1", UsageFraction: 0.25}}},
		},
	}
	const kept = 30
	for i := max(0, n.asked-kept); i < n.asked; i++ {
		at := now.Add(time.Duration(i-n.asked+1) * time.Second)
		cpus := func(n int) string { return fmt.Sprintf("%d CPUs", n) }
		var d control.Decision
		switch i % 3 {
		case 0:
			from := size/3 + i%5
			d = control.Decision{Controller: "pools", Object: "pool online", Action: "grow", From: cpus(from), To: cpus(from + 2), Why: "load 64% is over its band 45-60%"}
		case 1:
			d = control.Decision{Controller: "burst", Object: fmt.Sprintf("shop/web-%d/main", i), Action: "raise", From: "2", To: "2.4", Why: "throttled in 3 of 10 periods while the pool is at 40%"}
		case 2:
			from := size/3 - i%4
			d = control.Decision{Controller: "batch", Object: "node", Action: "squeeze", From: cpus(from), To: cpus(from - 1), Why: "online work and the system use more than before, and all together may use 65%"}
		}
		l.Decisions = append(l.Decisions, status.Decision{Time: at.Truncate(time.Second), Mode: control.On, Decision: d})
	}
	return l
}

// loads returns the load of each CPU in percent, by its number.
func (n *node) loads() []float64 {
	loads := make([]float64, n.machine.Online.Size())
	for i := range loads {
		loads[i] = 100 * n.wave(i/8) * (0.5 + float64(i%7)/14)
	}
	return loads
}

// handler returns counts of answers; missing ones are 0.
func handler(event string, counts ...uint64) status.Handler {
	all := make([]uint64, len(status.LatencyBounds())+1)
	copy(all, counts)
	return status.Handler{Event: event, Counts: all}
}
