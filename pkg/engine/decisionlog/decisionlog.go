// Package decisionlog stores the control loop's decisions for the status, and writes each decision
// to the plugin's log and to the audit trail.
package decisionlog

import (
	"cmp"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
)

// remembered is the maximum number of decisions in the status. The audit trail has all decisions.
const remembered = 100

// Audit stores decisions with their reasons; see pkg/engine/audit. Its methods must not block.
type Audit interface {
	Record(at time.Time, mode control.Mode, d *control.Decision)
	// Dropped returns the number of lost decisions.
	Dropped() int
}

// Log holds the decisions since the plugin started. Steps that move one value in the same
// direction are one decision, a movement. The log and the audit
// trail get its first step, and a summary with the number of steps when it ends. Until it ends,
// the status shows its present state.
type Log struct {
	audit Audit
	log   logrus.FieldLogger

	movements control.Movements
	decisions []status.Decision // the newest is at the end
	counts    map[status.Decided]int
	last      map[string]status.Decision // last decision by controller
}

// New makes an empty Log. If audit is nil, decisions are written to the log only.
func New(audit Audit, log logrus.FieldLogger) *Log {
	return &Log{audit: audit, log: log, counts: map[status.Decided]int{}, last: map[string]status.Decision{}}
}

// Add enters the decisions of a controller that runs in a mode. It ignores the decisions of a
// controller that is off: such a controller takes its steps only because others need its
// measurements.
func (l *Log) Add(now time.Time, mode control.Mode, decided []control.Decision) {
	if mode == control.Off {
		return
	}
	for i := range decided {
		ended, reported := l.movements.Add(now, mode, &decided[i])
		l.end(ended)
		d := status.Decision(reported)
		l.last[d.Controller] = d
		if d.Steps > 1 {
			l.update(d)
			continue
		}
		if len(l.decisions) == remembered {
			l.decisions = append(l.decisions[:0], l.decisions[1:]...)
		}
		l.decisions = append(l.decisions, d)
		l.counts[status.Decided{Controller: d.Controller, Action: d.Action, Cause: d.Cause, Mode: mode}]++
		l.enter(&reported)
	}
}

// EndResting ends the movements whose value has stopped changing.
func (l *Log) EndResting(now time.Time) { l.end(l.movements.Rest(now, false)) }

// EndAll ends all movements.
func (l *Log) EndAll(now time.Time) { l.end(l.movements.Rest(now, true)) }

// end enters movements that have ended. Those with more than one step are entered as a whole.
func (l *Log) end(ended []control.ReportedDecision) {
	for i := range ended {
		l.update(status.Decision(ended[i]))
		if ended[i].Steps > 1 {
			l.enter(&ended[i])
		}
	}
}

// update replaces the remembered state of a movement by its present state.
func (l *Log) update(d status.Decision) {
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
		l.last[d.Controller] = d
	}
}

// enter writes a decision to the log and to the audit trail.
func (l *Log) enter(d *control.ReportedDecision) {
	if l.audit != nil {
		l.audit.Record(d.Time, d.Mode, &d.Decision)
	}
	level := logrus.InfoLevel
	if d.Mode != control.On {
		level = logrus.DebugLevel
	}
	fields := logrus.Fields{"controller": d.Controller, "object": d.Object, "from": d.From, "to": d.To, "mode": d.Mode, "why": d.Why}
	if d.Steps > 1 {
		fields["steps"], fields["over"] = d.Steps, d.Over()
	}
	l.log.WithFields(fields).Log(level, "Decided: "+d.Action)
}

// Recent returns a copy of the remembered decisions, the newest at the end.
func (l *Log) Recent() []status.Decision { return slices.Clone(l.decisions) }

// Last returns the last decision of a controller; ok is false before the first one.
func (l *Log) Last(controller string) (d status.Decision, ok bool) {
	d, ok = l.last[controller]
	return d, ok
}

// Counts returns the numbers of decisions by kind, in a fixed order.
func (l *Log) Counts() []status.Count {
	counts := make([]status.Count, 0, len(l.counts))
	for what, n := range l.counts {
		counts = append(counts, status.Count{Decided: what, Count: n})
	}
	slices.SortFunc(counts, func(a, b status.Count) int {
		return cmp.Or(cmp.Compare(a.Controller, b.Controller), cmp.Compare(a.Action, b.Action), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Mode, b.Mode))
	})
	return counts
}

// Dropped returns the number of decisions that the audit trail has lost.
func (l *Log) Dropped() int {
	if l.audit == nil {
		return 0
	}
	return l.audit.Dropped()
}
