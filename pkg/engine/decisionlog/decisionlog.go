// Package decisionlog remembers what the control loop has decided, for the status, and enters
// each decision in the plugin's log and in the audit trail.
package decisionlog

import (
	"cmp"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
)

// remembered is the number of decisions in the status; the audit trail has them all.
const remembered = 100

// Audit keeps decisions with their reasons; see pkg/engine/audit. It must not block.
type Audit interface {
	Record(at time.Time, mode control.Mode, d *control.Decision)
	// Dropped is the number of decisions that are lost.
	Dropped() int
}

// Log is what has been decided since the plugin started. Steps that move one value the same
// way are one decision, a movement: the first step enters it in the log and in the audit
// trail, and so does its end, with all its steps; meanwhile the status shows it as it is.
type Log struct {
	audit Audit
	log   logrus.FieldLogger

	movements control.Movements
	decisions []status.Decision // the last ones, the newest at the end
	counts    map[status.Decided]int
	last      map[string]status.Decision // by controller
}

// New makes an empty Log. Without an audit trail (nil) decisions go to the log alone.
func New(audit Audit, log logrus.FieldLogger) *Log {
	return &Log{audit: audit, log: log, counts: map[status.Decided]int{}, last: map[string]status.Decision{}}
}

// Add takes what a controller decided in a mode. It leaves out what a controller decides that
// is off: such a controller steps because others need what it measures.
func (l *Log) Add(now time.Time, mode control.Mode, decided []control.Decision) {
	if mode == control.Off {
		return
	}
	for i := range decided {
		ended, told := l.movements.Add(now, mode, &decided[i])
		l.end(ended)
		d := status.Decision(told)
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
		l.enter(&told)
	}
}

// EndResting ends the movements whose value has come to rest.
func (l *Log) EndResting(now time.Time) { l.end(l.movements.Rest(now, false)) }

// EndAll ends all movements.
func (l *Log) EndAll(now time.Time) { l.end(l.movements.Rest(now, true)) }

// end takes movements that have ended, and enters those of more than one step as a whole.
func (l *Log) end(ended []control.ReportedDecision) {
	for i := range ended {
		l.update(status.Decision(ended[i]))
		if ended[i].Steps > 1 {
			l.enter(&ended[i])
		}
	}
}

// update replaces what was remembered of a movement by what is known of it now.
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

// enter enters a decision in the log and in the audit trail.
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

// Recent is a copy of the last decisions, the newest at the end.
func (l *Log) Recent() []status.Decision { return slices.Clone(l.decisions) }

// Last is a controller's last decision; ok is false before its first one.
func (l *Log) Last(controller string) (d status.Decision, ok bool) {
	d, ok = l.last[controller]
	return d, ok
}

// Counts are the numbers of decisions by their kinds, in a fixed order.
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

// Dropped is the number of decisions that the audit trail has lost.
func (l *Log) Dropped() int {
	if l.audit == nil {
		return 0
	}
	return l.audit.Dropped()
}
