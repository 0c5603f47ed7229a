// Package reclaim does in user space what memory.wmark_ratio does on kernels that have it: it
// reclaims memory of a cgroup in the background before its limit is reached, so that its tasks
// need not reclaim directly, and it limits the cgroup's page cache. It also reclaims memory that
// a cgroup does not use, as senpai does, if the cgroup asks for that. It reclaims in bounded
// steps and pauses while a cgroup is under memory pressure.
package reclaim

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Target says how much memory a cgroup may use. The zero value asks for nothing.
type Target struct {
	// When memory in use exceeds StartAt, it is reclaimed down to Until; 0, 0 means never. Both
	// were computed from the limit that the first Observation shows, and scale with it if
	// another program changes it.
	StartAt, Until knobs.Bytes
	CacheMax       knobs.Bytes // page cache above this is reclaimed; 0 means no limit
	Offload        bool        // memory that the cgroup does not use is reclaimed bit by bit
}

// Observation is a measurement of a cgroup's memory.
type Observation struct {
	Current  knobs.Bytes // memory.current
	Max      knobs.Bytes // memory.max; negative means no limit
	File     knobs.Bytes // memory.stat: active_file + inactive_file, because "file" includes tmpfs
	Pressure float64     // memory.pressure: some avg10, in percent; negative means unknown
}

// State is the state between steps; the zero value is the initial state.
type State struct {
	target    Target
	base      knobs.Bytes // the limit from which the target was computed; 0 or negative: unknown
	limit     knobs.Bytes // the limit in the last observation
	memory    bool        // reclaiming from StartAt down to Until
	cache     bool
	paused    bool      // by pressure
	notBefore time.Time // time of the next step
	offloadAt time.Time // time of the next step of Offload
	misses    int       // shortfalls in a row
}

// These constants follow senpai (github.com/facebookincubator/senpai): bounded steps, a wait
// after each, a longer wait after a failure, and no reclaim under pressure.
const (
	page = 4096

	leastStep    = knobs.Bytes(64 << 20)
	stepDivisor  = 100 // a step is this fraction of the limit
	cacheDivisor = 16  // the cache is reclaimed to this fraction below its limit

	pausePressure  = 10.0
	resumePressure = 5.0

	spacing    = 100 * time.Millisecond // time between steps
	firstGrace = time.Second            // wait after a shortfall; each further one doubles it
	mostGrace  = time.Minute
)

// These constants of Offload are those of Meta's TMO (Weiner et al., Transparent Memory Offloading,
// ASPLOS 2022, section 3.3): every six seconds it reclaims
// current × ratio × max(0, 1 − pressure / threshold), 30 % of unused memory in an hour.
const (
	offloadInterval  = 6 * time.Second
	offloadDivisor   = 2000 // 1 / ratio
	offloadThreshold = 0.1  // percent of the time
)

// Paused reports whether pressure pauses reclaim.
func (s State) Paused() bool { return s.paused }

// Step returns how much to reclaim now, in whole pages; 0 means nothing. Once memory in use
// exceeds StartAt, Step continues until Until is reached, and never asks for more than the
// excess over that. If another program changes the limit, it starts over with the scaled
// target. It does nothing while the pressure is unknown.
func Step(t Target, s State, o Observation, now time.Time) (State, knobs.Bytes) {
	if t != s.target {
		s.target, s.base = t, 0
	}
	if s.base <= 0 {
		s.base = o.Max
	}
	if o.Max != s.limit {
		s = State{target: t, base: s.base, limit: o.Max, paused: s.paused}
	}
	s.paused = o.Pressure < 0 || o.Pressure > pausePressure || s.paused && o.Pressure > resumePressure
	until := scaled(t.Until, o.Max, s.base)
	s.memory = within(s.memory, o.Current, scaled(t.StartAt, o.Max, s.base), until)
	cacheUntil := t.CacheMax - t.CacheMax/cacheDivisor
	s.cache = within(s.cache, o.File, t.CacheMax, cacheUntil)
	if s.paused || now.Before(s.notBefore) {
		return s, 0
	}
	var excess knobs.Bytes
	if s.memory {
		excess = o.Current - until
	}
	if s.cache {
		excess = max(excess, o.File-cacheUntil)
	}
	excess = min(excess, max(leastStep, o.Max/stepDivisor)) / page * page
	if excess > 0 {
		s.notBefore = now.Add(spacing)
		return s, excess
	}
	if !t.Offload || now.Before(s.offloadAt) {
		return s, 0
	}
	s.offloadAt = now.Add(offloadInterval)
	unused := float64(o.Current) / offloadDivisor * max(0, 1-o.Pressure/offloadThreshold)
	return s, knobs.Bytes(unused) / page * page
}

// scaled returns a mark in proportion to the limit. Without a limit the mark doesn't change.
func scaled(mark, limit, base knobs.Bytes) knobs.Bytes {
	if limit <= 0 || limit == base {
		return mark
	}
	return min(knobs.Bytes(float64(mark)*(float64(limit)/float64(base))), limit)
}

func within(already bool, value, begin, until knobs.Bytes) bool {
	return begin > 0 && (value > begin || already && value > until)
}

// After returns the state after the kernel's answer; a shortfall is a failure or less memory
// than requested.
func (s State) After(shortfall bool, now time.Time) State {
	if !shortfall {
		s.misses = 0
		return s
	}
	grace := mostGrace
	if s.misses < 6 {
		grace = min(firstGrace<<s.misses, mostGrace)
	}
	s.misses++
	s.notBefore = now.Add(grace)
	return s
}
