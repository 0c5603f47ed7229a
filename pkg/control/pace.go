package control

import "time"

// staleAfter is the age in intervals at which a figure is no longer one to decide by.
const staleAfter = 3

// fresh reports whether what was measured then may be decided by now. A time that
// lies ahead comes from a clock that went back.
func fresh(at, now time.Time, interval time.Duration) bool {
	return !at.IsZero() && !at.After(now.Add(interval)) && now.Sub(at) <= staleAfter*interval
}

// pace is the time between a controller's steps.
type pace struct {
	interval time.Duration
	last     time.Time
}

// next begins a step and returns the time since the one before. It is not steady at
// the first step, after a gap of more than three intervals, and when the clock stood
// still or went back: then a controller neither shrinks nor evicts.
func (p *pace) next(now time.Time) (since time.Duration, steady bool) {
	since, first := now.Sub(p.last), p.last.IsZero()
	p.last = now
	return since, !first && since > 0 && since <= staleAfter*p.interval
}

// waiting reports whether less than so much time has passed since then. A clock that
// went back ends the wait: it would last for as long as the clock went.
func waiting(since, now time.Time, wait time.Duration) bool {
	passed := now.Sub(since)
	return !since.IsZero() && passed >= 0 && passed < wait
}
