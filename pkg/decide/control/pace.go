package control

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
)

// outage is a loss of figures as it is reported. On a busy node figures come late again and
// again, so the outage ends only once they have been available for settleTime.
type outage struct {
	on       bool
	lastLost time.Time
}

// observe records whether the figures are missing, and returns whether the reported state
// changes.
func (o *outage) observe(now time.Time, lost bool) (changed bool) {
	if lost || now.Before(o.lastLost) {
		o.lastLost = now
	}
	was := o.on
	o.on = lost || was && now.Sub(o.lastLost) < settleTime
	return o.on != was
}

// staleAfter is the age in intervals from which a figure is too old to decide by.
const staleAfter = 3

// pace measures the time between a controller's steps.
type pace struct {
	interval time.Duration
	last     time.Time
}

// next begins a step and returns the time since the previous one. The time is not steady at the
// first step, after a gap of more than three intervals, and if the clock stood still or went
// back. A controller neither shrinks nor evicts then.
func (p *pace) next(now time.Time) (since time.Duration, steady bool) {
	since, first := now.Sub(p.last), p.last.IsZero()
	p.last = now
	return since, !first && since > 0 && since <= staleAfter*p.interval
}

// waiting reports whether less than wait has passed since then. A clock that went back ends the
// wait, which would otherwise last for as long as the jump.
func waiting(since, now time.Time, wait time.Duration) bool {
	passed := now.Sub(since)
	return !since.IsZero() && passed >= 0 && passed < wait
}

// stopwatch measures the time between steps. It leaves out jumps of the clock and the time in
// which the loop stood still.
type stopwatch struct{ last time.Time }

// lap returns the time since the previous call, at most three intervals. It returns 0 at the
// first call and after the clock went back.
func (s *stopwatch) lap(now time.Time, interval time.Duration) time.Duration {
	passed := now.Sub(s.last)
	if s.last.IsZero() {
		passed = 0
	}
	s.last = now
	return min(max(passed, 0), staleAfter*interval)
}

// known reports whether a measurement of that time is recent enough to use.
func known(now, at time.Time, interval time.Duration) bool {
	if at.IsZero() {
		return false
	}
	age := now.Sub(at)
	return age >= -interval && age <= staleAfter*interval
}

// uses reports whether the container's CPU usage is known. Idle containers are measured less
// often, so that each has its own interval.
func uses(v *View, c *Container, interval time.Duration) bool {
	return known(v.Now, c.CPU.At, max(interval, c.CPU.Interval))
}

// knownSlowly reports whether a measurement that is made each observe.SlowInterval is recent enough
// to use.
func knownSlowly(now, at time.Time, interval time.Duration) bool {
	return known(now, at, max(interval, observe.SlowInterval))
}

// recent reports whether a measurement of that time is no older than limit. One from the future
// is not recent, since the clock has jumped back.
func recent(now, at time.Time, limit time.Duration) bool {
	age := now.Sub(at)
	return !at.IsZero() && age <= limit && age >= -limit
}
