package batchswitch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/status"
)

// Read returns what Write has written.
func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if got, err := Read(dir); err != nil || got != (Setting{}) {
		t.Errorf("without a file: %+v, %v", got, err)
	}
	for _, want := range []Setting{{}, {To: control.SwitchOn}, {To: control.SwitchOff, Evict: true, Until: time.Unix(1e9, 5).UTC()}} {
		if err := Write(dir, want); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(dir); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, File), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "write it anew with sluice batch") {
		t.Errorf("a broken file: %v", err)
	}
	if err := Write(filepath.Join(dir, "none"), Setting{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a folder: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"to":"off","evict":true,"until":"2026-11-21T12:00:00Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parse(data)
		if err == nil && !slices.Contains([]control.SwitchState{"", control.SwitchOn, control.SwitchOff}, s.To) {
			t.Errorf("it switches to %q", s.To)
		}
	})
}

// answers is a plugin that gives one answer after the other, and then repeats the last.
type answers []func(*status.Loop) error

func (a *answers) StatusIn(ctx context.Context) (*status.Status, error) {
	next := (*a)[0]
	if len(*a) > 1 {
		*a = (*a)[1:]
	}
	s := &status.Status{Time: time.Unix(1000, 0), Loop: &status.Loop{
		MeasuredAt: time.Unix(1000, 0), Interval: time.Second, StateDir: "/state",
		Batch: status.Batch{Switch: status.Switch{State: "auto"}, Mechanism: "quota"},
		Controllers: []status.Controller{
			{Name: "windows", Mode: control.On}, {Name: "batch", Mode: control.On}, {Name: "pools", Mode: control.On}, {Name: "eviction", Mode: control.On},
		},
		Evictions: status.Evictions{By: control.EvictCRI},
	}}
	err := next(s.Loop)
	if s.Loop.Interval == 0 {
		s.Loop = nil
	}
	return s, errors.Join(err, ctx.Err())
}

// The report lists what is not in force yet, for each answer that a loop can give.
func TestFollowAndJudge(t *testing.T) {
	t.Parallel()
	follows := func(l *status.Loop) error { l.Batch.Switch.State = "off"; return nil }
	evicts := func(l *status.Loop) error { l.Batch.Switch.Evict = true; return follows(l) }
	in := func(name string, mode control.Mode, first func(*status.Loop) error) func(*status.Loop) error {
		return func(l *status.Loop) error {
			for i := range l.Controllers {
				if l.Controllers[i].Name == name {
					l.Controllers[i].Mode = mode
				}
			}
			return first(l)
		}
	}
	apart := func(l *status.Loop) error { l.Batch.Mechanism = status.ByPools; return follows(l) }
	away := func(*status.Loop) error { return errors.New("no answer") }
	still := func(l *status.Loop) error { l.MeasuredAt = l.MeasuredAt.Add(-time.Hour); return follows(l) }
	none := func(l *status.Loop) error { l.Interval = 0; return nil }
	unread := func(*status.Loop) error { return nil }
	for name, test := range map[string]struct {
		plugin  answers
		evict   bool
		want    LoopAnswer
		floor   bool // the command has to squeeze batch work
		missing string
	}{
		"at once":                  {answers{follows}, false, LoopFollows, false, ""},
		"later":                    {answers{away, unread, follows}, false, LoopFollows, false, ""},
		"no loop":                  {answers{none}, false, LoopOff, false, "batch work stays as it is"},
		"never read":               {answers{unread}, false, LoopStuck, true, "batch work stays as it is"},
		"disk hangs":               {answers{func(l *status.Loop) error { l.Batch.Switch.Problem = "it hangs"; return unread(l) }}, false, LoopStuck, true, "the plugin can't read the switch: it hangs"},
		"never read, in preview":   {answers{in("batch", control.Preview, in("pools", control.Preview, unread))}, false, LoopStuck, false, "batch work stays as it is"},
		"stands still":             {answers{still}, false, LoopStuck, true, "batch work stays as it is"},
		"away":                     {answers{away}, false, LoopSilent, true, "batch work stays as it is"},
		"goes away":                {answers{unread, away}, false, LoopSilent, true, "batch work stays as it is"},
		"another folder":           {answers{func(l *status.Loop) error { l.StateDir = "/other"; return unread(l) }}, false, LoopStuck, false, "state folder is /other"},
		"batch in preview":         {answers{in("batch", control.Preview, follows)}, false, LoopFollows, false, "control.batch.mode is preview"},
		"windows in preview":       {answers{in("windows", control.Preview, follows)}, false, LoopFollows, false, "new batch work still starts: control.mode is preview"},
		"all in preview":           {answers{in("windows", control.Preview, in("batch", control.Preview, in("pools", control.Preview, follows)))}, false, LoopFollows, false, "the loop only previews"},
		"pools apart":              {answers{apart}, false, LoopFollows, false, ""},
		"pools apart, in preview":  {answers{in("pools", control.Preview, apart)}, false, LoopFollows, false, "control.pools.mode is preview"},
		"pools on too few CPUs":    {answers{func(l *status.Loop) error { l.Batch.Unlimited = true; return apart(l) }}, false, LoopFollows, false, "too few to divide"},
		"evicting":                 {answers{evicts}, true, LoopFollows, false, ""},
		"eviction in preview":      {answers{in("eviction", control.Preview, evicts)}, true, LoopFollows, false, "control.eviction.mode is preview, by cri"},
		"eviction by report alone": {answers{func(l *status.Loop) error { l.Evictions.By = control.EvictReport; return evicts(l) }}, true, LoopFollows, false, "control.eviction.mode is on, by report"},
		"eviction without a loop":  {answers{away}, true, LoopSilent, true, "nothing was evicted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				r := Follow(ctx, &test.plugin, "/state/", Setting{To: control.SwitchOff, Evict: test.evict})
				r.Judge(true)
				lacks := strings.Join(r.Lacks, "; ")
				if r.Loop != test.want || r.LeavesFloor() != test.floor || !strings.Contains(lacks, test.missing) || (lacks == "") != (test.missing == "") {
					t.Errorf("%s, floor %t, lacks %q", r.Loop, r.LeavesFloor(), lacks)
				}
			})
		})
	}
}

// The report says what the failsafe did in the loop's place, and what it could not do.
func TestJudgeFloor(t *testing.T) {
	t.Parallel()
	for want, floor := range map[string]failsafe.Report{
		"":                                       {Changes: 1},
		"the failsafe has no plan for this boot": {},
		"not all of the floor could be set: no":  {Changes: 1, Problem: "no"},
	} {
		r := Check(t.Context(), &answers{func(*status.Loop) error { return errors.New("no answer") }}, "/state", Setting{To: control.SwitchOff})
		r.Floor = &floor
		r.Judge(true)
		if got := strings.Join(r.Lacks, "; "); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	r := Check(t.Context(), &answers{func(*status.Loop) error { return errors.New("no answer") }}, "/state", Setting{})
	if r.Judge(false); !slices.Equal(r.Lacks, []string{"what is in force isn't known"}) {
		t.Errorf("asked of nobody: %q", r.Lacks)
	}
}

// The report says why the switch changes nothing, and how to change that.
func TestPreview(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]*status.Status{
		"": {Mode: status.ModeOn, Why: "cpusets are the kubelet's"},
		"mode is preview; set mode and control.mode to on in sluice.yaml": {Mode: status.ModePreview},
		"koordlet: remove it": {Mode: status.ModePreview, Why: "koordlet: remove it"},
	} {
		s.Loop = &status.Loop{Controllers: []status.Controller{{Name: "windows", Mode: control.On}}}
		var r Report
		if r.note(s, "/state"); r.Preview != want {
			t.Errorf("%q, want %q", r.Preview, want)
		}
	}
	var r Report
	r.note(&status.Status{Mode: status.ModeOn, Loop: &status.Loop{Mode: control.Preview}}, "/state")
	if want := "control.mode is preview; set it to on in sluice.yaml"; r.Preview != want {
		t.Errorf("%q, want %q", r.Preview, want)
	}
}
