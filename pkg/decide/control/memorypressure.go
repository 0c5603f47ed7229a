package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// The critical mark is the free memory below which allocations are about to wait. It is 4 GiB
// per NUMA node but at most 5 % of the node's memory, since 4 GiB are a quarter of a small
// node, and at least twice the kernel's low watermarks.
//
// Free memory alone says little, because page cache fills it on any node that has been up for a
// while. So below the mark batch work only gives up page cache, with a rest after each step;
// there is no rest where tasks reclaim for themselves or little memory is available. A pod is
// evicted only if the droppable memory is below the mark as well, or if tasks reclaim for
// themselves and batch work has nothing more to give.
const (
	criticalPerNode = 4 * gib
	criticalPercent = 5

	poolReclaimPercent = 95 // percent of the pool's limit
	poolEvictPercent   = 98

	// urgentPause is the least number of intervals between two evictions while memory is about
	// to run out. It lets the figures show the effect of the first.
	urgentPause = 2

	// evictionTakes is the number of intervals until an eviction has an effect: one until it is
	// requested, one until the runtime has ended the pod, and one because figures may be old.
	evictionTakes = 3

	// The count of a NUMA node rises by 1 at each measurement under pressure and decays by a
	// fifth at each, so that it converges to 5. It passes 2 after two or three measurements and
	// 4 after eight.
	numaDecay   = 0.8
	numaReclaim = 2
	numaEvict   = 4
)

// pressing is the present memory pressure.
type pressing struct {
	node     bool // usage passed EvictPercent and has not fallen by the margin since
	critical int  // consecutive measurements below the critical mark
	numa     []float64
	worst    int // NUMA node with the highest count
	at       time.Time
	pool     int  // pool that nears its limit; -1 if none does
	evict    bool // the pool is so near its limit that a pod must be evicted
	used     int64
	why      memoryCause // cause of the last reclaim
}

// memoryCause is the reason for reclaiming memory.
type memoryCause int

const (
	noCause memoryCause = iota
	overGoal
	belowCritical
	belowHeadroom
	numaShort
	poolShort
)

// evictCause is the reason for evicting a pod.
type evictCause int

const (
	noEviction evictCause = iota
	evictCritical
	evictNode
	evictOutrun
	evictNUMA
	evictPool
)

// String returns the cause under which the eviction is counted.
func (c evictCause) String() string {
	return [...]string{"", "critical-memory", "node-memory", "outrun-memory", "numa-memory", "pool-memory"}[c]
}

// press answers memory pressure with reclaim, and requests an eviction where that is not
// enough.
func (m *Memory) press(v *View) {
	m.watch(v)
	w := m.want(v)
	if v.NoReclaim && w.cacheOnly { // only the batch cgroup's limit is available, which never goes below the goal
		w = wanted{}
	}
	m.pressing.why = w.why
	m.distribute(v, w)
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

// watch updates the measures of pressure.
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

// watchNUMA updates the counts of the NUMA nodes. On a node with only one, the totals say the
// same.
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

// watchPools finds the first pool that nears its limit. It skips the batch pool, whose limit is
// part of the batch cgroup's: batch work may use all of that.
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

// poolMemory returns the memory of the pool's containers without page cache that can be dropped
// at no cost.
func poolMemory(v *View, pool int) int64 {
	var used int64
	for i := range v.Containers {
		if c := &v.Containers[i]; c.Pool == pool {
			used += c.Container.Memory.WorkingSet
		}
	}
	return used
}

// want returns how much memory to reclaim, for the most pressing cause.
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

// reason writes the sentence for the cause.
func (m *Memory) reason(v *View, why memoryCause) string {
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

// evict returns a request for an eviction where reclaim is not enough, or nil. It writes the
// reason again only if it has changed.
func (m *Memory) evict(v *View) *EvictRequest {
	why, next := m.mustEvict(v)
	if why == noEviction {
		m.evictWhy = why
		return nil
	}
	next.Resource, next.Why, next.Cause = ResourceMemory, m.request.Why, why.String()
	if changed := next.Need - m.writtenNeed; why != m.evictWhy || max(changed, -changed) >= bytesPart(m.sum.total, 1) {
		next.Why, m.writtenNeed = m.sayEvict(v, why), next.Need
	}
	m.evictWhy, m.request = why, next
	return &m.request
}

// mustEvict returns the most pressing reason for an eviction, and the amount that would be
// enough.
func (m *Memory) mustEvict(v *View) (evictCause, EvictRequest) {
	p, s, n := &m.pressing, &m.sum, &v.Node.Memory
	mark, urgent := m.mark(v), urgentPause*m.pace.interval
	switch {
	case p.critical > 1 && (s.available < mark || s.direct > 0 && !m.requested):
		return evictCritical, EvictRequest{Need: max(mark-s.available, mib), Pause: urgent, Urgent: true}
	case p.node && !m.offloads():
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
		return m.reason(v, belowCritical) + fmt.Sprintf(", and %s could be had by dropping page cache", MemoryText(s.available))
	case evictNode:
		return fmt.Sprintf("%d%% of the node's memory is in use, over %d%%; batch goes until it is %d%%",
			percentOf(s.total-s.available, s.total), m.cfg.EvictPercent, m.cfg.EvictPercent-m.cfg.EvictMarginPercent)
	case evictOutrun:
		return m.reason(v, overGoal) + fmt.Sprintf("; online grows by %s a second, faster than reclaim gives: %s a second",
			MemoryText(int64(m.rising)), MemoryText(int64(m.giving)))
	case evictNUMA:
		return m.reason(v, numaShort) + ", and tasks reclaim there for themselves"
	}
	return m.reason(v, poolShort)
}

// outrun reports whether online work will have used up the available memory before reclaim has
// brought batch work down to its goal: available/growth < excess/giving. Reclaim is assumed to
// free a full step in each interval until it has freed less. As long as the available memory
// lasts for longer than an eviction takes, the answer is no: the growth of most services that
// start ends before then and does no harm.
func (m *Memory) outrun(mark int64) bool {
	s := &m.sum
	kept := s.batch.NonCache()
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
