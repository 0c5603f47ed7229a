package control

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Objective is a latency objective of slo.sluice.dev with what was measured.
type Objective struct {
	Metric           string    `json:"metric"`            // Histogram of the pod's response times.
	QuantileFraction float64   `json:"quantileFraction"`  // Share of the requests that must be answered within the bound, 0 to 1.
	BoundSeconds     float64   `json:"boundSeconds"`      // Largest response time, in seconds.
	Seconds          float64   `json:"seconds"`           // Quantile of the response times, in seconds.
	Requests         int       `json:"requests"`          // Requests by which the quantile is known, of the last 5 to 60 seconds.
	Slow             int       `json:"slow"`              // Requests that took longer than the bound.
	Measured         bool      `json:"measured"`          // Whether the response times are known now; for the first five minutes in which they are not, batch work does not get more CPU.
	Problem          string    `json:"problem,omitempty"` // Why the histogram can't be read; absent if it can.
	BrokenAt         time.Time `json:"brokenAt,omitzero"` // Time at which the objective was broken; absent while it is kept.
	Alone            bool      `json:"alone"`             // Whether the pod broke the objective for ten minutes while no batch work ran, so that batch work isn't the cause.

	from      time.Time // start of the window
	limited   bool      // the pod had a lower CPU limit as a culprit in the window
	lost      bool      // it was measured a short time ago, and is not now
	unread    bool      // it could not be read for so long that somebody should know
	tolerated float64   // response time in seconds up to which batch work may slow the pod down: the bound, or slightly more than what it needs alone
	ample     float64   // response time below which batch work may get more CPU
}

// The constants of objectives.
const (
	latencyAge   = 15 * time.Second // after which a reading is too old, as three have failed
	unreadTime   = time.Minute      // that a pod may take to serve its histogram
	leastSlow    = 3                // slow requests that break an objective: one may have been unlucky
	slowdown     = 0.1              // by which batch work may slow down a pod that breaks its objective alone
	calmFollows  = 0.2              // part of the way that the calm latency goes with each slower reading
	calmFalls    = 0.05             // and with each faster one
	calmAge      = 30 * time.Minute // after which a calm latency above the bound is measured again
	calmRequests = 30               // that a window needs to say what is calm
)

// objective is the state of a pod's objective.
type objective struct {
	of     workload.Objective
	calm   float64       // response time without batch work in seconds; 0 if unknown
	calmAt time.Time     // when it was learned
	at     time.Time     // of the latest reading
	known  time.Time     // when it was measured last, or else since when it could have been
	since  time.Time     // since when it is broken
	alone  time.Duration // for which it has been broken without batch work
}

// follow takes a new reading. It is calm if no batch work ran during its window.
func (o *objective) follow(l *observe.Latency, bound float64, calm bool) {
	if l.At.Equal(o.at) {
		return
	}
	took := max(0, l.At.Sub(o.at))
	if o.at.IsZero() || took > latencyAge {
		took = 0
	}
	o.at = l.At
	o.learn(l, bound, calm)
	switch {
	case l.Seconds > bound && l.Slow >= leastSlow:
		if o.since.IsZero() {
			o.since = l.At
		}
	case l.Seconds < bound*keptAgain:
		o.since = time.Time{}
	}
	switch {
	case o.since.IsZero():
		o.alone = 0
	case calm:
		o.alone = min(o.alone+took, aloneTime)
	}
}

// learn follows what the pod needs alone. It follows slow readings faster than fast ones, as readings vary
// and any slow one would cost batch work its share. For the same reason, only a much faster reading beside
// batch work counts. Since batch work may slow the pod down to what it was, what it needs alone and is above
// the bound must be measured again some day.
func (o *objective) learn(l *observe.Latency, bound float64, calm bool) {
	switch enough := l.Requests >= calmRequests; {
	case calm && (enough || l.Slow >= leastSlow):
		switch {
		case o.calm == 0:
			o.calm = l.Seconds
		case l.Seconds > o.calm:
			o.calm += (l.Seconds - o.calm) * calmFollows
		default:
			o.calm += (l.Seconds - o.calm) * calmFalls
		}
		o.calmAt = l.At
	case enough && l.Seconds < o.calm/2:
		o.calm += (l.Seconds - o.calm) * calmFollows
	}
	if age := l.At.Sub(o.calmAt); o.calm > bound && (age > calmAge || age < -calmAge) {
		o.calm = 0
	}
}

// objectiveOf returns the pod's objective with what was measured; nil if it has none.
func (f *Interference) objectiveOf(v *View, p *Pod, s *suffering) *Objective {
	wants, l, o := &p.SLO.Latency, &p.Latency, &s.objective
	if wants.Bound == 0 {
		return nil
	}
	if o.of != *wants { // a container or a new configuration has brought another
		*o = objective{of: *wants}
	}
	bound := wants.Bound.Seconds()
	measured := recent(v.Now, l.At, latencyAge)
	limited := measured && l.From.Before(s.limitedAt) && recent(v.Now, s.limitedAt, lostTime)
	switch {
	case limited:
		o.at = l.At
	case measured:
		o.follow(l, bound, !f.lightAt.IsZero() && !l.From.Before(f.lightAt))
	}
	lately := recent(v.Now, o.at, lostTime)
	if !lately {
		*o = objective{of: o.of, at: o.at, known: o.known}
	}
	tolerated := max(bound, o.calm*(1+slowdown))
	now := Objective{
		Metric: wants.Metric, QuantileFraction: wants.Quantile, BoundSeconds: bound,
		Measured: measured, limited: limited, Problem: l.Problem, BrokenAt: o.since, Alone: o.alone >= aloneTime,
		lost: !measured && lately, tolerated: tolerated, ample: max(boundMargin*bound, o.calm+boundMargin*(tolerated-o.calm)),
	}
	if measured {
		now.Seconds, now.Requests, now.Slow, now.from = l.Seconds, int(l.Requests), int(l.Slow), l.From
	}
	if measured || o.known.IsZero() || v.Now.Before(o.known) {
		o.known = v.Now
	}
	now.unread = v.Now.Sub(o.known) >= unreadTime
	return &now
}

// broken reports whether batch work may be why the pod answers too late now.
func (o *Objective) broken() bool {
	return o.Measured && !o.limited && o.Seconds > o.tolerated && o.Slow >= leastSlow
}

// kept reports whether the pod has answered requests now, and in time.
func (o *Objective) kept() bool { return o.Measured && o.Requests > 0 && o.Seconds <= o.tolerated }

// since reports whether what is measured shows what a change at that time has brought.
func (o *Objective) since(change time.Time) bool {
	return o.Measured && !o.limited && !o.from.Before(change)
}

// Now says how fast the pod answers.
func (o *Objective) Now() string {
	return fmt.Sprintf("%s of its requests within %s", o.share(), inTime(o.Seconds))
}

// Most says what the objective is.
func (o *Objective) Most() string { return inTime(o.BoundSeconds) }

func (o *Objective) share() string {
	return fmt.Sprintf("%g %%", math.Round(o.QuantileFraction*1e4)/100)
}

func (o *Objective) facts() []Fact {
	return []Fact{{"seconds", o.Seconds}, {"bound_seconds", o.BoundSeconds}, {"requests", float64(o.Requests)}}
}

// Advice says what to do about an objective that the pod can't keep alone, or whose histogram can't be
// read; "" if there is nothing to do.
func (o *Objective) Advice() string {
	switch {
	case o.Alone && o.Measured:
		return fmt.Sprintf("it has answered later than its objective of %s for ten minutes without batch work, now %s: it needs more CPU (a larger limit or request, or a pin), less load, or an objective that it can keep", o.Most(), o.Now())
	case o.unread && o.Problem != "":
		return fmt.Sprintf("nothing keeps its objective of %s, because its histogram %s can't be read: %s", o.Most(), o.Metric, o.Problem)
	case o.unread:
		return fmt.Sprintf("nothing keeps its objective of %s, because its histogram %s has not been read", o.Most(), o.Metric)
	}
	return ""
}

// inTime formats a time in seconds.
func inTime(seconds float64) string {
	switch {
	case seconds >= 100:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds >= 0.9995: // which rounds to 1000 ms
		return fmt.Sprintf("%.3g s", seconds)
	}
	return fmt.Sprintf("%.3g ms", seconds*1000)
}
