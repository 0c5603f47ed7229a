package agent

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
)

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

// count steps the controllers that only measure, for people, and keeps what they have learned.
func (a *Agent) count(v *control.View) {
	l, c := &a.loop, &a.loop.controllers
	noisy, decided := c.Noisy.Step(v)
	a.decisions.Add(l.view.Now, control.Preview, decided)
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
	a.decisions.Add(l.view.Now, control.Preview, decided)
	a.keepCounts()
}
