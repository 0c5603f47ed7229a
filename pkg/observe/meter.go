package observe

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	// shortest is the least time over which CPU use is measured: the kernel shows
	// /proc/stat in ticks of 10 ms, and charges a running task at its own ticks.
	// Looks that come sooner leave the rate, and what it is measured from, as it is.
	shortest = 40 * time.Millisecond
	// longest is the most: a mean over more says nothing about now. It is for what is
	// looked at each second or more often, longestSlow for the rest.
	longest     = 10 * time.Second
	longestSlow = 90 * time.Second
	// jump is how far the wall clock moves against the other one before it was set,
	// not slewed (at most 0.05 %) or read a little later.
	jump = 100 * time.Millisecond
)

// Meter turns successive readings into snapshots. Rates are over the time of the
// clock that nobody sets, and unknown (their part's At is zero) at the first look, after
// a counter went back and after a gap. The zero Meter is ready.
type Meter struct {
	mono time.Duration // of the last look
	wall time.Time     // of the last look: what is measured then is never newer than the snapshot

	cpus     NodeCPUTimes // of the last look that measured
	pressure PressureTotals
	memory   MemoryCounters
	known    Snapshot // the node's parts

	look       uint64
	byID       map[string]*container
	containers []*container // in the order of the last reading
}

// container is what the meter knows of one.
type container struct {
	look  uint64 // the last that it was part of
	place uint64 // the last in which it has its place
	last  ContainerReading
	known Container
}

// Observe measures a reading and fills a snapshot, whose memory it uses again. A
// reading that is older than the last changes nothing. Times in a snapshot are the
// wall clock's alone (without Go's monotonic part), so that all can be compared.
func (m *Meter) Observe(r *Reading, into *Snapshot) {
	if m.byID == nil {
		m.byID = map[string]*container{}
	}
	if r.Mono >= m.mono {
		m.follow(r)
		m.node(r)
		m.each(r)
	}
	into.Now, into.Node = r.Wall.Round(0), fill(into.Node, &m.known.Node)
	into.CPUs = append(into.CPUs[:0], m.known.CPUs...)
	into.Containers = into.Containers[:0]
	for _, c := range m.containers {
		into.Containers = append(into.Containers, c.known)
	}
}

// fill copies a node into the memory of another.
func fill(memory Node, from *Node) Node {
	nodes := append(memory.Memory.Nodes[:0], from.Memory.Nodes...)
	memory = *from
	memory.Memory.Nodes = nodes
	return memory
}

// follow moves all that is known along where the wall clock was set, so that nothing
// looks older or newer than it is.
func (m *Meter) follow(r *Reading) {
	moved := r.Wall.Round(0).Sub(m.wall) - (r.Mono - m.mono)
	if !m.wall.IsZero() && moved.Abs() >= jump {
		n := &m.known.Node
		shift(moved, &n.CPU.At, &n.Pressure.At, &n.Memory.At, &n.Load.At, &n.Disk.At)
		for _, c := range m.containers {
			k := &c.known
			shift(moved, &k.CPU.At, &k.CPU.StatAt, &k.Pressure.At, &k.RunDelay.At, &k.Memory.At, &k.IO.At, &k.Cache.At)
		}
	}
	m.mono, m.wall = r.Mono, r.Wall.Round(0)
}

func shift(by time.Duration, at ...*time.Time) {
	for _, t := range at {
		if !t.IsZero() {
			*t = t.Add(by)
		}
	}
}

// each measures the containers, and forgets those that are gone.
func (m *Meter) each(r *Reading) {
	m.look++
	gone := len(m.containers) // that are not found again
	for i := range r.Containers {
		now := &r.Containers[i]
		var c *container
		if i < len(m.containers) && m.containers[i].last.ID == now.ID {
			c = m.containers[i]
		} else {
			c = m.byID[now.ID]
		}
		switch {
		case c == nil:
			c = &container{last: ContainerReading{ID: now.ID}, known: Container{ID: now.ID}}
			m.byID[now.ID] = c
		case c.look == m.look:
			continue // twice in a reading
		default:
			gone--
		}
		c.look = m.look
		m.measure(c, now)
	}
	if gone > 0 {
		for id, c := range m.byID {
			if c.look != m.look {
				delete(m.byID, id)
			}
		}
	}
	m.containers = m.order(r)
}

// order lists the containers as the reading does.
func (m *Meter) order(r *Reading) []*container {
	same := len(m.containers) == len(r.Containers)
	for i := 0; same && i < len(m.containers); i++ {
		same = m.containers[i].last.ID == r.Containers[i].ID
	}
	if same {
		return m.containers
	}
	clear(m.containers)
	list := m.containers[:0]
	for i := range r.Containers {
		if c := m.byID[r.Containers[i].ID]; c.place != m.look {
			c.place = m.look
			list = append(list, c)
		}
	}
	return list
}

// rate is what a counter did.
type rate struct {
	over  time.Duration
	first bool // there is nothing to compare with
	early bool // too soon to tell
	gap   bool // too late to tell
}

// since tells the time between two looks, the earlier of which may be none.
func since(before, now, least, most time.Duration) rate {
	over := now - before
	return rate{over, before == 0, before != 0 && over < least, before != 0 && over > most}
}

// perSecond is a counter's rate; 0 where it is not known.
func (r rate) perSecond(before, now int64) float64 {
	if r.first || r.gap || now < before {
		return 0
	}
	return float64(now-before) / r.over.Seconds()
}

// milli is CPU time over the interval, in thousandths of a CPU.
func (r rate) milli(used time.Duration) workload.MilliCPU {
	return workload.MilliCPU((used*1000 + r.over/2) / r.over)
}
