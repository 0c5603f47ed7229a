package control

import "time"

// outage is a loss of figures as it is reported: on a busy node they come late again and
// again, and it has ended only once they have been there for settleTime.
type outage struct {
	on       bool
	lastLost time.Time
}

// observe takes in whether the figures are there, and tells whether the report changes.
func (o *outage) observe(now time.Time, lost bool) (changed bool) {
	if lost || now.Before(o.lastLost) {
		o.lastLost = now
	}
	was := o.on
	o.on = lost || was && now.Sub(o.lastLost) < settleTime
	return o.on != was
}

// staleAfter is the age in intervals at which a figure is no longer one to decide by.
const staleAfter = 3

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
	return min(max(passed, 0), staleAfter*interval)
}

// known reports whether what was measured at that time still says what is.
func known(now, at time.Time, interval time.Duration) bool {
	if at.IsZero() {
		return false
	}
	age := now.Sub(at)
	return age >= -interval && age <= staleAfter*interval
}

// uses reports whether a container's CPU usage is known. Idle containers are looked at
// more seldom: their own interval counts.
func uses(v *View, c *Container, interval time.Duration) bool {
	return known(v.Now, c.CPU.At, max(interval, c.CPU.Interval))
}

// recent reports whether a measurement of that time is no older than limit. One from
// the future is none: the clock has jumped since.
func recent(now, at time.Time, limit time.Duration) bool {
	age := now.Sub(at)
	return !at.IsZero() && age <= limit && age >= -limit
}
