package control

import "time"

// lost is after how many intervals without news something counts as not known.
const lost = 3

// stopwatch measures time between steps. Jumps of the clock, and the time of a loop
// that stood still, don't count as time that passed.
type stopwatch struct{ last time.Time }

// lap is the time since the lap before: 0 at the first and where the clock went back,
// three intervals at most.
func (s *stopwatch) lap(now time.Time, interval time.Duration) time.Duration {
	passed := now.Sub(s.last)
	if s.last.IsZero() {
		passed = 0
	}
	s.last = now
	return min(max(passed, 0), lost*interval)
}

// known reports whether what was measured at that time still says what is.
func known(now, at time.Time, interval time.Duration) bool {
	if at.IsZero() {
		return false
	}
	age := now.Sub(at)
	return age >= -interval && age <= lost*interval
}

// uses reports whether a container's CPU usage is known. Idle containers are looked at
// more seldom: their own interval counts.
func uses(v *View, c *Container, interval time.Duration) bool {
	return known(v.Now, c.CPU.At, max(interval, c.CPU.Interval))
}
