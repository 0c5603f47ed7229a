package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Memory decides how much memory batch work may hold, what is taken back from it
// before online work has to wait for it, and when somebody has to go.
//
// Batch work may hold
//
//	goal = safe % × total − online − reserve − headroom
//
// online being all that is in use and can't be dropped (total − available), less
// what batch work holds of it (current − page cache). A pool's own limit bounds it too.
//
// Headroom is what online work may take before this loop can have answered, so that
// it finds memory free and need not reclaim for itself:
//
//	headroom = growth × 3 intervals, at least 1 % and at most HeadroomPercent of total
//
// Three, since one passes until a growth is seen, one until what was asked for is
// reclaimed, and the sampler's figures may be one old. Growth is the largest recent
// rise of online a second, halved every five minutes, so that a service that grew fast
// once finds room when it does so again. A rise counts once two looks agree: what
// batch frees or takes between the look at it and the look at the node is none.
//
// A limit is never set below what batch holds and what containers that start were
// granted, where the kernel would kill, but for what is reclaimed before it is set. It
// goes down by a twentieth of the node's memory a step at most.
//
// It rises to the goal at once where batch may soon need that: where less than a tenth
// of the node (2 GiB on a small one) lies between the limit and what batch can't give
// back. So the kernel kills no batch container at the limit while the goal is above it.
//
// Otherwise it moves in few steps: down to a hundredth of the node below the goal, which
// then has to fall by that much before the limit follows it again, and up by a tenth of
// the node a step to no more than the lowest goal of the last minute, so that what online
// gives back for a moment (a garbage collector's saw teeth) is not given to batch's page
// cache and taken from it again.
type Memory struct {
	cfg   MemoryConfig
	pools []PoolConfig
	pace  pace

	sum      memorySum
	seen     time.Time // of the node's figures that sum is from
	online   int64     // at that look
	settled  int64     // the lower of the last two
	growth   float64   // bytes a second, decaying
	calm     int64     // the lowest goal of the last minute
	high     window    // of online and its headroom, in MiB: where it was, batch can't stay
	rising   float64   // bytes a second, a short mean
	rose     bool      // at the last look
	giving   float64   // bytes a second that batch gave back when asked
	asked    bool      // for memory, and it isn't known yet what it gave
	stale    bool      // told of
	blind    int       // steps in a row without figures of some BE container
	release  releasing
	pressing pressing

	candidates []giver
	desired    MemoryDesired
	request    EvictRequest
	evictWhy   evictCause
	saidNeed   int64 // when it was last put in words
	decisions  []Decision
}

// MemoryDesired is what Memory wants. Its slices and Evict are lent until the
// next step.
type MemoryDesired struct {
	// Bytes for all BE together, to be set after Reclaim was done; 0: leave it. Who
	// writes it looks at what they hold then, and sets no less: reclaim may have given
	// less, or they may have grown.
	BatchLimit int64
	Reclaim    []Reclaim     // now
	Evict      *EvictRequest // nil: nobody

	// For status.
	Online   int64 // bytes in use by all but BE
	Held     int64 // by BE, with its page cache
	Goal     int64 // what BE may hold in the end
	Headroom int64
	// Room is the part of the goal that BE doesn't hold as memory which it can't give
	// back, nor was granted: what a container that starts may have. Below 0 they hold more.
	Room int64
	// Known is set where all of this is: since the first step that saw the node's memory
	// and what BE holds.
	Known bool
}

// Reclaim is memory to take back from a container.
type Reclaim struct {
	ID    string
	Bytes int64
	Until int64 // memory.current to come down to
}

// memorySum is what one look shows.
type memorySum struct {
	total, available, free, low int64
	batch                       Held // BE's, of the oldest figures
	known                       bool // of each BE container
	direct                      float64
}

const (
	headroomIntervals   = 3
	leastHeadroom       = 1 // percent of total
	growthHalfLife      = 5 * time.Minute
	limitLower          = 5 // of total, at most in a step
	limitRaise          = 10
	spareRoom           = 10 // percent of total: what batch finds above what it can't give back
	leastSpareRoom      = 2 * gib
	limitDead           = 1 // smaller changes of the limit are left out
	raiseAfter          = time.Minute
	slack               = 32 * mib // between the limit and what batch holds
	leastBatch          = 64 * mib // below it no process starts
	containerMemoryPace = 10       // intervals between two looks at a container's memory, at most
)

// NewMemory returns the controller. It is stepped each interval.
func NewMemory(cfg MemoryConfig, pools []PoolConfig, interval time.Duration) *Memory {
	return &Memory{cfg: cfg, pools: pools, pace: pace{interval: interval}, high: newWindow(raiseAfter)}
}

// Step decides. Where the node's figures are old, or time has jumped, the limit stays
// as it is, and nothing is taken back.
func (m *Memory) Step(v *View) (MemoryDesired, []Decision) {
	m.decisions = m.decisions[:0]
	m.desired.Reclaim, m.desired.Evict = m.desired.Reclaim[:0], nil
	since, steady := m.pace.next(v.Now)
	if !known(v.Now, v.Node.Memory.At, m.pace.interval) || v.MemoryTotal <= 0 {
		m.tellStale(v)
		return m.desired, m.told()
	}
	m.stale = false
	m.look(v)
	m.learn(v, since, steady)
	if !steady {
		m.asked = false
	}
	m.aim(v)
	m.tellBlind()
	if steady {
		m.press(v)
	}
	m.limit(v, steady)
	return m.desired, m.told()
}

func (m *Memory) told() []Decision {
	if len(m.decisions) == 0 {
		return nil
	}
	return m.decisions
}

func (m *Memory) tellStale(v *View) {
	if m.stale {
		return
	}
	m.stale, m.asked = true, false
	m.decisions = append(m.decisions, Decision{Controller: "memory", Object: "node", Action: "hold",
		To: MemoryText(m.desired.BatchLimit), Why: "the node's memory isn't known, or its figures are older than " +
			(staleAfter * m.pace.interval).String() + ": batch keeps the limit that it has, and nothing is taken back",
		Facts: []Fact{{"age_seconds", v.Now.Sub(v.Node.Memory.At).Seconds()}}})
}

// tellBlind tells of containers without figures, if they stay so: new ones have none
// for a moment.
func (m *Memory) tellBlind() {
	m.blind++
	if m.sum.known {
		m.blind = 0
	}
	if m.blind == staleAfter*containerMemoryPace {
		m.decisions = append(m.decisions, Decision{Controller: "memory", Object: "batch", Action: "hold",
			To: MemoryText(m.desired.BatchLimit), Why: "the memory of some BE container isn't known, so that the limit might be set below what batch holds: it stays as it is",
			Facts: m.facts()})
	}
}

// look sums up what batch holds. Figures of a container that are old still count:
// leaving them out would take its memory for online's.
func (m *Memory) look(v *View) {
	n := &v.Node.Memory
	s := memorySum{total: v.MemoryTotal, available: n.Available, free: n.Free, low: n.Low, direct: n.Direct, known: true, batch: v.BatchMemory}
	if !known(v.Now, s.batch.At, m.pace.interval) {
		s.batch = Held{At: v.Now}
		for i := range v.Containers {
			if c := &v.Containers[i]; c.Class == workload.BE && !c.Unseen {
				s.batch.Add(&c.Container.Memory)
				s.known = s.known && known(v.Now, c.Container.Memory.At, containerMemoryPace*m.pace.interval)
			}
		}
	}
	m.sum = s
}

// learn follows how fast online grows.
func (m *Memory) learn(v *View, since time.Duration, steady bool) {
	at := v.Node.Memory.At
	online := max(0, m.sum.total-m.sum.available-m.sum.batch.Kept())
	took := at.Sub(m.seen)
	switch {
	case m.seen.IsZero() || !steady || took < 0:
		m.settled, m.rising, m.rose = online, 0, false
	case took > 0:
		settled := min(online, m.online)
		rise := float64(settled-m.settled) / took.Seconds()
		m.rising, m.rose = max(0, (m.rising+rise)/2), rise >= float64(mib)
		m.growth = max(m.growth, rise)
		m.settled = settled
	}
	if steady && since < growthHalfLife {
		m.growth -= m.growth * since.Seconds() / growthHalfLife.Seconds() * 0.693 // ln 2
	}
	m.seen, m.online = at, online
}

// aim finds what batch may hold.
func (m *Memory) aim(v *View) {
	s := &m.sum
	headroom := int64(min(m.growth*headroomIntervals*m.pace.interval.Seconds(), float64(s.total)))
	headroom = max(min(headroom, bytesPart(s.total, m.cfg.HeadroomPercent)), bytesPart(s.total, leastHeadroom))
	goal := bytesPart(s.total, m.cfg.SafePercent) - m.online - int64(m.cfg.Reserve) - headroom
	m.high.add(v.Now, workload.MilliCPU((m.online+headroom)/mib))
	calm := goal + m.online + headroom - int64(m.high.max())*mib
	if i := len(v.Pools) - 1; i >= 0 {
		if own := m.poolLimit(v.Pools[i].Name); own > 0 {
			goal, calm = min(goal, own), min(calm, own)
		}
	}
	m.calm = max(calm, leastBatch)
	m.desired.Room, m.desired.Known = goal-s.batch.Kept()-v.Granted, s.known
	m.desired.Online, m.desired.Held, m.desired.Headroom = m.online, s.batch.Current, headroom
	m.desired.Goal = max(goal, leastBatch)
}

// limit moves the limit towards the goal. While batch holds more than that, the limit
// goes down with what it is asked for, so that it can't take it again.
func (m *Memory) limit(v *View, steady bool) {
	s, d := &m.sum, &m.desired
	before, goal := d.BatchLimit, d.Goal
	dead := bytesPart(s.total, limitDead)
	kept := s.batch.Kept()
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

// poolLimit is the pool's limit in bytes, 0 where it has none.
func (m *Memory) poolLimit(name string) int64 {
	for i := range m.pools {
		if m.pools[i].Name == name {
			return m.pools[i].Memory
		}
	}
	return 0
}
