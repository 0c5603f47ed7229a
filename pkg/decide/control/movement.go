package control

import (
	"fmt"
	"regexp"
	"slices"
	"time"
)

// movementRest is the time without a change of the value that ends a movement.
const movementRest = 10 * time.Second

// ReportedDecision is a decision as it is reported, with its time and its controller's mode.
type ReportedDecision struct {
	Time time.Time
	Mode Mode
	Decision
}

// Movements joins successive decisions that move one value in the same direction. Without it, a
// budget that follows the load would be reported ten times a second. A movement ends when the
// value changes direction, when it has not changed for movementRest, or when its controller's
// mode changes.
type Movements struct {
	open  []movement
	ended []ReportedDecision
}

type movement struct {
	reported ReportedDecision
	value    string // name of the value, as in Decision.Moves
	why      string // reason of its first step
	last     time.Time
}

// Add adds a decision. It returns the movements that end with it, and the decision to report: a
// step of a movement is reported together with all earlier steps and the time of the first. The
// list is valid until the next call.
func (m *Movements) Add(now time.Time, mode Mode, d *Decision) (ended []ReportedDecision, reported ReportedDecision) {
	m.ended = m.ended[:0]
	reported = ReportedDecision{now, mode, *d}
	if d.Moves == "" {
		return nil, reported
	}
	at := slices.IndexFunc(m.open, func(o movement) bool {
		return o.reported.Controller == d.Controller && o.reported.Object == d.Object && o.value == d.Moves
	})
	if at >= 0 {
		if o := &m.open[at]; o.reported.Action != d.Action || o.reported.Mode != mode || o.rests(now) {
			m.end(o)
			m.open = slices.Delete(m.open, at, at+1)
			at = -1
		}
	}
	if at < 0 {
		reported.Steps, reported.Ongoing = 1, true
		m.open = append(m.open, movement{reported: reported, value: d.Moves, why: d.Why, last: now})
		return m.ended, reported
	}
	o := &m.open[at]
	t := &o.reported
	if t.Steps++; t.Steps == 2 {
		t.FirstFacts = t.Facts
	}
	o.last = now
	t.To, t.Cause, t.Facts, t.LastStepAt = d.To, d.Cause, d.Facts, now
	if t.Why = d.Why; !sameReason(o.why, d.Why) {
		t.Why = "at first: " + o.why + "; at last: " + d.Why
	}
	return m.ended, *t
}

// Rest ends and returns the movements that have rested, or all. The list is valid until the
// next call.
func (m *Movements) Rest(now time.Time, all bool) (ended []ReportedDecision) {
	m.ended = m.ended[:0]
	m.open = slices.DeleteFunc(m.open, func(o movement) bool {
		if !all && !o.rests(now) {
			return false
		}
		m.end(&o)
		return true
	})
	return m.ended
}

// rests reports whether the movement has not continued for long enough to end. A clock that
// went back ends it too, because its times would make no sense.
func (o *movement) rests(now time.Time) bool {
	since := now.Sub(o.last)
	return since >= movementRest || since < 0
}

func (m *Movements) end(o *movement) {
	o.reported.Ongoing = false
	m.ended = append(m.ended, o.reported)
}

// amounts matches what may differ between two sentences that give the same reason.
var amounts = regexp.MustCompile(`[0-9]+(\.[0-9]+)?( ?%| CPUs?\b| [KMGT]?i?B\b)?`)

func sameReason(a, b string) bool {
	return amounts.ReplaceAllLiteralString(a, "") == amounts.ReplaceAllLiteralString(b, "")
}

// Change describes the change without its object and reason: "squeeze, 4 CPUs to 1.4 CPUs in 12
// steps over 3s".
func (d *Decision) Change() string {
	text := d.Action
	switch {
	case d.From != "" && d.To != "":
		text += ", " + d.From + " to " + d.To
	case d.To != "":
		text += ", " + d.To
	}
	if d.Steps > 1 {
		text += fmt.Sprintf(" in %d steps", d.Steps)
	}
	return text
}

// Change describes the change as Decision.Change does, and adds the time that a movement took.
func (t *ReportedDecision) Change() string {
	text := t.Decision.Change()
	if t.Steps > 1 {
		text += " over " + t.Over().String()
		if t.Ongoing {
			text += " so far"
		}
	}
	return text
}

// Over returns the time from a movement's first to its last step.
func (t *ReportedDecision) Over() time.Duration {
	if t.LastStepAt.IsZero() {
		return 0
	}
	return t.LastStepAt.Sub(t.Time).Round(100 * time.Millisecond)
}
