package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Memory decides how much memory batch work may hold, how much is reclaimed from it before
// online work would have to wait for memory, and when a pod is evicted.
//
// The goal is the memory that batch work may hold in the end:
//
//	goal = safe % × total − online − reserve − headroom
//
// Online is the memory in use that can't be dropped (total − available), without batch work's
// part of it (current − page cache). Memory that zram takes for swapped pages counts like the
// reserve. The limit of the batch pool bounds the goal too.
//
// Headroom is what online work may take before the loop can react, so that it finds free memory
// and need not reclaim:
//
//	headroom = growth × 3 intervals, at least 1 % and at most HeadroomPercent of total
//
// One interval passes until a growth is measured and one until the memory is reclaimed, and the
// sampler's figures may be one interval old. Growth is the largest recent rise of online memory
// per second. It halves every five minutes, so that a service that grew fast once finds room
// when it does so again. A rise counts only once two measurements agree, because batch work may
// free or take memory between its own measurement and the node's.
//
// The limit is never set below what batch work holds and what starting containers were granted,
// since the kernel would kill there; memory is reclaimed first. It falls by at most a twentieth
// of the node's memory in a step.
//
// The limit rises to the goal at once where batch work may need it soon: where less than a
// tenth of the node (2 GiB on a small one) lies between the limit and the memory that batch
// work can't give back. So the kernel kills no batch container at the limit while the goal is
// above it.
//
// Otherwise the limit moves in few steps. It falls to a hundredth of the node below the goal
// and stays until the goal has fallen by that much again. It rises by a tenth of the node in a
// step, to at most the lowest goal of the last minute, so that memory which online work frees
// for a moment (as a garbage collector does) is not given to batch work's page cache and
// reclaimed again.
type Memory struct {
	cfg   MemoryConfig
	pools []PoolConfig
	pace  pace

	sum        memorySum
	measuredAt time.Time // time of the node's figures in sum
	online     int64     // online memory at that time
	agreed     int64     // the lower of the last two values of online
	growth     float64   // in bytes a second, decaying
	calm       int64     // the lowest goal of the last minute
	high       window    // maximum of online and headroom in MiB: memory that batch work can't keep
	rising     float64   // short mean of the growth in bytes a second
	rose       bool      // whether online grew at the last measurement
	giving     float64   // bytes a second that batch work freed on request
	requested  bool      // memory was requested, and the result is not measured yet
	stale      bool      // stale figures have been reported
	blind      int       // consecutive steps without figures of some BE container
	release    releasing
	offload    offloading
	pressing   pressing

	candidates  []donor
	desired     MemoryDesired
	request     EvictRequest
	evictWhy    evictCause
	writtenNeed int64 // need for which the reason was written
	decisions   []Decision
}

// MemoryDesired is what Memory wants. Its slices and Evict are valid until the next step.
type MemoryDesired struct {
	// BatchLimit is the limit of all batch work together in bytes, to be written after Reclaim
	// is done; 0 leaves the present limit. The writer reads the usage first and sets no lower
	// limit than that: reclaim may have freed less, or the usage may have grown.
	BatchLimit int64
	Reclaim    []Reclaim     // memory to reclaim now
	Evict      *EvictRequest // eviction that is needed; nil if none is
	// Closely is set while the memory of each BE container should be measured as often as the node's.
	Closely bool

	// The remaining fields are for the status.
	Online   int64 // memory in use by all but BE pods, in bytes
	Held     int64 // memory of BE pods with their page cache
	Goal     int64 // memory that BE pods may hold in the end
	Headroom int64
	Swapped  int64 // memory of BE pods that is in swap
	Taken    Taken // memory that BE pods gave back on request since the start
	// Room is what a starting container may have: the goal without the memory that BE pods
	// can't give back or were granted. It is negative if they hold more than the goal.
	Room int64
	// Known is set once the node's memory and that of BE pods have been measured. The other
	// figures are meaningless before.
	Known bool
}

// Reclaim is a request to reclaim memory from a container.
type Reclaim struct {
	ID    string
	Bytes int64
	Until int64 // value of memory.current at which to stop
}

// memorySum holds the sums of one measurement.
type memorySum struct {
	total, available, free, low int64
	batch                       Held  // memory of BE pods, with the time of the oldest figure
	known                       bool  // the figures of every BE container are known
	swapHeld                    int64 // memory that swap areas occupy (zram)
	direct                      float64
}

const (
	headroomIntervals = 3
	leastHeadroom     = 1 // percent of total
	growthHalfLife    = 5 * time.Minute
	limitLower        = 5 // percent of total by which the limit falls at most in a step
	limitRaise        = 10
	spareRoom         = 10 // percent of total: room that batch work finds above what it can't give back
	leastSpareRoom    = 2 * gib
	limitDead         = 1 // percent of total: smaller changes of the limit are not made
	raiseAfter        = time.Minute
	slack             = 32 * mib // between the limit and what batch work holds
	leastBatch        = 64 * mib // no process starts with less
)

// NewMemory returns the controller. Step must be called once per interval.
func NewMemory(cfg MemoryConfig, pools []PoolConfig, interval time.Duration) *Memory {
	return &Memory{
		cfg: cfg, pools: pools, pace: pace{interval: interval}, high: newWindow(raiseAfter),
		offload: offloading{budget: swapBudget(&cfg, firstSwapBudget)},
	}
}

// Step decides. If the node's figures are old or the clock has jumped, the limit stays and no
// memory is reclaimed.
func (m *Memory) Step(v *View) (MemoryDesired, []Decision) {
	m.decisions = m.decisions[:0]
	m.desired.Reclaim, m.desired.Evict, m.desired.Closely = m.desired.Reclaim[:0], nil, false
	since, steady := m.pace.next(v.Now)
	if !known(v.Now, v.Node.Memory.At, m.pace.interval) || v.MemoryTotal <= 0 {
		m.tellStale(v)
		return m.desired, m.report()
	}
	m.stale = false
	m.sumBatch(v)
	m.learn(v, since, steady)
	if !steady {
		m.requested = false
	}
	m.aim(v)
	m.reportBlind()
	if steady {
		m.press(v)
	}
	m.limit(v, steady)
	return m.desired, m.report()
}

func (m *Memory) report() []Decision {
	if len(m.decisions) == 0 {
		return nil
	}
	return m.decisions
}

func (m *Memory) tellStale(v *View) {
	if m.stale {
		return
	}
	m.stale, m.requested = true, false
	m.decisions = append(m.decisions, Decision{Controller: "memory", Object: "node", Action: "hold",
		To: MemoryText(m.desired.BatchLimit), Why: "the node's memory isn't known, or its figures are older than " +
			(staleAfter * m.pace.interval).String() + ": batch keeps the limit that it has, and nothing is taken back",
		Facts: []Fact{{"age_seconds", v.Now.Sub(v.Node.Memory.At).Seconds()}}})
}

// reportBlind reports containers without figures after some steps. New containers have none at
// first.
func (m *Memory) reportBlind() {
	m.blind++
	if m.sum.known {
		m.blind = 0
	}
	if m.blind == staleAfter*int(max(1, observe.SlowInterval/m.pace.interval)) {
		m.decisions = append(m.decisions, Decision{Controller: "memory", Object: "batch", Action: "hold",
			To: MemoryText(m.desired.BatchLimit), Why: "the memory of some BE container isn't known, so that the limit might be set below what batch holds: it stays as it is",
			Facts: m.facts()})
	}
}

// sumBatch sums up the memory of batch work. Old figures of a container still count, since its
// memory would otherwise count as online.
func (m *Memory) sumBatch(v *View) {
	n := &v.Node.Memory
	s := memorySum{total: v.MemoryTotal, available: n.Available, free: n.Free, low: n.Low, direct: n.Direct, swapHeld: n.SwapHeld, known: true, batch: v.BatchMemory}
	if !known(v.Now, s.batch.At, m.pace.interval) {
		s.batch = Held{At: v.Now}
		for i := range v.Containers {
			if c := &v.Containers[i]; c.Class == workload.BE && !c.Unseen {
				s.batch.Add(&c.Container)
				s.known = s.known && knownSlowly(v.Now, c.Container.Memory.At, m.pace.interval)
			}
		}
	}
	m.sum = s
}

// learn updates the growth of online memory.
func (m *Memory) learn(v *View, since time.Duration, steady bool) {
	at := v.Node.Memory.At
	// Batch work's memory that zram compresses takes memory, but is no growth of others.
	online := max(0, m.sum.total-m.sum.available-m.sum.batch.NonCache()-m.sum.swapHeld)
	took := at.Sub(m.measuredAt)
	switch {
	case m.measuredAt.IsZero() || !steady || took < 0:
		m.agreed, m.rising, m.rose = online, 0, false
	case took > 0:
		m.learnSwap(&v.Node.Memory, took)
		settled := min(online, m.online)
		rise := float64(settled-m.agreed) / took.Seconds()
		m.rising, m.rose = max(0, (m.rising+rise)/2), rise >= float64(mib)
		m.growth = max(m.growth, rise)
		m.agreed = settled
	}
	if steady && since < growthHalfLife {
		m.growth -= m.growth * since.Seconds() / growthHalfLife.Seconds() * 0.693 // ln 2
	}
	m.measuredAt, m.online = at, online
}

// aim computes the goal.
func (m *Memory) aim(v *View) {
	s := &m.sum
	headroom := int64(min(m.growth*headroomIntervals*m.pace.interval.Seconds(), float64(s.total)))
	headroom = max(min(headroom, bytesPart(s.total, m.cfg.HeadroomPercent)), bytesPart(s.total, leastHeadroom))
	goal := bytesPart(s.total, m.cfg.SafePercent) - m.online - s.swapHeld - int64(m.cfg.Reserve) - headroom
	m.high.add(v.Now, workload.MilliCPU((m.online+headroom)/mib))
	calm := goal + m.online + headroom - int64(m.high.max())*mib
	if i := len(v.Pools) - 1; i >= 0 {
		if own := m.poolLimit(v.Pools[i].Name); own > 0 {
			goal, calm = min(goal, own), min(calm, own)
		}
	}
	m.calm = max(calm, leastBatch)
	m.desired.Room, m.desired.Known = goal-s.batch.NonCache()-v.Granted, s.known
	m.desired.Swapped, m.desired.Taken = s.batch.Swap, m.offload.taken
	m.desired.Online, m.desired.Held, m.desired.Headroom = m.online, s.batch.Current, headroom
	m.desired.Goal = max(goal, leastBatch)
}

// limit moves the limit toward the goal. While batch work holds more than the goal, the limit
// falls with the memory that is reclaimed, so that batch work can't take it again.
func (m *Memory) limit(v *View, steady bool) {
	s, d := &m.sum, &m.desired
	before, goal := d.BatchLimit, d.Goal
	dead := bytesPart(s.total, limitDead)
	kept := s.batch.NonCache()
	low := max(goal-dead, leastBatch)
	if v.Granted > 0 {
		low = max(low, kept+v.Granted+slack)
	}
	soon := kept + v.Granted + max(bytesPart(s.total, spareRoom), leastSpareRoom)
	reachable := max(low, s.batch.Current+slack)
	for _, r := range d.Reclaim {
		if m.pressing.why == overGoal {
			reachable = max(low, reachable-r.Bytes)
		}
	}
	switch {
	case v.NoBatchLimit:
		d.BatchLimit = 0
		return
	case !s.known:
		return
	case before == 0:
		d.BatchLimit = wholeMiB(max(goal, reachable))
	case !steady:
		return
	case low > before && v.Granted > 0, goal-before >= 2*dead && soon > before:
		d.BatchLimit = wholeMiB(max(goal, low))
	case m.calm > before && m.calm-before >= 2*dead:
		d.BatchLimit = wholeMiB(min(m.calm, before+bytesPart(s.total, limitRaise)))
	case goal < before && reachable < before && before-reachable >= dead:
		d.BatchLimit = wholeMiB(max(reachable, before-bytesPart(s.total, limitLower)))
	}
	if d.BatchLimit == before {
		return
	}
	action, from, moves := "limit", "", ""
	if before > 0 {
		action, from, moves = "raise", MemoryText(before), "limit"
		if d.BatchLimit < before {
			action = "lower"
		}
	}
	m.decisions = append(m.decisions, Decision{Controller: "memory", Object: "batch", Action: action,
		From: from, To: MemoryText(d.BatchLimit), Moves: moves,
		Why: fmt.Sprintf("online uses %s of %s; %d%% may be used, %s are kept free before its growth of %s a second and %s in reserve, so that batch may hold %s; it holds %s",
			MemoryText(d.Online), MemoryText(s.total), m.cfg.SafePercent, MemoryText(d.Headroom), MemoryText(int64(m.growth)), MemoryText(int64(m.cfg.Reserve)), MemoryText(goal), MemoryText(s.batch.Current)),
		Facts: m.facts()})
}

func (m *Memory) facts() []Fact {
	return []Fact{
		{"total_bytes", float64(m.sum.total)}, {"available_bytes", float64(m.sum.available)}, {"free_bytes", float64(m.sum.free)},
		{"online_bytes", float64(m.online)}, {"growth_bytes_per_second", m.growth}, {"headroom_bytes", float64(m.desired.Headroom)},
		{"batch_bytes", float64(m.sum.batch.Current)}, {"batch_cache_bytes", float64(m.sum.batch.Cache)}, {"goal_bytes", float64(m.desired.Goal)},
	}
}

func wholeMiB(bytes int64) int64 { return (bytes + mib - 1) / mib * mib }

// poolLimit returns the pool's limit in bytes, or 0 if it has none.
func (m *Memory) poolLimit(name string) int64 {
	for i := range m.pools {
		if m.pools[i].Name == name {
			return m.pools[i].Memory
		}
	}
	return 0
}
