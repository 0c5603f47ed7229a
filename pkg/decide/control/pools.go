package control

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	shortAverage  = time.Second // time constant of the usage that smooths the last interval's
	nearFull      = 90          // load of a pool from which usage can't show the demand
	highPressure  = 300         // per mille of the time in which a pool's tasks waited: growth has no bound
	forcedAfter   = 2           // measurements over the band until others are taken below theirs
	perMille      = 1000
	longestWait   = 8   // slow windows
	smallPoolHold = 125 // hysteresis in percent: a pool that counts as small stops at this part of the load below which it began
)

// Pools decides the sizes of pools that are apart (exclusive mode): the last holds
// what the others don't need, and those whose load passes their band take from it,
// and from all pools below their own. While the last is empty the others have its CPUs
// too. The law is that of docs/control.md.
type Pools struct {
	cfg   PoolsConfig
	pools []PoolConfig
	state []poolState
	sizes PoolSizes

	stale time.Duration // age from which a measurement says nothing

	core     int // threads of one core: sizes are multiples of it, but for the last pool's
	total    int // CPUs that the pools divide; 0: they don't
	promised int // what all are owed together
	squeezed int // CPUs of the last pool that the one above it has: see squeeze
	began    time.Time
	last     time.Time // the step before

	toldShared bool // that they don't divide them
}

// PoolSizes is what the pools are to have, by pool. It is lent until the next step.
type PoolSizes struct {
	CPUs  []int  // together all shared CPUs; none where there is less than a core for each: all share
	Short []int  // CPUs that a pool over its band lacks while no pool below can give any
	Small []bool // the load is so low that no size has it in the band
	Least int    // CPUs that the last pool always has
}

// poolState is what the law remembers of a pool, and its inputs at this step.
type poolState struct {
	size    int       // by the law; see sizeOf
	lent    int       // CPUs of an empty last pool that it has besides
	guessed int       // size without the guess that it was given; 0: none
	changed time.Time // of size

	at      time.Time         // of the newest measurement
	average workload.MilliCPU // of usage, over shortAverage
	slow    window            // of usage
	request window            // of requests: those of containers that are replaced count until their heirs are there
	over    int               // measurements in a row over the band
	below   int               // and under it, by the slow signal
	calm    bool              // on its way down to the middle of the band
	grew    time.Time         // for its load
	shrunk  bool              // since
	wait    int               // slow windows from grew until it may shrink: more where that was in vain

	adopted time.Time         // begin of the time in which use is observed; zero: no containers yet
	peak    workload.MilliCPU // use in that time

	measured bool              // ever
	known    bool              // its usage is
	fresh    bool              // by a new measurement
	lost     bool              // not known any more
	pressure workload.MilliCPU // per mille
	raise    workload.MilliCPU // what new containers request and don't use yet
	own      workload.MilliCPU // what its containers use, as last seen
	fast     workload.MilliCPU // the fast signal, with raise
	lowest   workload.MilliCPU // the slow signal, with raise
	forces   bool              // may take all but the minimum of the pools below
	presses  bool              // of the last pool

	minimum int
	floor   int // in calm
	cap     int // rule 4's
	owed    int // what its containers request, within floor and cap

	before int // size when the step began
	had    int // with what was lent
	cause  cause
	taker  int // the pool that took from it

	outage    outage // lost, as it is reported
	toldShort bool
	shortAt   time.Time // last seen short
}

// NewPools makes the law for these pools, the highest priority first; the last is
// the batch pool. It begins with the sizes that the first view shows. Interval is the
// longest from one measurement to the next, also where idle pools are looked at more
// seldom.
func NewPools(cfg PoolsConfig, pools []PoolConfig, interval time.Duration) *Pools {
	p := &Pools{cfg: cfg, pools: slices.Clone(pools), state: make([]poolState, len(pools)), stale: staleAfter * interval}
	for i := range p.state {
		p.state[i] = poolState{slow: newWindow(cfg.SlowWindow), request: newWindow(cfg.SlowWindow), wait: 1}
	}
	p.sizes = PoolSizes{CPUs: make([]int, 0, len(pools)), Short: make([]int, len(pools)), Small: make([]bool, len(pools))}
	return p
}

// Step decides from the view, whose pools are those of NewPools.
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
		s.before, s.had, s.cause = s.size, p.sizeOf(i), causeRest
	}
	divided := p.total
	switch {
	case p.total == 0:
		p.begin(v, n)
		p.fit(0)
	case p.total != n:
		p.fit(n - p.total)
	}
	p.total, p.toldShared = n, false
	p.shrink(v.Now)
	p.grow(v.Now)
	squeezed := p.squeezed
	p.squeezed = 0
	p.lend(v, divided != n)
	p.squeeze(&v.Batch)
	p.sizes.CPUs, p.sizes.Least = p.sizes.CPUs[:len(p.state)], p.state[len(p.state)-1].minimum
	for i := range p.state {
		s := &p.state[i]
		if p.sizes.CPUs[i] = p.sizeOf(i); s.size != s.before {
			s.changed = v.Now
		}
	}
	return p.sizes, p.tell(v, divided, squeezed > 0 || p.squeezed > 0)
}

// jumped forgets what was measured over time where time didn't go on as it should,
// so that nothing shrinks on it. No loop stands still for so long.
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
			s.below, s.calm, s.changed, s.shortAt, s.grew = 0, false, v.Now, v.Now, v.Now
			if !s.adopted.IsZero() && s.adopted.After(v.Now) {
				s.adopted = v.Now
			}
		}
	}
	p.last = v.Now
}

// undivided is the answer on a node of less than a core for each pool.
func (p *Pools) undivided(n int) (PoolSizes, []Decision) {
	var decisions []Decision
	if !p.toldShared {
		p.toldShared = true
		decisions = []Decision{{
			Controller: "pools", Object: "node", Action: "share", To: "all pools on all CPUs",
			Why: "the pools divide " + humanize.Count(n, "CPU") + ", less than a core for each",
		}}
	}
	for i := range p.state {
		p.state[i].lent = 0
	}
	p.total, p.squeezed, p.sizes.CPUs = 0, 0, p.sizes.CPUs[:0]
	clear(p.sizes.Short)
	clear(p.sizes.Small)
	return p.sizes, decisions
}

// enter takes in what runs in the pools.
func (p *Pools) enter(v *View) {
	for i := range p.state {
		p.state[i].raise, p.state[i].own = 0, 0
		if p.total == 0 {
			p.state[i].size = v.Pools[i].Size
		}
	}
	for i := range v.Containers {
		c := &v.Containers[i]
		if c.Pool < 0 || c.Pool >= len(p.state)-1 { // the batch pool's load is no claim
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

// observe takes in what was measured. While pools lie on the same CPUs, before they
// are apart, each one's CPUs show the load of all: there its containers' own counts.
func (p *Pools) observe(v *View) {
	p.enter(v)
	mixed := p.total == 0 && overlap(v)
	for i := range p.state {
		s, seen := &p.state[i], &v.Pools[i]
		s.request.add(v.Now, seen.Request)
		if s.adopted.IsZero() && seen.Request > 0 {
			s.adopted = v.Now
		}
		s.known = recent(v.Now, seen.At, p.stale)
		s.fresh = s.known && !seen.At.Equal(s.at)
		// At a start measurements may be a while in coming.
		s.lost = !s.known && (s.lost || s.measured || v.Now.Sub(p.began) > p.stale)
		if !s.known {
			s.slow.reset()
			s.average, s.at, s.over, s.below = 0, time.Time{}, 0, 0
			s.fast, s.lowest = s.raise, s.raise
			continue
		}
		s.measured = true
		s.pressure = workload.MilliCPU(min(max(seen.Pressure, 0), 1) * perMille)
		usage := seen.Usage
		if mixed && i < len(p.state)-1 {
			usage, s.pressure = s.own, 0
		}
		if s.fresh {
			s.smooth(usage, seen.At)
		}
		s.fast = max(usage, s.average)
		if s.fast >= workload.MilliCPU(p.sizeOf(i)*10*nearFull) {
			s.fast += s.fast * s.pressure / perMille
		}
		s.slow.add(v.Now, s.fast)
		s.lowest = s.slow.max() + s.raise
		if !s.adopted.IsZero() && v.Now.Sub(s.adopted) <= p.cfg.SlowWindow {
			s.peak = max(s.peak, s.fast)
		}
		s.fast += s.raise
	}
}

// overlap reports whether pools have CPUs in common: together they have more than there are.
func overlap(v *View) bool {
	sum := 0
	for i := range v.Pools {
		sum += v.Pools[i].Size
	}
	return sum > int(v.Shared/1000)
}

func (s *poolState) smooth(usage workload.MilliCPU, at time.Time) {
	// What is older says nothing any more; over decades, as where a clock is set first, the
	// product would not fit.
	if gone := at.Sub(s.at); s.at.IsZero() || gone < 0 || gone > time.Minute {
		s.average = usage
	} else {
		s.average += (usage - s.average) * workload.MilliCPU(gone/time.Microsecond) / workload.MilliCPU((gone+shortAverage)/time.Microsecond)
	}
	s.at = at
}

// capacity is the size as an amount.
func (s *poolState) capacity() workload.MilliCPU { return workload.MilliCPU(s.size) * 1000 }
