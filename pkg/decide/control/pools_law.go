package control

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// cause is the reason why a pool's size changed in a step.
type cause uint8

const (
	causeRest  cause = iota // the others leave more or must have more
	causeBegin              // the sizes found at the start do not divide the CPUs
	causeLoad
	causeFloor
	causeForecast
	causeStale
	causeCalm
	causeSeen
	causeCap
	causeTaken
)

// atPercent returns the number of CPUs, in whole cores, of which the load is that percentage.
func (p *Pools) atPercent(load workload.MilliCPU, percent int) int {
	per := workload.MilliCPU(max(percent, 1)) * 10 // of a CPU
	return roundUp(int((load+per-1)/per), p.core)
}

// target is the size that puts the load in the middle of the band.
func (p *Pools) target(i int, load workload.MilliCPU) int {
	return p.atPercent(2*load, p.pools[i].Low+p.pools[i].High)
}

// inBand is the least size whose band the load is in.
func (p *Pools) inBand(i int) int { return p.atPercent(p.state[i].fast, p.pools[i].High) }

func (p *Pools) overloaded(i int) bool {
	s := &p.state[i]
	return s.known && s.fast*100 > s.capacity()*workload.MilliCPU(p.pools[i].High)
}

// bounds computes the minimum, the floor and the cap of each pool on n CPUs. Where
// the minimums don't fit, the lower pools' are less, down to a core.
func (p *Pools) bounds(v *View, n int) {
	left := n
	for i := range p.state {
		s, cfg := &p.state[i], &p.pools[i]
		s.minimum = min(roundUp(max(cfg.Min, 1), p.core), left/p.core*p.core-p.core*(len(p.state)-1-i))
		left -= s.minimum
		requested := s.request.max()
		s.cap = n / p.core * p.core
		if cfg.RCFMax > 0 {
			// Use that was there before the pools were apart keeps its place in the band.
			s.cap = max(roundUp(ceil(perCent(requested, cfg.RCFMax)), p.core), p.atPercent(s.peak, cfg.High), s.minimum)
		}
		s.floor = max(s.minimum, min(s.cap, roundUp(max(ceil(perCent(requested, cfg.RCFMin)), ceil(v.Pools[i].Quota)), p.core)))
	}
	last := &p.state[len(p.state)-1]
	last.floor, last.cap = last.minimum, n
	p.promised = last.minimum
	for i := range len(p.state) - 1 {
		s := &p.state[i]
		s.owed = max(s.floor, min(s.cap, roundUp(ceil(s.request.max()), p.core)))
		p.promised += s.owed
		// A forecast claims nothing from pools that have load now.
		s.expected = min(s.cap, p.atPercent(v.Forecasts.pool(i), p.pools[i].High))
	}
}

// least is what even a forced taking leaves to a pool: what its load needs of what its
// containers request. Where all request more than there is, its minimum.
func (p *Pools) least(i int) int {
	s := &p.state[i]
	if p.promised > p.total {
		return s.minimum
	}
	return max(s.minimum, min(s.owed, p.inBand(i)))
}

// begin takes the sizes that are there, where they divide the CPUs. Else each pool
// gets what its containers request, or the target of its load where that is more.
func (p *Pools) begin(v *View, n int) {
	sum, least := 0, n
	for i := range p.state {
		p.state[i].before, p.state[i].had = v.Pools[i].Size, v.Pools[i].Size
		sum += v.Pools[i].Size
		least = min(least, v.Pools[i].Size)
	}
	if sum == n && least >= p.core {
		for i := range p.state {
			p.state[i].size = v.Pools[i].Size
		}
		return
	}
	last := len(p.state) - 1
	left, due := n, p.state[last].minimum // minimums of the pools below
	for i := range last {
		due += max(p.state[i].owed, p.inBand(i))
	}
	for i := range last {
		s := &p.state[i]
		due -= max(s.owed, p.inBand(i))
		want := max(s.floor, roundUp(ceil(v.Pools[i].Request), p.core), p.target(i, s.fast))
		s.size, s.cause = max(s.minimum, min(want, s.cap, (left-due)/p.core*p.core)), causeBegin
		left -= s.size
	}
	p.state[last].size, p.state[last].cause = left, causeBegin
}

// fit adapts the sizes to a change in the number of CPUs. The last pool gains or loses the
// difference. Where it has too little, the pools above it give theirs, down to their minimums.
func (p *Pools) fit(more int) {
	last := &p.state[len(p.state)-1]
	last.size += more
	for i := len(p.state) - 2; i >= 0 && last.size < last.minimum; i-- {
		s := &p.state[i]
		if give := min(s.size-s.minimum, roundUp(last.minimum-last.size, p.core)); give > 0 {
			s.size -= give
			last.size += give
		}
	}
}

// keeps returns the size that the pool keeps when another takes CPUs in the ordinary way. A
// pool whose load is unknown keeps all of its CPUs.
func (p *Pools) keeps(i int) int {
	s := &p.state[i]
	if !s.known && i < len(p.state)-1 {
		return s.size
	}
	return max(s.floor, p.inBand(i))
}

// shrink gives the last pool the CPUs that calm pools don't need, slowly, and those above a
// pool's cap, at once.
func (p *Pools) shrink(now time.Time) {
	last := &p.state[len(p.state)-1]
	for i := range len(p.state) - 1 {
		s := &p.state[i]
		want, why := p.calmed(i, now), causeCalm
		if seen := p.seen(i); seen < want {
			want, why = seen, causeSeen
		}
		if watched := !s.adopted.IsZero() && now.Sub(s.adopted) > p.cfg.SlowWindow; watched && s.known && s.cap < want {
			want, why = s.cap, causeCap
		}
		if want < s.size {
			last.size += s.size - want
			s.size, s.cause = want, why
			s.shrunk = s.shrunk || why == causeCalm
		}
	}
}

// calmed returns the size to which a pool shrinks for lack of load. Once shrinking has begun,
// it continues step by step to the middle of the band; otherwise it would stop at the edge.
func (p *Pools) calmed(i int, now time.Time) int {
	s := &p.state[i]
	target := max(s.floor, s.expected, p.target(i, s.lowest))
	switch {
	case !s.known || target >= s.size:
		s.below, s.calm = 0, false
	case s.lowest*100 >= s.capacity()*workload.MilliCPU(p.pools[i].Low):
		s.below = 0
	case s.fresh:
		s.below++
		waited := now.Sub(s.grew) >= time.Duration(s.wait)*p.cfg.SlowWindow
		s.calm = s.calm || waited && s.below >= p.cfg.ShrinkAfter && s.slow.full(now)
	}
	if !s.calm || now.Sub(s.changed) < p.cfg.ShrinkPause {
		return s.size
	}
	step := max(p.cfg.ShrinkCPUs, s.size*p.cfg.ShrinkPercent/100)
	return max(target, s.size-max(p.core, step/p.core*p.core))
}

// urgency determines how hard the pools over their band may take CPUs. A pool may take as hard
// as any pool below it, which would otherwise get what this one was refused.
func (p *Pools) urgency() {
	forces, presses := false, false
	for i := len(p.state) - 2; i >= 0; i-- {
		s := &p.state[i]
		switch {
		case !p.overloaded(i):
			s.over = 0
		case s.fresh:
			s.over++
		}
		claims := s.lost || s.size < max(s.floor, s.expected)
		forces, presses = forces || s.over >= forcedAfter, presses || p.urgent(i) || claims
		s.forces, s.presses = forces, presses
	}
}

// urgent reports whether a pool is so far over its band that its growth has no bound.
func (p *Pools) urgent(i int) bool {
	s := &p.state[i]
	return p.overloaded(i) && (s.pressure >= highPressure || s.fast*100 > s.capacity()*nearFull)
}

// grow enlarges the pools over their band in descending priority.
func (p *Pools) grow(now time.Time) {
	p.urgency()
	for i := range len(p.state) - 1 {
		s := &p.state[i]
		p.sizes.Short[i] = 0
		switch {
		case s.lost:
			p.takeCPUs(i, min(s.cap, max(s.floor, roundUp(ceil(s.request.max()), p.core))), causeStale)
		case p.overloaded(i):
			had := s.size
			if p.relieve(i); s.size > had {
				s.grewAt(now, p.cfg.SlowWindow)
			}
		case s.size < s.floor:
			p.takeCPUs(i, s.floor, causeFloor)
		case s.size < s.expected:
			p.takeCPUs(i, s.expected, causeForecast)
		}
	}
}

// grewAt records a growth. A pool that grows soon after it shrank waits twice as long before it
// shrinks again, so that load which comes and goes moves few CPUs.
func (s *poolState) grewAt(now time.Time, window time.Duration) {
	switch {
	case now.Sub(s.grew) > 2*longestWait*window:
		s.wait = 1
	case s.shrunk:
		s.wait = min(2*s.wait, longestWait)
	}
	s.grew, s.shrunk = now, false
}

// relieve grows a pool over its band, and records what it still lacks.
func (p *Pools) relieve(i int) {
	s := &p.state[i]
	need, full := p.target(i, s.fast), p.full(i)
	want := max(need, s.floor, s.expected)
	if !p.urgent(i) {
		step := max(p.cfg.GrowCPUs, (s.size*p.cfg.GrowPercent+99)/100)
		want = min(want, s.size+max(step/p.core*p.core, p.core))
	}
	p.takeCPUs(i, min(want, s.cap), causeLoad)
	if full {
		p.guess(i)
	}
	if p.overloaded(i) && (s.size >= s.cap || !p.below(i)) {
		p.sizes.Short[i] = need - s.size
	}
}

// full reports whether a pool uses so much of its CPUs that its demand may be higher than the
// measured load.
func (p *Pools) full(i int) bool { return p.state[i].fast > workload.MilliCPU(p.sizeOf(i)*10*nearFull) }

// guess gives a pool whose CPUs are too full to show the demand what its containers request.
// They may need it now, and growth by the measured load would take several steps. The CPUs come
// from the last pool, and then from the others, the lowest first, as far as they have more than
// their own containers request. Pools above give as well where all requests fit, since a
// request comes before spare CPUs; but a pool that grew in this step keeps what it got, so that no
// CPU passes through two pools in one step. CPUs that the pool then does not use go back after
// the next measurement.
func (p *Pools) guess(i int) {
	s, last := &p.state[i], len(p.state)-1
	without, first := s.size, 0
	if p.promised > p.total {
		first = i + 1
	}
	p.move(last, i, p.state[last].minimum, s.owed, causeLoad)
	for j := last - 1; j >= first; j-- {
		if from := &p.state[j]; j != i && from.known && from.size <= from.before {
			p.move(j, i, from.owed, s.owed, causeLoad)
		}
	}
	if s.size > without {
		s.guessed = without
	}
}

// seen returns the size of a pool whose load can be measured after a guess.
func (p *Pools) seen(i int) int {
	s := &p.state[i]
	if s.guessed == 0 || s.known && (!s.fresh || p.full(i)) {
		return s.size
	}
	size := s.size
	if s.known {
		size = min(size, max(s.guessed, s.floor, s.expected, p.target(i, s.fast)))
	}
	s.guessed = 0
	return size
}

// below reports whether any pool below pool i has CPUs that can be taken by force.
func (p *Pools) below(i int) bool {
	last := len(p.state) - 1
	for j := i + 1; j <= last; j++ {
		if s := &p.state[j]; (s.known || j == last) && s.size-p.least(j) >= p.core {
			return true
		}
	}
	return false
}

// takeCPUs grows pool i to want, as far as the pools below can give: first the last pool, then
// those above it in ascending priority. Each keeps its load in the band, with two exceptions:
// the last pool keeps only its minimum if pool i is nearly full, and all pools do if pool i
// stays over its band. A pool whose load is unknown keeps everything, unless it is the last. To
// fill a floor, for a forecast, or if there are no measurements, only the last pool gives. Once pool i
// is within its band, the last pool keeps what the pools between them are about to need (claimed).
func (p *Pools) takeCPUs(i, want int, why cause) {
	s, last := &p.state[i], len(p.state)-1
	forced := why == causeLoad && s.forces
	keep := p.keeps(last)
	if forced || why != causeLoad || s.presses || p.urgent(i) {
		keep = p.state[last].minimum
	}
	if why == causeLoad {
		p.move(last, i, keep, min(want, max(s.owed, p.inBand(i))), why)
		keep += p.claimed(i)
	}
	p.move(last, i, keep, want, why)
	if why != causeLoad {
		return
	}
	for j := last - 1; j > i; j-- {
		p.move(j, i, p.keeps(j), want, why)
	}
	for j := last - 1; j > i && forced; j-- {
		if p.state[j].known {
			p.move(j, i, p.least(j), want, why)
		}
	}
}

// claimed is the number of CPUs that the pools below pool i get by guess in the same step: those that
// are full, up to what their containers request, where all requests fit.
func (p *Pools) claimed(i int) (sum int) {
	for j := i + 1; j < len(p.state)-1 && p.promised <= p.total; j++ {
		if s := &p.state[j]; p.overloaded(j) && p.full(j) {
			sum += max(0, s.owed-s.size)
		}
	}
	return sum
}

// move gives pool i the CPUs of pool j that it wants, down to what pool j keeps.
func (p *Pools) move(j, i, keep, want int, why cause) {
	from, to := &p.state[j], &p.state[i]
	give := min(want-to.size, from.size-keep)
	if to.size+give < want {
		give -= (to.size + give) % p.core
	}
	if give <= 0 {
		return
	}
	from.size -= give
	to.size += give
	to.cause, from.cause, from.taker = why, causeTaken, i
}
