package observe

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// measure updates what is known of a container from its reading.
func (m *Meter) measure(c *container, now *ContainerReading) {
	if now.CPU.Mono != 0 {
		m.cpu(c, &now.CPU)
	}
	if now.Throttling.Mono != 0 {
		m.throttling(c, &now.Throttling)
	}
	if now.Pressure.Mono != 0 {
		c.known.Pressure = m.stalls(&c.last.Pressure, &now.Pressure, c.known.Pressure, 0)
	}
	if now.RunDelay.Mono != 0 {
		m.runDelay(c, &now.RunDelay)
	}
	if now.Memory.Mono != 0 {
		m.containerMemory(c, &now.Memory)
	}
	if s := &now.Swap; s.Mono > c.last.Swap.Mono {
		c.known.Swap, c.last.Swap = ContainerSwap{m.wall, s.Used, s.Free}, *s
	}
	if now.IO.Mono != 0 {
		m.io(c, &now.IO)
	}
	if now.Cache.Mono != 0 {
		m.cache(c, &now.Cache)
	}
	if now.CPI.Mono != 0 {
		m.cpi(c, &now.CPI)
	}
}

func (m *Meter) cpu(c *container, now *CPUCounters) {
	last, k := &c.last.CPU, &c.known.CPU
	t := since(last.Mono, now.Mono, shortest, longest)
	if t.early {
		return
	}
	k.At, k.Interval, k.Usage = time.Time{}, 0, 0
	if !t.first && !t.gap && now.Usage >= last.Usage {
		k.At, k.Interval, k.Usage = m.wall, t.over, t.milli(now.Usage-last.Usage)
		// The usage can exceed the machine's CPUs because of the time between reading the clock
		// and the counter, in which another task may have run here: a reader can wait for a
		// CPU.
		if n := m.online(); n > 0 {
			k.Usage = min(k.Usage, workload.MilliCPU(n)*1000)
		}
	}
	*last = *now
}

func (m *Meter) throttling(c *container, now *ThrottlingCounters) {
	last, k := &c.last.Throttling, &c.known.CPU
	t := since(last.Mono, now.Mono, shortest, longest)
	if t.early {
		return
	}
	k.StatAt, k.Periods, k.Throttled, k.ThrottledTime = time.Time{}, 0, 0, 0
	periods, throttled, over := now.Periods-last.Periods, now.Throttled-last.Throttled, now.Time-last.Time
	if !t.first && !t.gap && periods >= 0 && throttled >= 0 && over >= 0 {
		k.StatAt, k.Periods, k.Throttled, k.ThrottledTime = m.wall, periods, throttled, over
	}
	*last = *now
}

func (m *Meter) runDelay(c *container, now *DelayCounter) {
	last := &c.last.RunDelay
	t := since(last.Mono, now.Mono, 0, longestSlow)
	if t.over == 0 {
		return
	}
	c.known.RunDelay = RunDelay{}
	if !t.first && !t.gap && now.Total >= last.Total {
		c.known.RunDelay = RunDelay{m.wall, float64(now.Total-last.Total) / float64(t.over)}
	}
	*last = *now
}

func (m *Meter) containerMemory(c *container, now *ContainerMemoryCounters) {
	last := &c.last.Memory
	t := since(last.Mono, now.Mono, 0, longestSlow)
	if t.over == 0 {
		return
	}
	c.known.Memory = ContainerMemory{
		At: m.wall, Current: now.Current, Anon: now.Anon,
		WorkingSet: max(0, now.Current-now.InactiveFile), Cache: now.ActiveFile + now.InactiveFile,
		Refaults: t.perSecond(last.Refaults, now.Refaults), Direct: t.perSecond(last.DirectScans, now.DirectScans),
		OOMKills: now.OOMKills,
	}
	*last = *now
}

func (m *Meter) io(c *container, now *IOCounters) {
	last := &c.last.IO
	t := since(last.Mono, now.Mono, 0, longestSlow)
	if t.over == 0 {
		return
	}
	c.known.IO = ContainerIO{}
	// The bytes of a removed disk disappear from the sums.
	if !t.first && !t.gap && now.Read >= last.Read && now.Written >= last.Written {
		c.known.IO = ContainerIO{m.wall, t.perSecond(last.Read, now.Read), t.perSecond(last.Written, now.Written)}
	}
	*last = *now
}

func (m *Meter) cache(c *container, now *CacheCounters) {
	last := &c.last.Cache
	t := since(last.Mono, now.Mono, 0, longestSlow)
	if t.over == 0 {
		return
	}
	k := &c.known.Cache
	*k = Cache{m.wall, now.Occupancy, k.Bandwidth, now.L3s}
	switch moved, known := movedSince(last.L3s, now.L3s); {
	case t.first || t.gap || len(last.L3s) != len(now.L3s):
		k.Bandwidth = 0
	case known:
		k.Bandwidth = t.perSecond(0, moved)
	case countsAll(last.L3s):
		// The kernel can't read some counter now. The bandwidth stays as it was, since 0 would
		// pass for a service's traffic alone, and the next reading is compared with the last
		// whole one, for as long as longestSlow.
		return
	}
	*last = *now
}

// movedSince sums what a container has moved to and from memory between two readings. It is negative
// if a counter went back, and unknown where the two readings don't have the same counters.
func movedSince(last, now []L3) (sum int64, known bool) {
	if len(last) != len(now) {
		return 0, false
	}
	back := false
	for i := range now {
		from, to := last[i].TotalBytes, now[i].TotalBytes
		if from < 0 && to < 0 {
			from, to = last[i].LocalBytes, now[i].LocalBytes
		}
		if last[i].ID != now[i].ID || from < 0 || to < 0 {
			return 0, false
		}
		back = back || to < from
		sum += to - from
	}
	if back {
		return -1, true
	}
	return sum, true
}

// countsAll reports whether a reading has what was moved by way of each cache.
func countsAll(caches []L3) bool {
	return !slices.ContainsFunc(caches, func(c L3) bool { return c.TotalBytes < 0 && c.LocalBytes < 0 })
}

func (m *Meter) cpi(c *container, now *CPICounters) {
	if now.Mono <= c.last.CPI.Mono {
		return
	}
	c.last.CPI, c.known.CPI = *now, CPI{}
	if now.Over > 0 && now.Used >= 0 && now.Cycles > 0 && now.Instructions > 0 {
		c.known.CPI = CPI{m.wall, now.Over, now.Cycles / now.Instructions, rate{over: now.Over}.milli(now.Used)}
	}
}
