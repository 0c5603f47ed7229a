package agent

import (
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
)

// remembered is how many decisions the status tells; the audit trail has them all.
const remembered = 100

// decided notes the decisions of a controller.
func (a *Agent) decided(d colocation.Decided) { a.decide(d.Mode, d.Decisions) }

// decide notes what a controller decided. A step of a movement under way renews what is
// told of that.
func (a *Agent) decide(mode control.Mode, decided []control.Decision) {
	l := &a.loop
	if mode == control.Off { // what is measured for others all the same is told by nobody
		return
	}
	for i := range decided {
		ended, told := l.movements.Add(l.view.Now, mode, &decided[i])
		a.tellEnded(ended)
		d := status.Decision(told)
		l.latest(d)
		if d.Steps > 1 {
			l.renew(d)
			continue
		}
		if len(l.decisions) == remembered {
			l.decisions = append(l.decisions[:0], l.decisions[1:]...)
		}
		l.decisions = append(l.decisions, d)
		l.counts[status.Decided{Controller: d.Controller, Action: d.Action, Cause: d.Cause, Mode: mode}]++
		a.enter(&told)
	}
}

// tellEnded tells of movements as a whole, where their first step was not all.
func (a *Agent) tellEnded(ended []control.Told) {
	for i := range ended {
		a.loop.renew(status.Decision(ended[i]))
		if ended[i].Steps > 1 {
			a.enter(&ended[i])
		}
	}
}

// enter notes a decision in the log and in the audit trail.
func (a *Agent) enter(d *control.Told) {
	if a.options.Audit != nil {
		a.options.Audit.Record(d.Time, d.Mode, &d.Decision)
	}
	level := logrus.InfoLevel
	if d.Mode != control.On {
		level = logrus.DebugLevel
	}
	fields := logrus.Fields{"controller": d.Controller, "object": d.Object, "from": d.From, "to": d.To, "mode": d.Mode, "why": d.Why}
	if d.Steps > 1 {
		fields["steps"], fields["over"] = d.Steps, d.Over()
	}
	a.Log.WithFields(fields).Log(level, "Decided: "+d.Action)
}

// renew puts what is now known of a movement in the place of what was told before.
func (l *loop) renew(d status.Decision) {
	same := func(o *status.Decision) bool {
		return o.Time.Equal(d.Time) && o.Controller == d.Controller && o.Object == d.Object && o.Action == d.Action
	}
	for i := range slices.Backward(l.decisions) {
		if same(&l.decisions[i]) {
			l.decisions[i] = d
			break
		}
	}
	if last, ok := l.last[d.Controller]; ok && same(&last) {
		l.latest(d)
	}
}

// The names of what the loop keeps over a restart in the book.
const (
	benefitState = "benefit"
	peaksState   = "peaks"
)

// learned is what controllers have kept from an earlier run.
func (a *Agent) learned() (kept colocation.Learned) {
	a.Journal.State(benefitState, &kept.Benefit) //nolint:errcheck // what is lost begins anew
	a.Journal.State(peaksState, &kept.Peaks)     //nolint:errcheck // what is lost begins anew
	return kept
}

// keepLearned writes down what controllers keep over a restart.
func (a *Agent) keepLearned() {
	kept := a.loop.controllers.Learned()
	a.Journal.KeepState(benefitState, kept.Benefit) //nolint:errcheck // tried again
	a.Journal.KeepState(peaksState, kept.Peaks)     //nolint:errcheck // tried again
}

// keepCounts writes down what controllers have learned, every five minutes.
func (a *Agent) keepCounts() {
	const every = 5 * time.Minute
	l := &a.loop
	if l.keptAt.IsZero() {
		l.keptAt = l.view.Now
	}
	if since := l.view.Now.Sub(l.keptAt); since >= 0 && since < every {
		return
	}
	l.keptAt = l.view.Now
	a.keepLearned()
}

// count is what the loop measures, for people.
func (a *Agent) count(v *control.View) {
	l, c := &a.loop, &a.loop.controllers
	noisy, decided := c.Noisy.Step(v)
	a.decide(control.Preview, decided)
	l.advice = append(append(append(l.advice[:0], c.Burst.Advice()...), noisy...), c.OverAsk.Step(v)...)
	l.advice = append(l.advice, c.Outgrown.Step(v)...)

	given := a.given()
	squeezed := 0
	if given < l.given {
		squeezed = 1
	}
	l.given = given
	kills := c.Eviction.Counts().Evicted
	c.Benefit.Step(v, control.Given{CPU: given, Squeezes: squeezed, Kills: kills - l.evicted})
	l.evicted = kills
	l.free = a.Ledger.Pinnable(l.free[:0])
	if a.Authority().Foreign { // pins are refused there
		clear(l.free)
	}
	l.offer, decided = c.Sell.Step(v, l.free)
	a.decide(control.Preview, decided)
	a.keepCounts()
}
