package control

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	shortAverage  = time.Second // time constant of the mean that smooths the usage of the last interval
	nearFull      = 90          // load of a pool in percent from which usage can't show the demand
	highPressure  = 300         // pressure in per mille above which the growth of a pool has no bound
	forcedAfter   = 2           // consecutive measurements over the band until the pools below give CPUs beyond their band
	perMille      = 1000
	longestWait   = 8   // slow windows
	smallPoolHold = 125 // hysteresis in percent: a pool that counts as small stops at this part of the load below which it began
)

// Pools decides the sizes of pools with CPUs of their own (exclusive mode). The last pool holds
// the CPUs that the others don't need. Pools over their band take CPUs from it, and from all
// pools below their own. While the last pool is empty, the others have its CPUs too.
// docs/control.md describes the rules.
type Pools struct {
	cfg   PoolsConfig
	pools []PoolConfig
	state []poolState
	sizes PoolSizes
	needs []PoolNeed // a buffer that is reused for each step

	stale time.Duration // age from which a measurement is not used

	core     int // threads per core: sizes are multiples of it, except for the last pool's
	total    int // CPUs that the pools divide; 0 if they don't divide them
	promised int // sum of what the pools are owed
	squeezed int // CPUs of the last pool that the one above it has; see squeeze
	began    time.Time
	last     time.Time // time of the previous step

	reportedShared bool // whether it has been reported that the pools do not divide the CPUs
}

// PoolSizes are the sizes that the pools should have, by pool. They are valid until the next
// step.
type PoolSizes struct {
	CPUs  []int  // all shared CPUs together; nil where there is less than a core per pool, so that all share
	Short []int  // CPUs that a pool over its band lacks and no pool below can give
	Small []bool // whether the load is so low that no size has it in the band
	Spare []int  // CPUs of each pool that batch work may use too
	Least int    // CPUs that the last pool always has
	// Room is how much CPU new containers can request; see the function Room. It is valid if
	// CPUs is not empty.
	Room workload.MilliCPU
}

// poolState is the state of a pool, with its inputs at this step.
type poolState struct {
	size    int       // size without lent CPUs; see sizeOf
	lent    int       // additional CPUs lent by an empty last pool
	guessed int       // size that the pool had before a guess enlarged it; 0 if none did
	changed time.Time // time of the last change of size

	at                 time.Time         // time of the newest measurement
	average            workload.MilliCPU // mean usage over shortAverage
	slow               window            // maximum usage over the slow window
	recent             window            // maximum of the fast signal over spareTime
	rises              window            // largest rises of the usage above its short average, over riseTime
	rise               workload.MilliCPU // of this step
	spare              int               // CPUs that batch work may use too
	lentAt, returnedAt time.Time         // when spare rose, and fell, the last time
	spareWait          time.Duration     // from returnedAt until spare may rise
	request            window            // maximum of the requests, so that those of replaced containers count until their successors run
	over               int               // consecutive measurements over the band
	below              int               // consecutive measurements under the band, by the slow signal
	calm               bool              // the pool is shrinking to the middle of the band
	grew               time.Time         // time of the last growth for load
	shrunk             bool              // whether the pool has shrunk since grew
	wait               int               // slow windows from grew until the pool may shrink; more where shrinking was in vain

	adopted time.Time         // begin of the time in which the pool's first usage is observed; zero if it had no containers yet
	peak    workload.MilliCPU // highest usage in that time

	measured bool              // the pool has been measured at least once
	known    bool              // its usage is known
	fresh    bool              // its usage comes from a new measurement
	lost     bool              // its usage is no longer known
	pressure workload.MilliCPU // in per mille
	raise    workload.MilliCPU // CPU that new containers request and don't use yet
	own      workload.MilliCPU // last known usage of its containers
	fast     workload.MilliCPU // fast signal, including raise
	lowest   workload.MilliCPU // slow signal, including raise
	forces   bool              // may take all but the minimum of the pools below
	presses  bool              // may take all but the minimum of the last pool

	minimum int
	floor   int // least size in calm, whatever is forecast
	cap     int // largest size by the pool's requests (RCFMax)
	owed    int // what its containers request, within floor and cap
	// expected is the least size in calm by the forecast: it has the expected load in its band
	expected int

	before int // size when the step began
	had    int // size when the step began, including lent CPUs
	spared int // spare CPUs when the step began
	cause  cause
	taker  int // pool that took CPUs from it

	outage        outage // loss of its usage as it is reported
	reportedShort bool
	shortAt       time.Time // time when it was last short
}

// NewPools returns the controller for these pools in descending priority; the last is the batch
// pool. It starts with the sizes in its first view. The interval is the longest time between
// two measurements, also of idle pools, which are measured less often.
func NewPools(cfg PoolsConfig, pools []PoolConfig, interval time.Duration) *Pools {
	p := &Pools{cfg: cfg, pools: slices.Clone(pools), state: make([]poolState, len(pools)), stale: staleAfter * interval}
	for i := range p.state {
		p.state[i] = poolState{slow: newWindow(cfg.SlowWindow), recent: newWindow(spareTime), rises: newWindow(riseTime), request: newWindow(cfg.SlowWindow), wait: 1}
	}
	p.sizes = PoolSizes{CPUs: make([]int, 0, len(pools)), Short: make([]int, len(pools)), Small: make([]bool, len(pools)), Spare: make([]int, len(pools))}
	return p
}

// Step decides from the view, which must have the pools of NewPools.
func (p *Pools) Step(v *View) (PoolSizes, []Decision) {
	p.jumped(v)
	n := int(v.Shared / 1000)
	p.core = max(v.ThreadsPerCore, 1)
	if n < p.core*len(p.pools) {
		return p.undivided(n)
	}
	p.observe(v)
	p.bounds(v, n)
	for i := range p.state {
		s := &p.state[i]
		s.before, s.had, s.spared, s.cause = s.size, p.sizeOf(i), s.spare, causeRest
	}
	divided := p.total
	switch {
	case p.total == 0:
		for i := range p.state {
			p.state[i].spare = v.Pools[i].Spare
		}
		p.begin(v, n)
		p.fit(0)
	case p.total != n:
		p.fit(n - p.total)
	}
	p.total, p.reportedShared = n, false
	p.shrink(v.Now)
	p.grow(v.Now)
	squeezed := p.squeezed
	p.squeezed = 0
	p.lend(v, divided != n)
	p.squeeze(&v.Batch, &v.Share)
	p.spare(v)
	p.sizes.CPUs, p.sizes.Least = p.sizes.CPUs[:len(p.state)], p.state[len(p.state)-1].minimum
	for i := range p.state {
		s := &p.state[i]
		if p.sizes.CPUs[i] = p.sizeOf(i); s.size != s.before {
			s.changed = v.Now
		}
	}
	p.sizes.Room = p.room(v)
	return p.sizes, p.decisions(v, divided, squeezed > 0 || p.squeezed > 0)
}

// jumped resets what was measured over time after a jump of the clock, so that no pool shrinks
// because of it. A running loop never pauses for so long.
func (p *Pools) jumped(v *View) {
	gone := v.Now.Sub(p.last)
	if p.last.IsZero() {
		p.began = v.Now
	} else if gone < 0 || gone > p.stale {
		p.began = v.Now
		for i := range p.state {
			s := &p.state[i]
			s.slow.reset()
			s.request.reset()
			s.recent.reset()
			s.below, s.calm, s.changed, s.shortAt, s.grew = 0, false, v.Now, v.Now, v.Now
			s.lentAt, s.returnedAt = time.Time{}, v.Now
			if !s.adopted.IsZero() && s.adopted.After(v.Now) {
				s.adopted = v.Now
			}
		}
	}
	p.last = v.Now
}

// undivided returns the sizes on a node with less than a core per pool.
func (p *Pools) undivided(n int) (PoolSizes, []Decision) {
	var decisions []Decision
	if !p.reportedShared {
		p.reportedShared = true
		decisions = []Decision{{
			Controller: "pools", Object: "node", Action: "share", To: "all pools on all CPUs",
			Why: "the pools divide " + humanize.Count(n, "CPU") + ", less than a core for each",
		}}
	}
	for i := range p.state {
		p.state[i].lent, p.state[i].spare = 0, 0
	}
	p.total, p.squeezed, p.sizes.CPUs = 0, 0, p.sizes.CPUs[:0]
	clear(p.sizes.Short)
	clear(p.sizes.Small)
	clear(p.sizes.Spare)
	return p.sizes, decisions
}

// enter reads the containers and requests of each pool.
func (p *Pools) enter(v *View) {
	for i := range p.state {
		p.state[i].raise, p.state[i].own = 0, 0
		if p.total == 0 {
			p.state[i].size = v.Pools[i].Size
		}
	}
	for i := range v.Containers {
		c := &v.Containers[i]
		if c.Pool < 0 || c.Pool >= len(p.state)-1 { // the batch pool's containers get what is left, whatever they request
			continue
		}
		s := &p.state[c.Pool]
		if s.adopted.IsZero() {
			s.adopted = v.Now
		}
		used := workload.MilliCPU(0)
		if recent(v.Now, c.CPU.At, max(p.stale, staleAfter*c.CPU.Interval)) {
			used = c.CPU.Usage
		}
		s.own += used
		if age := v.Now.Sub(c.Since); age < p.cfg.NewPodTime && age > -p.cfg.NewPodTime {
			s.raise += max(c.Request-used, 0)
		}
	}
}

// observe reads the measurements of each pool. While pools overlap, because they have not been
// divided yet, the load of a pool's CPUs is that of all pools. The usage of its own containers
// counts then.
func (p *Pools) observe(v *View) {
	p.enter(v)
	mixed := p.total == 0 && overlap(v)
	for i := range p.state {
		s, pool := &p.state[i], &v.Pools[i]
		s.request.add(v.Now, pool.Request)
		if s.adopted.IsZero() && pool.Request > 0 {
			s.adopted = v.Now
		}
		s.known = recent(v.Now, pool.At, p.stale)
		s.fresh = s.known && !pool.At.Equal(s.at)
		// Measurements may take a while to arrive after the start.
		s.lost = !s.known && (s.lost || s.measured || v.Now.Sub(p.began) > p.stale)
		if !s.known {
			s.slow.reset()
			s.average, s.at, s.over, s.below = 0, time.Time{}, 0, 0
			s.fast, s.lowest = s.raise, s.raise
			continue
		}
		s.measured = true
		s.pressure = workload.MilliCPU(min(max(pool.Pressure, 0), 1) * perMille)
		usage := pool.Usage
		if mixed && i < len(p.state)-1 {
			usage, s.pressure = s.own, 0
		}
		s.rise = 0
		if s.fresh {
			if s.average > 0 {
				s.rise = max(0, usage-s.average)
			}
			s.smooth(usage, pool.At)
		}
		s.fast = max(usage, s.average)
		if s.fast >= workload.MilliCPU(p.sizeOf(i)*10*nearFull) {
			s.fast += s.fast * s.pressure / perMille
		}
		s.slow.add(v.Now, s.fast+pool.Demoted)
		s.lowest = s.slow.max() + s.raise
		if !s.adopted.IsZero() && v.Now.Sub(s.adopted) <= p.cfg.SlowWindow {
			s.peak = max(s.peak, s.fast)
		}
		s.fast += s.raise
	}
}

// overlap reports whether pools have CPUs in common: their sizes add up to more than there are.
func overlap(v *View) bool {
	sum := 0
	for i := range v.Pools {
		sum += v.Pools[i].Size
	}
	return sum > int(v.Shared/1000)
}

func (s *poolState) smooth(usage workload.MilliCPU, at time.Time) {
	// An older mean is worthless. Its product would overflow after decades, which pass when a
	// clock is set for the first time.
	if gone := at.Sub(s.at); s.at.IsZero() || gone < 0 || gone > time.Minute {
		s.average = usage
	} else {
		s.average += (usage - s.average) * workload.MilliCPU(gone/time.Microsecond) / workload.MilliCPU((gone+shortAverage)/time.Microsecond)
	}
	s.at = at
}

// capacity is the size as an amount.
func (s *poolState) capacity() workload.MilliCPU { return workload.MilliCPU(s.size) * 1000 }
