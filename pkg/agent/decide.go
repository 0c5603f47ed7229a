package agent

import (
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// remembered is how many decisions the status tells; the audit trail has them all.
const remembered = 100

// decide notes what a controller decided.
func (a *Agent) decide(mode control.Mode, decided []control.Decision) {
	l := &a.loop
	if mode == control.Off { // what is measured for others all the same is told by nobody
		return
	}
	for i := range decided {
		d := &decided[i]
		l.latest(status.Decision{Time: l.view.Now, Mode: mode, Decision: *d})
		if len(l.decisions) == remembered {
			l.decisions = append(l.decisions[:0], l.decisions[1:]...)
		}
		l.decisions = append(l.decisions, status.Decision{Time: l.view.Now, Mode: mode, Decision: *d})
		l.counts[status.Decided{Controller: d.Controller, Action: d.Action, Cause: d.Cause, Mode: mode}]++
		if a.Audit != nil {
			a.Audit.Record(l.view.Now, mode, d)
		}
		level := logrus.InfoLevel
		if mode != control.On {
			level = logrus.DebugLevel
		}
		a.Log.WithFields(logrus.Fields{"controller": d.Controller, "object": d.Object, "from": d.From, "to": d.To, "mode": mode, "why": d.Why}).Log(level, "Decided: "+d.Action)
	}
}

// The names of what the loop keeps over a restart in the book.
const (
	benefitState = "benefit"
	peaksState   = "peaks"
)

func (a *Agent) keptBenefit() (kept control.BenefitCounts) {
	a.book.State(benefitState, &kept) //nolint:errcheck // what is lost begins anew
	return kept
}

func (a *Agent) keptPeaks() (kept control.Peaks) {
	a.book.State(peaksState, &kept) //nolint:errcheck // what is lost begins anew
	return kept
}

// keepCounts writes them down now and then.
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
	a.book.KeepState(benefitState, l.controllers.benefit.Counts()) //nolint:errcheck // tried again
	a.book.KeepState(peaksState, l.controllers.sell.Peaks())       //nolint:errcheck // tried again
}

// count is what the loop measures, for people.
func (a *Agent) count(v *control.View, disturbed []control.Disturbance) {
	l, c := &a.loop, &a.loop.controllers
	l.disturbed = disturbed
	noisy, decided := c.noisy.Step(v)
	a.decide(control.Preview, decided)
	l.advice = append(append(append(l.advice[:0], c.burst.Advice()...), noisy...), c.overAsk.Step(v)...)
	l.advice = append(l.advice, c.outgrown.Step(v)...)

	given := a.given()
	squeezed := 0
	if given < l.given {
		squeezed = 1
	}
	l.given = given
	kills := c.eviction.Counts().Evicted
	c.benefit.Step(v, control.Given{CPU: given, Squeezes: squeezed, Kills: kills - l.kills})
	l.kills = kills
	l.free = a.freeCPUs(l.free[:0])
	l.offer, decided = c.sell.Step(v, l.free)
	a.decide(control.Preview, decided)
	a.keepCounts()
}

// freeCPUs counts the CPUs that pins could have, by NUMA node.
func (a *Agent) freeCPUs(into []int) []int {
	m := a.ledger.Machine()
	for i := range m.Nodes {
		into = append(into, cpuset.IntersectSize(m.Nodes[i].CPUs, a.ledger.Shared()))
	}
	return into
}
