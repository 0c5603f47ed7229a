package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology"
)

// memory is the node's memory.
type memory struct {
	total, system    int64
	low, high, least int64   // watermarks of free memory, summed over the zones
	free             int64   // free memory now
	direct           float64 // pages per second that tasks reclaimed directly
	awake            bool    // background reclaim is in progress
}

// held is the memory of one container.
type held struct {
	anon, cache int64
	direct      float64 // pages per second that it reclaimed directly
	refaults    float64
	stall       float64 // seconds in this step in which one of its tasks waited for memory
	oomKills    int64
}

func (h *held) all() int64 { return h.anon + h.cache }

const page = 4096

// init sets the watermarks as Linux does: calculate_min_free_kbytes gives √(16 × KiB), within 128
// KiB to 256 MiB; the other watermarks lie a quarter of that or 0.1 % of the memory apart
// (__setup_per_zone_wmarks in mm/page_alloc.c). The system itself holds 2 % (an assumption).
func (m *memory) init(machine *topology.Machine) {
	m.total = machine.Memory(machine.MemoryNodes())
	m.system = m.total / 50
	kib := min(max(math.Sqrt(16*float64(m.total)/1024), 128), 256*1024)
	m.least = int64(kib) * 1024
	apart := max(m.least/4, m.total/1000)
	m.low, m.high = m.least+apart, m.least+2*apart
	m.free = m.total - m.system
}

// returning is the fraction of dropped page cache that is soon read again (an assumption).
const returning = 0.25

// stalled is the 99th percentile in seconds of what direct reclaim costs a task (an assumption;
// measured values are 1 to 100 ms).
const stalled = 10e-3

// runMemory moves each container's memory towards what it wants, and returns the containers that
// the kernel kills for it.
func (n *simNode) runMemory(now time.Duration) (killed []*container) {
	m := &n.memory
	m.free = m.total - m.system
	for _, c := range n.containers {
		m.free -= c.held.all()
		c.held.direct, c.held.stall, c.held.refaults = 0, 0, 0
	}
	m.direct = 0
	n.count()
	for _, c := range n.containers {
		if victim := n.grow(c, now); victim != nil && !slices.Contains(killed, victim) {
			victim.held.oomKills++
			killed = append(killed, victim)
		}
	}
	n.reclaim()
	if m.free < 0 {
		if victim := n.worst(n.containers); victim != nil && !slices.Contains(killed, victim) {
			victim.held.oomKills++
			killed = append(killed, victim)
		}
	}
	return killed
}

// grow gives a container the memory that it wants now, and returns the container that is killed
// for it at a limit.
func (n *simNode) grow(c *container, now time.Duration) (victim *container) {
	h, spec := &c.held, &c.Memory
	dt := n.step.Seconds()
	speed := int64(float64(spec.Speed) * dt)
	load := 1.0
	if top := float64(c.Load.CPU); top > 0 {
		load = min(1, c.load.level*c.pod.scale/top) // the heap ignores the noise
	}
	want := int64(float64(spec.Anon)*(float64(spec.Low)+(1-float64(spec.Low))*load)) + int64(float64(spec.Leak)*(now-c.since).Hours())
	more := min(want-h.anon, speed)
	if more < 0 {
		n.add(c, -min(-more, speed), 0)
		more = 0
	}
	for _, l := range c.ceilings {
		over := l.held + more - min(l.high, l.hard)
		if over <= 0 {
			continue
		}
		cacheLeft := n.squeeze(l, over, dt)
		if l.held+more > l.hard {
			if !cacheLeft {
				return n.worst(l.under)
			}
			more = max(0, l.hard-l.held) // the task reclaims as long as that gives something (try_charge_memcg)
			h.stall = stalled
		}
		if room := l.high - l.held; more > room { // the kernel throttles the task until there is room (mem_cgroup_handle_over_high)
			more = min(more, max(0, room)+page)
			h.stall = stalled
		}
	}
	if more > 0 {
		n.allocate(c, more, dt)
	}
	high, hard := c.room()
	if room := min(int64(spec.Cache)-h.cache, high, hard, speed/4, n.memory.free-n.memory.low); room > 0 {
		n.add(c, 0, room)
	}
	return nil
}

// ceiling holds the memory.high and memory.max of a cgroup, and the memory of the containers in
// it.
type ceiling struct {
	high, hard int64
	held       int64
	under      []*container
}

// limitMemory finds the ceilings and the protection of each container. The caller holds the
// kernel's lock.
func (n *simNode) limitMemory() {
	n.ceilings = n.ceilings[:0]
	of := map[*group]*ceiling{}
	for _, c := range n.containers {
		c.ceilings = c.ceilings[:0]
		for g := n.Kernel.groups[c.path]; g != nil; g = g.parent {
			high, hard := g.bytes(knobs.MemoryHigh), g.bytes(knobs.MemoryMax)
			if high < 0 && hard < 0 {
				continue
			}
			if of[g] == nil {
				of[g] = &ceiling{high: orMost(high), hard: orMost(hard)}
				n.ceilings = append(n.ceilings, of[g])
			}
			c.ceilings = append(c.ceilings, of[g])
			of[g].under = append(of[g].under, c)
		}
		g := n.Kernel.groups[c.path]
		c.least, c.low = g.bytes(knobs.MemoryMin), g.bytes(knobs.MemoryLow)
	}
}

func orMost(bytes int64) int64 {
	if bytes < 0 {
		return math.MaxInt64
	}
	return bytes
}

// count sums the containers' memory by ceiling.
func (n *simNode) count() {
	for _, l := range n.ceilings {
		l.held = 0
	}
	for _, c := range n.containers {
		for _, l := range c.ceilings {
			l.held += c.held.all()
		}
	}
}

// room returns how many more bytes a container may have by the memory.high and memory.max of its
// own and its parents' cgroups; a negative number means that it has too much.
func (c *container) room() (high, hard int64) {
	high, hard = math.MaxInt64, math.MaxInt64
	for _, l := range c.ceilings {
		high, hard = min(high, l.high-l.held), min(hard, l.hard-l.held)
	}
	return high, hard
}

// add adds memory to a container, or removes it if negative.
func (n *simNode) add(c *container, anon, cache int64) {
	c.held.anon += anon
	c.held.cache += cache
	n.memory.free -= anon + cache
	for _, l := range c.ceilings {
		l.held += anon + cache
	}
}

// squeeze drops page cache of the containers below a ceiling, in equal proportion, and reports
// whether there is more of it than could be dropped in this step.
func (n *simNode) squeeze(l *ceiling, bytes int64, dt float64) (more bool) {
	sum := int64(0)
	for _, c := range l.under {
		sum += c.held.cache
	}
	if sum == 0 {
		return false
	}
	most := int64(float64(n.hardware.Reclaim) * dt)
	part := min(1, float64(min(bytes, most))/float64(sum))
	for _, c := range l.under {
		n.drop(c, int64(math.Ceil(part*float64(c.held.cache))), dt)
	}
	return sum > most
}

// drop frees page cache of a container.
func (n *simNode) drop(c *container, bytes int64, dt float64) {
	n.add(c, 0, -bytes)
	c.held.refaults += returning * float64(bytes) / page / dt
}

// reclaimFrom implements memory.reclaim of a cgroup. It takes no virtual time.
func (n *simNode) reclaimFrom(path string, bytes knobs.Bytes) error {
	left := int64(bytes)
	for _, c := range n.containers {
		if c.path == path || strings.HasPrefix(c.path, path+"/") {
			got := min(left, c.held.cache)
			n.drop(c, got, n.step.Seconds())
			left -= got
		}
	}
	if left > 0 {
		return fmt.Errorf("memory.reclaim of %s: %d bytes less than asked for: %w", path, left, cgroupfs.ErrPartial)
	}
	return nil
}

// allocate takes free memory. Below the lowest watermark, the task has to reclaim memory itself
// (direct reclaim), and waits for it.
func (n *simNode) allocate(c *container, bytes int64, dt float64) {
	m := &n.memory
	n.add(c, bytes, 0)
	if m.free >= m.least {
		return
	}
	got := n.take(min(m.least-m.free, int64(float64(n.hardware.Reclaim)*dt)))
	c.held.direct += float64(got) / page / dt
	c.held.stall = stalled
	m.direct += float64(got) / page / dt
}

// reclaim implements background reclaim (kswapd): it begins below the low watermark and ends at
// the high one.
func (n *simNode) reclaim() {
	m := &n.memory
	m.awake = m.free < m.low || m.awake && m.free < m.high
	if m.awake {
		n.take(min(m.high-m.free, int64(float64(n.hardware.Reclaim)*n.step.Seconds())))
	}
}

// take drops page cache of all containers, in proportion to what each has above its protection. If
// nobody has any above it, it drops what memory.low protects.
func (n *simNode) take(bytes int64) (got int64) {
	for _, protected := range []func(*container) int64{(*container).protectedLow, (*container).protectedMin} {
		sum := int64(0)
		for _, c := range n.containers {
			sum += c.loose(protected)
		}
		if sum == 0 {
			continue
		}
		part := min(1, float64(bytes-got)/float64(sum))
		for _, c := range n.containers {
			drop := int64(part * float64(c.loose(protected)))
			n.drop(c, drop, n.step.Seconds())
			got += drop
		}
		if part < 1 {
			break
		}
	}
	return got
}

// loose returns the page cache of a container that may be dropped.
func (c *container) loose(protected func(*container) int64) int64 {
	return max(0, min(c.held.cache, c.held.all()-protected(c)))
}

func (c *container) protectedLow() int64 { return max(c.low, c.least) }

func (c *container) protectedMin() int64 { return c.least }

// worst returns the container that the OOM killer chooses: the one with the highest sum of its
// memory in thousandths of the node's and its score (oom_badness in mm/oom_kill.c).
func (n *simNode) worst(of []*container) *container {
	var worst *container
	most := math.Inf(-1)
	for _, c := range of {
		const never = -1000
		points := float64(c.held.anon)/float64(n.memory.total)*1000 + float64(c.score)
		if c.score > never && points > most {
			worst, most = c, points
		}
	}
	return worst
}
