// Package reclaim does in user space what memory.wmark_ratio does on kernels that
// have it: it takes memory back from a cgroup in the background before its limit is
// reached, so that its own tasks need not stop for it, and holds its page cache at a
// limit. It goes in bounded steps and leaves a cgroup under memory pressure alone.
package reclaim

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Target is what a cgroup is kept at. The zero value asks for nothing.
type Target struct {
	// Memory in use: from above StartAt it is reclaimed until it is Until; 0, 0
	// never. They were computed from the limit that is seen first: where somebody
	// changes that, they move in proportion.
	StartAt, Until knobs.Bytes
	CacheMax       knobs.Bytes // page cache above it is reclaimed; 0 any
}

// Observation is a cgroup's memory.
type Observation struct {
	Current  knobs.Bytes // memory.current
	Max      knobs.Bytes // memory.max; negative without limit
	File     knobs.Bytes // memory.stat: active_file + inactive_file. "file" has tmpfs in it, which is no cache
	Pressure float64     // memory.pressure: some avg10, in percent; negative where it is not known
}

// State is what one step leaves for the next; the zero value knows nothing.
type State struct {
	target    Target
	base      knobs.Bytes // the limit that the target was computed from; 0 or negative: not seen yet
	limit     knobs.Bytes // seen last
	memory    bool        // between the marks on the way down
	cache     bool
	paused    bool      // by pressure
	notBefore time.Time // the next step
	misses    int       // in a row
}

// The discipline is senpai's (github.com/facebookincubator/senpai): bounded steps,
// a wait after each, longer after a failure, nothing at all under pressure.
const (
	page = 4096

	leastStep    = knobs.Bytes(64 << 20)
	stepDivisor  = 100 // of the limit
	cacheDivisor = 16  // the cache is reclaimed so far below its limit

	pausePressure  = 10.0
	resumePressure = 5.0

	spacing    = 100 * time.Millisecond // between steps
	firstGrace = time.Second            // after a shortfall, doubled by each further one
	mostGrace  = time.Minute
)

// Paused reports whether pressure holds reclaim back.
func (s State) Paused() bool { return s.paused }

// Step returns how much to reclaim now, in whole pages; 0 is nothing. From where
// reclaim begins it goes on, step by step, until the lower mark; it never asks for
// more than what lies above that. Where somebody has changed the limit it begins
// anew from that. It does nothing where the pressure is not known.
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
	}
	return s, excess
}

// scaled is a mark moved with the limit. Without a limit it stays where it is.
func scaled(mark, limit, base knobs.Bytes) knobs.Bytes {
	if limit <= 0 || limit == base {
		return mark
	}
	return min(knobs.Bytes(float64(mark)*(float64(limit)/float64(base))), limit)
}

func within(already bool, value, begin, until knobs.Bytes) bool {
	return begin > 0 && (value > begin || already && value > until)
}

// After returns the state once the kernel has answered, a shortfall being less than
// was asked for, or a failure.
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
