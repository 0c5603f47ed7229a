package decisionlog

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
)

// trail is an audit trail in memory that dropped three entries.
type trail []string

func (t *trail) Record(_ time.Time, mode control.Mode, d *control.Decision) {
	*t = append(*t, fmt.Sprintf("%s %s %s in %d", mode, d.Action, d.To, d.Steps))
}

func (t *trail) Dropped() int { return 3 }

// begin is the time at which the tests begin.
var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// squeeze is a step of a movement of the batch budget.
func squeeze(to string) []control.Decision {
	return []control.Decision{{Controller: "batch", Object: "node", Action: "squeeze", To: to, Moves: "budget", Why: "load"}}
}

func TestMovementIsOneDecision(t *testing.T) {
	t.Parallel()
	var audit trail
	log, hook := logtest.NewNullLogger()
	l := New(&audit, log)
	for i := range 3 {
		l.Add(begin.Add(time.Duration(i)*time.Second), control.On, squeeze(fmt.Sprint(8-i)))
	}
	check := func(going bool) {
		t.Helper()
		recent := l.Recent()
		last, ok := l.Last("batch")
		if len(recent) != 1 || recent[0].Steps != 3 || recent[0].To != "6" || recent[0].Ongoing != going || !ok || !reflect.DeepEqual(last, recent[0]) {
			t.Errorf("remembered %+v, last %+v", recent, last)
		}
	}
	check(true)
	l.EndResting(begin.Add(4 * time.Second))
	check(true)
	l.EndResting(begin.Add(time.Minute))
	check(false)
	if want := []string{"on squeeze 8 in 1", "on squeeze 6 in 3"}; !slices.Equal(audit, want) {
		t.Errorf("the trail has %q, want %q", audit, want)
	}
	entries := hook.AllEntries()
	if len(entries) != 2 || entries[0].Data["steps"] != nil || entries[1].Data["steps"] != 3 || entries[1].Level != logrus.InfoLevel {
		t.Errorf("the log has %+v", entries)
	}
	want := []status.Count{{Decided: status.Decided{Controller: "batch", Action: "squeeze", Mode: control.On}, Count: 1}}
	if got := l.Counts(); !slices.Equal(got, want) {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if l.Dropped() != 3 {
		t.Errorf("%d dropped, want 3", l.Dropped())
	}
}

// A controller that is off makes no decisions. Those of a controller in preview are below the
// log's usual level.
func TestModes(t *testing.T) {
	t.Parallel()
	log, hook := logtest.NewNullLogger()
	l := New(nil, log)
	l.Add(begin, control.Off, squeeze("8"))
	if _, ok := l.Last("batch"); ok || len(l.Recent()) != 0 || len(l.Counts()) != 0 {
		t.Errorf("a controller that is off has decided %+v", l.Recent())
	}
	l.Add(begin, control.Preview, squeeze("8"))
	if len(l.Recent()) != 1 || len(hook.AllEntries()) != 0 || l.Dropped() != 0 {
		t.Errorf("in preview the log has %+v, remembered is %+v", hook.AllEntries(), l.Recent())
	}
}

func TestRememberedAreBounded(t *testing.T) {
	t.Parallel()
	var audit trail
	log, _ := logtest.NewNullLogger()
	l := New(&audit, log)
	l.Add(begin, control.On, squeeze("8"))
	for i := range remembered {
		l.Add(begin, control.On, []control.Decision{{Controller: "rules", Action: "act", To: fmt.Sprint(i)}})
	}
	l.Add(begin.Add(time.Second), control.On, squeeze("7")) // its first step is no longer remembered
	l.EndAll(begin.Add(2 * time.Second))
	recent := l.Recent()
	if len(recent) != remembered || recent[0].To != "0" || recent[remembered-1].To != fmt.Sprint(remembered-1) {
		t.Errorf("%d are remembered, from %+v to %+v", len(recent), recent[0], recent[len(recent)-1])
	}
	if last, _ := l.Last("batch"); last.To != "7" || last.Ongoing {
		t.Errorf("the last decision on the budget is %+v", last)
	}
	if len(audit) != remembered+2 || audit[len(audit)-1] != "on squeeze 7 in 2" {
		t.Errorf("the trail has %d entries, the last %q", len(audit), audit[len(audit)-1])
	}
}
