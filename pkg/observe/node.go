package observe

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// node measures the machine.
func (m *Meter) node(r *Reading) {
	m.nodeCPU(&r.CPU)
	if r.Pressure.Mono != 0 {
		m.known.Node.Pressure = m.stalls(&m.pressure, &r.Pressure, m.known.Node.Pressure, shortest)
	}
	if r.Memory.Mono != 0 {
		m.nodeMemory(&r.Memory)
	}
	if r.Load.Mono != 0 {
		m.known.Node.Load = Load{At: r.Wall.Round(0), Tasks: r.Load.Value}
	}
	if r.Disk.Mono != 0 {
		m.known.Node.Disk = Disk{At: r.Wall.Round(0), Used: r.Disk.Value}
	}
}

func (m *Meter) nodeCPU(now *NodeCPUTimes) {
	if now.Mono == 0 {
		return
	}
	t := since(m.cpus.Mono, now.Mono, shortest, longest)
	if t.early || !t.first && !t.gap && slices.Equal(m.cpus.CPUs, now.CPUs) { // no tick was counted, as in a virtual machine that was paused
		return
	}
	n := &m.known.Node
	for len(m.known.CPUs) < len(now.CPUs) {
		m.known.CPUs = append(m.known.CPUs, CPU{})
	}
	var usage, steal float64
	var known bool
	for i := range m.known.CPUs {
		c := &m.known.CPUs[i]
		*c = CPU{}
		if t.first || t.gap || i >= len(now.CPUs) || i >= len(m.cpus.CPUs) {
			continue
		}
		busy, stolen, ok := share(&m.cpus.CPUs[i], &now.CPUs[i])
		if ok {
			*c, known = CPU{Busy: busy, Known: true}, true
			usage += busy
			steal += stolen
		}
	}
	n.CPU, n.Steal = NodeCPU{}, 0
	if known {
		n.CPU = NodeCPU{m.wall, t.over, workload.MilliCPU(usage*1000 + 0.5)}
		n.Steal = steal
	}
	m.cpus.Mono, m.cpus.CPUs = now.Mono, append(m.cpus.CPUs[:0], now.CPUs...)
}

// share returns which share of a CPU's time was busy and which was stolen. The shares are of
// the ticks that the CPU counted, not of the clock, since 100 ms may have 9 or 11 ticks, so
// that they never exceed 1. They are unknown if the CPU was offline or its times went back.
func share(before, now *CPUTime) (busy, steal float64, ok bool) {
	if !before.Online || !now.Online || now.Busy < before.Busy || now.Steal < before.Steal {
		return 0, 0, false
	}
	b, s := now.Busy-before.Busy, now.Steal-before.Steal
	all := b + s + max(0, now.Idle-before.Idle) + max(0, now.IOWait-before.IOWait)
	if all == 0 {
		return 0, 0, false
	}
	return float64(b) / float64(all), float64(s) / float64(all), true
}

// online returns the number of CPUs in the last measurement; 0 if unknown.
func (m *Meter) online() int {
	n := 0
	for _, c := range m.cpus.CPUs {
		if c.Online {
			n++
		}
	}
	return n
}

// stalls measures pressure and saves the totals in last. The first measurement is the kernel's
// own mean over 10 s.
func (m *Meter) stalls(last, now *PressureTotals, known Pressure, least time.Duration) Pressure {
	most := longest
	if least == 0 {
		most = longestSlow
	}
	t := since(last.Mono, now.Mono, least, most)
	if t.early || t.over == 0 {
		return known
	}
	p := Pressure{At: m.wall}
	back := false
	for _, s := range [...]struct {
		share       *float64
		before, now *Stall
	}{
		{&p.CPU, &last.CPU, &now.CPU},
		{&p.Memory, &last.Memory, &now.Memory}, {&p.MemoryFull, &last.MemoryFull, &now.MemoryFull},
		{&p.IO, &last.IO, &now.IO}, {&p.IOFull, &last.IOFull, &now.IOFull},
	} {
		back = back || s.now.Total < s.before.Total
		if t.first || t.gap {
			*s.share = min(1, max(0, s.now.Avg10))
		} else {
			// The kernel's clock and ours are read one after another, so that the quotient may
			// exceed 1.
			*s.share = min(1, float64(s.now.Total-s.before.Total)/float64(t.over))
		}
	}
	*last = *now
	if back {
		return Pressure{}
	}
	return p
}

func (m *Meter) nodeMemory(now *MemoryCounters) {
	t := since(m.memory.Mono, now.Mono, 0, longestSlow)
	if t.over == 0 {
		return
	}
	k := &m.known.Node.Memory
	nodes := k.Nodes[:0]
	for i, n := range now.Nodes {
		one := NUMANode{Total: n.Total, Free: n.Free, Reclaimable: n.Cache}
		if i < len(m.memory.Nodes) {
			one.Direct = t.perSecond(m.memory.Nodes[i].DirectScans, n.DirectScans)
		}
		nodes = append(nodes, one)
	}
	*k = NodeMemory{
		At: m.wall, Total: now.Total, HugePages: now.HugePages, Available: now.Available, Free: now.Free, Anon: now.Anon,
		Cache: now.Cache, Low: now.Low, Direct: t.perSecond(m.memory.DirectScans, now.DirectScans), Nodes: nodes,
		SwapTotal: now.SwapTotal, SwapFree: now.SwapFree, SwapWrites: t.perSecond(m.memory.SwapWritten, now.SwapWritten), SwapInMemory: now.SwapInMemory, SwapHeld: now.SwapHeld,
	}
	kept := append(m.memory.Nodes[:0], now.Nodes...)
	m.memory = *now
	m.memory.Nodes = kept
}
