package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// The critical mark is free memory below which allocations are about to wait: 4 GiB
// on each NUMA node, but at most 5 % of the node's memory, since 4 GiB are a quarter of
// a small one; and never less than twice the kernel's low watermarks.
//
// Free memory alone says little: the page cache fills it on any node that has been up
// for a while. So below the mark batch gives its cache back, with a rest after each
// step, without one where tasks reclaim for themselves or little is available. It is
// evicted only where what could be dropped is below the mark as well, or tasks do
// reclaim for themselves and batch has nothing more to give.
const (
	criticalPerNode = 4 * gib
	criticalPercent = 5

	poolReclaimPercent = 95 // of the pool's limit
	poolEvictPercent   = 98

	// Where memory is about to end, the next eviction waits for no more than figures
	// that show the one before, in intervals.
	urgentPause = 2

	// An eviction has an effect after so many intervals: one until it is asked for, one
	// until the runtime has ended the pod, one that figures may be old.
	evictionTakes = 3

	// A NUMA node counts 1 for each look under pressure, of which a fifth decays at
	// each: 5 in the end. 2 takes two or three looks, 4 takes eight.
	numaDecay   = 0.8
	numaReclaim = 2
	numaEvict   = 4
)

// pressing is which pressure there is.
type pressing struct {
	node     bool // over EvictPercent, and not yet the margin under
	critical int  // looks in a row below the critical mark
	numa     []float64
	worst    int // NUMA node with the highest count
	at       time.Time
	pool     int  // over its limit, -1 none
	evict    bool // of that pool
	used     int64
	why      memoryCause // of the last reclaim
}

// memoryCause is why memory is wanted.
type memoryCause int

const (
	noCause memoryCause = iota
	overGoal
	belowCritical
	belowHeadroom
	numaShort
	poolShort
)

// evictCause is why somebody has to go.
type evictCause int

const (
	noEviction evictCause = iota
	evictCritical
	evictNode
	evictOutrun
	evictNUMA
	evictPool
)

// String is the cause as it is counted.
func (c evictCause) String() string {
	return [...]string{"", "critical-memory", "node-memory", "outrun-memory", "numa-memory", "pool-memory"}[c]
}

// press answers pressure: with reclaim, and where that is not enough with a request to
// evict.
func (m *Memory) press(v *View) {
	m.watch(v)
	w := m.want(v)
	if v.NoReclaim && w.cacheOnly { // there is only the box's limit, which doesn't go below the goal
		w = wanted{}
	}
	m.pressing.why = w.why
	m.take(v, w)
	m.desired.Evict = m.evict(v)
}

func criticalMark(nodes int, total, low int64) int64 {
	return max(min(int64(max(nodes, 1))*criticalPerNode, bytesPart(total, criticalPercent)), 2*low)
}

func numaNodes(n *observe.NodeMemory) int {
	count := 0
	for i := range n.Nodes {
		if n.Nodes[i].Total > 0 {
			count++
		}
	}
	return count
}

// watch follows the pressures.
func (m *Memory) watch(v *View) {
	p, s := &m.pressing, &m.sum
	used := s.total - s.available
	if used > bytesPart(s.total, m.cfg.EvictPercent) {
		p.node = true
	} else if used <= bytesPart(s.total, m.cfg.EvictPercent-m.cfg.EvictMarginPercent) {
		p.node = false
	}
	if at := v.Node.Memory.At; at != p.at {
		p.at = at
		if s.free < m.mark(v) {
			p.critical++
		} else {
			p.critical = 0
		}
		m.watchNUMA(&v.Node.Memory)
	}
	m.watchPools(v)
}

func (m *Memory) mark(v *View) int64 {
	return criticalMark(numaNodes(&v.Node.Memory), m.sum.total, m.sum.low)
}

// watchNUMA counts. With one node the whole's figures say the same.
func (m *Memory) watchNUMA(n *observe.NodeMemory) {
	p := &m.pressing
	for len(p.numa) < len(n.Nodes) {
		p.numa = append(p.numa, 0)
	}
	p.worst = 0
	if numaNodes(n) < 2 {
		clear(p.numa)
		return
	}
	for i := range p.numa {
		p.numa[i] *= numaDecay
		if i < len(n.Nodes) && n.Nodes[i].Total > 0 {
			node := &n.Nodes[i]
			mark := criticalMark(1, node.Total, 0)
			if node.Free < mark && node.Free+node.Reclaimable < 2*mark {
				p.numa[i]++
			}
		}
		if p.numa[i] > p.numa[p.worst] {
			p.worst = i
		}
	}
}

// watchPools finds the first pool that nears its limit. The batch pool's is part of
// the box's, which it may fill.
func (m *Memory) watchPools(v *View) {
	p := &m.pressing
	before := p.pool
	p.pool = -1
	for i := range max(len(v.Pools)-1, 0) {
		limit := m.poolLimit(v.Pools[i].Name)
		if limit <= 0 {
			continue
		}
		used := poolMemory(v, i)
		if used <= bytesPart(limit, poolReclaimPercent) {
			continue
		}
		p.evict = used > bytesPart(limit, poolEvictPercent) || p.evict && before == i
		p.pool, p.used = i, used
		return
	}
	p.evict = false
}

// poolMemory is what the pool's containers use, without page cache that nobody misses.
func poolMemory(v *View, pool int) int64 {
	var used int64
	for i := range v.Containers {
		if c := &v.Containers[i]; c.Pool == pool {
			used += c.Container.Memory.WorkingSet
		}
	}
	return used
}

// want finds how much memory to take back, for the most pressing cause.
func (m *Memory) want(v *View) wanted {
	p, s, n := &m.pressing, &m.sum, &v.Node.Memory
	switch mark := m.mark(v); {
	case s.batch.Current > m.desired.Goal && s.known:
		return wanted{why: overGoal, bytes: s.batch.Current - max(m.desired.Goal-bytesPart(s.total, limitDead), leastBatch), pool: -1, pressing: m.rose}
	case p.critical > 0:
		return wanted{why: belowCritical, bytes: mark - s.free, pool: -1, cacheOnly: true, resting: s.direct == 0 && s.available > 2*mark}
	case m.growing() && s.free < s.low+m.desired.Headroom:
		return wanted{why: belowHeadroom, bytes: s.low + m.desired.Headroom - s.free, pool: -1, cacheOnly: true}
	case len(p.numa) > 0 && p.numa[p.worst] >= numaReclaim && p.worst < len(n.Nodes):
		node := &n.Nodes[p.worst]
		return wanted{why: numaShort, bytes: criticalMark(1, node.Total, 0) - node.Free, pool: -1, cacheOnly: true}
	case p.pool >= 0:
		limit := m.poolLimit(v.Pools[p.pool].Name)
		return wanted{why: poolShort, bytes: p.used - bytesPart(limit, poolReclaimPercent), pool: p.pool, cacheOnly: true}
	}
	return wanted{}
}

// growing reports whether online grew enough lately to need more than the least headroom.
func (m *Memory) growing() bool { return m.desired.Headroom > bytesPart(m.sum.total, leastHeadroom) }

// say puts the cause in words.
func (m *Memory) say(v *View, why memoryCause) string {
	s := &m.sum
	switch why {
	case overGoal:
		return fmt.Sprintf("batch holds %s and may hold %s beside online's %s", MemoryText(s.batch.Current), MemoryText(m.desired.Goal), MemoryText(m.online))
	case belowCritical:
		return fmt.Sprintf("%s are free, below the critical mark of %s", MemoryText(s.free), MemoryText(m.mark(v)))
	case belowHeadroom:
		return fmt.Sprintf("%s are free, and online, which grew by %s a second lately, is to find %s over the low watermark of %s",
			MemoryText(s.free), MemoryText(int64(m.growth)), MemoryText(m.desired.Headroom), MemoryText(s.low))
	case numaShort:
		node := &v.Node.Memory.Nodes[m.pressing.worst]
		return fmt.Sprintf("NUMA node %d has %s free of %s", m.pressing.worst, MemoryText(node.Free), MemoryText(node.Total))
	case poolShort:
		pool := &v.Pools[m.pressing.pool]
		return fmt.Sprintf("pool %s uses %s of its limit of %s", pool.Name, MemoryText(m.pressing.used), MemoryText(m.poolLimit(pool.Name)))
	}
	return ""
}

// evict asks for an eviction where reclaim is not enough, nil where it may be. Its
// reason is put in words anew only where it has changed.
func (m *Memory) evict(v *View) *EvictRequest {
	why, next := m.mustEvict(v)
	if why == noEviction {
		m.evictWhy = why
		return nil
	}
	next.Resource, next.Why, next.Cause = ResourceMemory, m.request.Why, why.String()
	if changed := next.Need - m.saidNeed; why != m.evictWhy || max(changed, -changed) >= bytesPart(m.sum.total, 1) {
		next.Why, m.saidNeed = m.sayEvict(v, why), next.Need
	}
	m.evictWhy, m.request = why, next
	return &m.request
}

// mustEvict finds the most pressing reason to evict, and how much would do.
func (m *Memory) mustEvict(v *View) (evictCause, EvictRequest) {
	p, s, n := &m.pressing, &m.sum, &v.Node.Memory
	mark, urgent := m.mark(v), urgentPause*m.pace.interval
	switch {
	case p.critical > 1 && (s.available < mark || s.direct > 0 && !m.asked):
		return evictCritical, EvictRequest{Need: max(mark-s.available, mib), Pause: urgent}
	case p.node:
		return evictNode, EvictRequest{Need: s.total - s.available - bytesPart(s.total, m.cfg.EvictPercent-m.cfg.EvictMarginPercent)}
	case m.outrun(mark):
		return evictOutrun, EvictRequest{Need: s.batch.Current - m.desired.Goal, Pause: urgent}
	case len(p.numa) > 0 && p.numa[p.worst] >= numaEvict && p.worst < len(n.Nodes) && n.Nodes[p.worst].Direct > 0:
		return evictNUMA, EvictRequest{Need: criticalMark(1, n.Nodes[p.worst].Total, 0) - n.Nodes[p.worst].Free}
	case p.pool >= 0 && p.evict:
		return evictPool, EvictRequest{Pool: workload.Some(p.pool), Need: p.used - bytesPart(m.poolLimit(v.Pools[p.pool].Name), poolReclaimPercent)}
	}
	return noEviction, EvictRequest{}
}

func (m *Memory) sayEvict(v *View, why evictCause) string {
	s := &m.sum
	switch why {
	case evictCritical:
		return m.say(v, belowCritical) + fmt.Sprintf(", and %s could be had by dropping page cache", MemoryText(s.available))
	case evictNode:
		return fmt.Sprintf("%d%% of the node's memory is in use, over %d%%; batch goes until it is %d%%",
			percentOf(s.total-s.available, s.total), m.cfg.EvictPercent, m.cfg.EvictPercent-m.cfg.EvictMarginPercent)
	case evictOutrun:
		return m.say(v, overGoal) + fmt.Sprintf("; online grows by %s a second, faster than reclaim gives: %s a second",
			MemoryText(int64(m.rising)), MemoryText(int64(m.giving)))
	case evictNUMA:
		return m.say(v, numaShort) + ", and tasks reclaim there for themselves"
	}
	return m.say(v, poolShort)
}

// outrun reports whether online will have taken what is available before reclaim has
// brought batch down to its goal: available/growth < excess/giving. What reclaim gives
// is taken for a full step an interval until it has given less. While what is available
// lasts for longer than an eviction takes, there is nothing to outrun: growth that ends
// before, as that of most services which start, costs nobody anything.
func (m *Memory) outrun(mark int64) bool {
	s := &m.sum
	kept := s.batch.Kept()
	if !s.known || m.rising < float64(mib) || kept <= m.desired.Goal {
		return false
	}
	giving := m.giving
	if m.release.misses == 0 {
		giving = max(giving, float64(max(leastRelease, bytesPart(s.total, releasePercent)))/m.pace.interval.Seconds())
	}
	left := float64(max(s.available-mark, 0)) / m.rising
	need := float64(s.batch.Current-m.desired.Goal) / max(giving, float64(mib))
	return left < min(need, evictionTakes*m.pace.interval.Seconds())
}
