package observe

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	// shortest is the least time over which CPU usage is measured: the kernel shows /proc/stat
	// in ticks of 10 ms, and charges a running task at its own ticks. A measurement that comes
	// sooner changes neither the rate nor its starting point.
	shortest = 40 * time.Millisecond
	// longest is the largest time: a mean over more does not describe the present. It applies
	// to what is measured each second or more often, and longestSlow to the rest.
	longest     = 10 * time.Second
	longestSlow = 90 * time.Second
	// jump is the shift of the wall clock against the monotonic clock from which the wall clock
	// counts as set. Slewing (at most 0.05 %) and a slightly late reading cause smaller shifts.
	jump = 100 * time.Millisecond
)

// Meter computes snapshots from successive readings. Rates are computed over monotonic time.
// They are unknown (the At of their part is zero) at the first measurement, after a counter
// went back and after a gap. The zero Meter is ready for use.
type Meter struct {
	mono time.Duration // monotonic time of the last measurement
	wall time.Time     // wall clock of the last measurement; no part of a snapshot is newer

	cpus     NodeCPUTimes // counters of the last measurement that computed rates
	pressure PressureTotals
	memory   MemoryCounters
	known    Snapshot // the node's parts of the last snapshot

	snapshots  uint64 // number of snapshots so far
	missed     bool   // the last reading was older than the one before, and changed nothing
	sequence   uint64
	byID       map[string]*container
	containers []*container // in the order of the last reading
	list       []Container  // what is known of them, in the same order
	spare      []Container  // memory for the next list
}

// container is what the meter knows of one container.
type container struct {
	sequence uint64 // number of the last measurement that included the container
	place    uint64 // number of the last measurement in which its place has been assigned
	last     ContainerReading
	known    *Container // in the meter's list
}

// Observe processes a reading and fills a snapshot, whose memory it reuses. The snapshot's containers are the meter's
// own, which the next Observe changes. A reading that is older than the last changes nothing. Times in a snapshot are
// wall clock times (without Go's monotonic part), so that all can be compared.
func (m *Meter) Observe(r *Reading, into *Snapshot) {
	if m.byID == nil {
		m.byID = map[string]*container{}
	}
	c := &into.Changes
	m.snapshots++
	c.Number, c.Partial, c.Containers = m.snapshots, false, c.Containers[:0]
	missed := m.missed
	m.missed = r.Mono < m.mono
	if !m.missed {
		set := m.follow(r)
		m.node(r)
		if r.Same && !missed {
			m.measureRead(r)
			c.Partial, c.Containers = !set, append(c.Containers, r.Read...)
		} else {
			m.each(r)
		}
	}
	into.Now, into.Node = r.Wall.Round(0), fill(into.Node, &m.known.Node)
	into.CPUs = append(into.CPUs[:0], m.known.CPUs...)
	into.Containers = m.list
}

// fill copies a node into the memory of another.
func fill(memory Node, from *Node) Node {
	nodes := append(memory.Memory.Nodes[:0], from.Memory.Nodes...)
	memory = *from
	memory.Memory.Nodes = nodes
	return memory
}

// follow shifts all known times when the wall clock has been set, so that no measurement looks
// older or newer than it is. It reports whether it has.
func (m *Meter) follow(r *Reading) (set bool) {
	moved := r.Wall.Round(0).Sub(m.wall) - (r.Mono - m.mono)
	set = !m.wall.IsZero() && moved.Abs() >= jump
	if set {
		n := &m.known.Node
		shift(moved, &n.CPU.At, &n.Pressure.At, &n.Memory.At, &n.Load.At, &n.Disk.At)
		for _, c := range m.containers {
			k := c.known
			shift(moved, &k.CPU.At, &k.CPU.StatAt, &k.Pressure.At, &k.RunDelay.At, &k.Memory.At, &k.Swap.At, &k.IO.At, &k.Cache.At, &k.CPI.At)
		}
	}
	m.mono, m.wall = r.Mono, r.Wall.Round(0)
	return set
}

func shift(by time.Duration, at ...*time.Time) {
	for _, t := range at {
		if !t.IsZero() {
			*t = t.Add(by)
		}
	}
}

// measureRead measures the containers of which something was read, if none has come or gone.
func (m *Meter) measureRead(r *Reading) {
	for _, i := range r.Read {
		m.measure(m.containers[i], &r.Containers[i])
	}
}

// each measures the containers, and removes those that are gone.
func (m *Meter) each(r *Reading) {
	m.sequence++
	gone := len(m.containers) // containers that have not been found again
	moved := len(m.containers) != len(r.Containers)
	for i := range r.Containers {
		now := &r.Containers[i]
		var c *container
		if i < len(m.containers) && m.containers[i].last.ID == now.ID {
			c = m.containers[i]
		} else {
			c, moved = m.byID[now.ID], true
		}
		switch {
		case c == nil:
			c = &container{last: ContainerReading{ID: now.ID}, known: &Container{ID: now.ID}}
			m.byID[now.ID] = c
		case c.sequence == m.sequence:
			continue // the container is twice in the reading
		default:
			gone--
		}
		c.sequence = m.sequence
		m.measure(c, now)
	}
	if gone > 0 {
		for id, c := range m.byID {
			if c.sequence != m.sequence {
				delete(m.byID, id)
			}
		}
	}
	if moved {
		m.order(r)
	}
}

// order lists the containers in the order of the reading.
func (m *Meter) order(r *Reading) {
	clear(m.containers)
	m.containers = m.containers[:0]
	m.list, m.spare = slices.Grow(m.spare[:0], len(r.Containers)), m.list
	for i := range r.Containers {
		if c := m.byID[r.Containers[i].ID]; c.place != m.sequence {
			c.place = m.sequence
			m.containers, m.list = append(m.containers, c), append(m.list, *c.known)
			c.known = &m.list[len(m.list)-1] // which has room for all
		}
	}
}

// rate describes how a counter changed.
type rate struct {
	over  time.Duration
	first bool // there is no earlier value to compare with
	early bool // too little time has passed
	gap   bool // too much time has passed
}

// since describes the time between two measurements. The earlier one may be missing.
func since(before, now, least, most time.Duration) rate {
	over := now - before
	return rate{over, before == 0, before != 0 && over < least, before != 0 && over > most}
}

// perSecond returns a counter's rate, or 0 if it is unknown.
func (r rate) perSecond(before, now int64) float64 {
	if r.first || r.gap || now < before {
		return 0
	}
	return float64(now-before) / r.over.Seconds()
}

// milli returns CPU time over the interval, in thousandths of a CPU.
func (r rate) milli(used time.Duration) workload.MilliCPU {
	return workload.MilliCPU((used*1000 + r.over/2) / r.over)
}
