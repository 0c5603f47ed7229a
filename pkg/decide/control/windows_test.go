package control

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for machines without zones

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func newWindows(t testing.TB, zone string, windows ...Window) *Windows {
	t.Helper()
	location, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWindows(windows, []string{"critical", "online", "batch"}, location, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func clockAt(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05 -0700", text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestWindows(t *testing.T) {
	t.Parallel()
	day := Window{From: "09:00", To: "18:00", Days: []string{"mon", "fri"}, Grace: 30 * time.Minute}
	night := Window{From: "22:00", To: "06:00", Days: []string{"fri"}}
	slow := Window{From: "09:00", To: "18:00", Percent: 40}
	for name, test := range map[string]struct {
		zone    string
		windows []Window
		at      string // 2026-03-06 is a Friday
		want    string
		next    string // "" for none
	}{
		"before the grace":      {"Europe/Berlin", []Window{day}, "2026-03-06 08:29:59 +0100", "open", "2026-03-06 08:30:00 +0100"},
		"in the grace":          {"Europe/Berlin", []Window{day}, "2026-03-06 08:30:00 +0100", "take no new", "2026-03-06 09:00:00 +0100"},
		"at its beginning":      {"Europe/Berlin", []Window{day}, "2026-03-06 09:00:00 +0100", "close", "2026-03-06 18:00:00 +0100"},
		"in another zone's day": {"Europe/Berlin", []Window{day}, "2026-03-06 17:00:00 +0900", "close", "2026-03-06 18:00:00 +0100"},
		"at its last second":    {"Europe/Berlin", []Window{day}, "2026-03-06 17:59:59 +0100", "close", "2026-03-06 18:00:00 +0100"},
		"at its end":            {"Europe/Berlin", []Window{day}, "2026-03-06 18:00:00 +0100", "open", "2026-03-09 08:30:00 +0100"},
		"on another day":        {"Europe/Berlin", []Window{day}, "2026-03-07 12:00:00 +0100", "open", "2026-03-09 08:30:00 +0100"},
		"over midnight":         {"Europe/Berlin", []Window{night}, "2026-03-06 23:00:00 +0100", "close", "2026-03-07 06:00:00 +0100"},
		"after midnight":        {"Europe/Berlin", []Window{night}, "2026-03-07 05:59:00 +0100", "close", "2026-03-07 06:00:00 +0100"},
		"not the night before":  {"Europe/Berlin", []Window{night}, "2026-03-06 05:00:00 +0100", "open", "2026-03-06 22:00:00 +0100"},
		"slowed":                {"Europe/Berlin", []Window{slow}, "2026-03-06 12:00:00 +0100", "squeeze to 40%", "2026-03-06 18:00:00 +0100"},
		"the strictest":         {"Europe/Berlin", []Window{slow, day, {From: "00:00", To: "24:00", Percent: 20}}, "2026-03-06 12:00:00 +0100", "close", "2026-03-06 18:00:00 +0100"},
		"all day long":          {"UTC", []Window{{From: "00:00", To: "24:00"}}, "2026-03-06 12:00:00 +0000", "close", "2026-03-07 00:00:00 +0000"},
		"none":                  {"UTC", nil, "2026-03-06 12:00:00 +0000", "open", ""},

		// On 2026-03-29 the time from 02:00 to 03:00 does not exist in Berlin.
		"begins in the gap: at its end":   {"Europe/Berlin", []Window{{From: "02:30", To: "05:00"}}, "2026-03-29 03:00:00 +0200", "close", "2026-03-29 05:00:00 +0200"},
		"and not before":                  {"Europe/Berlin", []Window{{From: "02:30", To: "05:00"}}, "2026-03-29 01:59:59 +0100", "open", "2026-03-29 03:00:00 +0200"},
		"ends in the gap: at it":          {"Europe/Berlin", []Window{{From: "01:00", To: "02:30"}}, "2026-03-29 03:00:00 +0200", "open", "2026-03-30 01:00:00 +0200"},
		"all in the gap: not on that day": {"Europe/Berlin", []Window{{From: "02:10", To: "02:50"}}, "2026-03-29 01:00:00 +0100", "open", "2026-03-30 02:10:00 +0200"},
		"over the gap":                    {"Europe/Berlin", []Window{{From: "01:00", To: "04:00"}}, "2026-03-29 03:30:00 +0200", "close", "2026-03-29 04:00:00 +0200"},
		// On 2026-10-25 the time from 02:00 to 03:00 occurs twice in Berlin.
		"begins at the first of two":          {"Europe/Berlin", []Window{{From: "02:30", To: "05:00"}}, "2026-10-25 02:30:00 +0200", "close", "2026-10-25 05:00:00 +0100"},
		"stays when the clock goes back":      {"Europe/Berlin", []Window{{From: "02:30", To: "05:00"}}, "2026-10-25 02:10:00 +0100", "close", "2026-10-25 05:00:00 +0100"},
		"ends at the second of two":           {"Europe/Berlin", []Window{{From: "01:00", To: "02:30"}}, "2026-10-25 02:29:59 +0100", "close", "2026-10-25 02:30:00 +0100"},
		"in between too":                      {"Europe/Berlin", []Window{{From: "01:00", To: "02:30"}}, "2026-10-25 02:45:00 +0200", "close", "2026-10-25 02:30:00 +0100"},
		"a change of half an hour, in Lord H": {"Australia/Lord_Howe", []Window{{From: "02:10", To: "03:00"}}, "2026-10-04 02:30:00 +1100", "close", "2026-10-04 03:00:00 +1100"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWindows(t, test.zone, test.windows...)
			v := View{Now: clockAt(t, test.at)}
			state, _ := w.Step(&v, Switch{})
			next := time.Time{}
			if test.next != "" {
				next = clockAt(t, test.next)
			}
			if state.text() != test.want || !w.Next().Equal(next) || (state.Why == "") != (test.want == "open") {
				t.Errorf("%s, next %s: %+v, want %s, next %s", state.text(), w.Next(), state, test.want, next)
			}
		})
	}
}

func TestWindowsOfPods(t *testing.T) {
	t.Parallel()
	w := newWindows(t, "UTC", Window{From: "00:00", To: "24:00", Labels: map[string]string{"app": "shop-*", "tier": "front"}})
	for name, test := range map[string]struct {
		pods []Pod
		want string
	}{
		"none":        {nil, "open"},
		"one":         {[]Pod{{Class: workload.LS}, {Class: workload.LSR, Labels: map[string]string{"app": "shop-a", "tier": "front", "x": "y"}}}, "close"},
		"but BE":      {[]Pod{{Class: workload.BE, Labels: map[string]string{"app": "shop-a", "tier": "front"}}}, "open"},
		"half of it":  {[]Pod{{Class: workload.LS, Labels: map[string]string{"app": "shop-a"}}}, "open"},
		"not matched": {[]Pod{{Class: workload.LS, Labels: map[string]string{"app": "mail", "tier": "front"}}}, "open"},
	} {
		if state, _ := w.Step(&View{Now: stageNow(), Pods: test.pods}, Switch{}); state.text() != test.want {
			t.Errorf("%s: %+v", name, state)
		}
	}
}

// A window that needs a forecast is open while that is high and for ten minutes more. Without the
// forecast it is open, too, and evicts nobody.
func TestWindowWhenForecast(t *testing.T) {
	t.Parallel()
	w := newWindows(t, "UTC", Window{From: "00:00", To: "24:00", Evict: true, When: WindowWhen{Metric: "node.cpu.predicted", Above: 80}})
	s := newStage(60*gib, 40*gib) // 10 CPUs, at 10:00
	run := func(d time.Duration, expected workload.MilliCPU, want string) {
		t.Helper()
		s.Expected.Soon.CPU = expected
		var state BatchState
		for range d / time.Second {
			state, _ = w.Step(s.tick(), Switch{})
		}
		if told := w.Coming(&s.View, Switch{}, soon); state.text() != want || (told.Kind == NoticeEvict) != (want == "evict") || (told.Kind == "") != (want == "open") {
			t.Errorf("%d expected for %v: %s, %+v, want %s", expected, d, state.text(), told, want)
		}
	}
	run(5*time.Second, 0, "open") // not known yet
	run(time.Minute, 8000, "open")
	run(5*time.Second, 8001, "evict")
	run(9*time.Minute, 100, "evict")
	run(2*time.Minute, 100, "open")
	run(50*time.Second, 0, "open")
	run(20*time.Second, 0, "close")
	run(time.Hour, 0, "close")
	run(time.Second, 100, "open")
}

func TestSwitch(t *testing.T) {
	t.Parallel()
	w := newWindows(t, "UTC", Window{From: "09:00", To: "18:00"})
	s := newStage(60*gib, 40*gib) // at 10:00
	until := s.Now.Add(5 * time.Second)
	step := func(change Switch, want string, next time.Time, tells bool) {
		t.Helper()
		state, decisions := w.Step(s.tick(), change)
		if state.text() != want || !w.Next().Equal(next) || (len(decisions) == 1) != tells {
			t.Errorf("%s, next %s, tells %+v", state.text(), w.Next(), decisions)
		}
	}
	evening := time.Date(2026, 3, 4, 18, 0, 0, 0, time.UTC)
	step(Switch{}, "close", evening, true)
	step(Switch{}, "close", evening, false)
	step(Switch{To: SwitchOn}, "open", time.Time{}, true)
	step(Switch{To: SwitchOff, Until: until}, "close", until, true)
	step(Switch{To: SwitchOff, Until: until, Evict: true}, "close", evening, true) // until the time of the switch
	step(Switch{To: SwitchOff, Evict: true}, "evict", time.Time{}, true)
	step(Switch{To: SwitchOn, Until: s.Now}, "close", evening, true)
	var to SwitchState
	if to.UnmarshalText([]byte("auto")) != nil || to != SwitchAuto || to.UnmarshalText([]byte("off")) != nil || to != SwitchOff || to.UnmarshalText([]byte("")) == nil {
		t.Error(to)
	}
}

// A window evicts only if the clock has not jumped; the switch evicts at once.
func TestWindowsEvictOnSteadyTime(t *testing.T) {
	t.Parallel()
	w := newWindows(t, "UTC", Window{From: "09:00", To: "18:00", Evict: true})
	s := newStage(60*gib, 40*gib)
	var evicts []bool
	step := func() {
		state, _ := w.Step(s.tick(), Switch{})
		evicts = append(evicts, state.Evict)
	}
	for range 4 {
		step()
	}
	s.Now = s.Now.Add(time.Hour)
	for range 4 {
		step()
	}
	if got := fmt.Sprint(evicts); got != "[false false false true false false false true]" {
		t.Error(got)
	}
	if state, _ := newWindows(t, "UTC").Step(&s.View, Switch{To: SwitchOff, Evict: true}); !state.Evict {
		t.Error("the switch waits")
	}
}

// Except for the hours around a change to or from summer time, a window is open exactly while the
// clock shows a time in it.
func TestWindowsProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom([]string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kolkata"}).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		from, to := rapid.IntRange(0, 1439).Draw(t, "from"), rapid.IntRange(0, 1440).Draw(t, "to")
		if from == to {
			to++
		}
		text := func(m int) string { return fmt.Sprintf("%02d:%02d", m/60, m%60) }
		w, err := NewWindows([]Window{{From: text(from), To: text(to)}}, nil, zone, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		v := View{Now: time.Unix(rapid.Int64Range(1700000000, 1900000000).Draw(t, "at"), 0)}
		for range 50 {
			v.Now = v.Now.Add(time.Duration(rapid.IntRange(0, 7200).Draw(t, "step")) * time.Second)
			state, _ := w.Step(&v, Switch{})
			local := v.Now.In(zone)
			clock := local.Hour()*60 + local.Minute()
			inside := clock >= from && clock < to
			if to <= from {
				inside = clock >= from || clock < to
			}
			// A window in an hour that occurs twice, or not at all, is open from its first begin
			// to its last end.
			_, earlier := v.Now.Add(-2 * time.Hour).In(zone).Zone()
			_, later := v.Now.Add(2 * time.Hour).In(zone).Zone()
			if state.Closed != inside && earlier == later {
				t.Fatalf("%s: closed is %v in %s-%s", local, state.Closed, text(from), text(to))
			}
			if next := w.Next(); !next.After(v.Now) || next.Sub(v.Now) > 49*time.Hour {
				t.Fatalf("at %s the next change is at %s", local, next)
			}
		}
	})
}

func TestCheckWindows(t *testing.T) {
	t.Parallel()
	for want, w := range map[string]Window{
		"":                                       {From: "09:00", To: "24:00", Days: []string{"Mon"}, Labels: map[string]string{"app": "a*"}, Grace: time.Hour, Evict: true},
		`[0].from "9": must be a time of day`:    {From: "9", To: "10:00"},
		`[0].from "24:00": must be`:              {From: "24:00", To: "10:00"},
		`[0].to "24:01": must be`:                {From: "09:00", To: "24:01"},
		`[0].to "09:60": must be`:                {From: "09:00", To: "09:60"},
		`[0].to "09:00": is where the window`:    {From: "09:00", To: "09:00"},
		"did you mean tue?":                      {From: "09:00", To: "10:00", Days: []string{"tues"}},
		"[0].labels.app \"[\": is not a pattern": {From: "09:00", To: "10:00", Labels: map[string]string{"app": "["}},
		"[0].grace 13h0m0s: must be":             {From: "09:00", To: "10:00", Grace: 13 * time.Hour},
		"[0].percent 100: must be 0 to 99":       {From: "09:00", To: "10:00", Percent: 100},
		"[0].evict goes with percent 0":          {From: "09:00", To: "10:00", Percent: 5, Evict: true},
		"[0].when.metric \"x\": is not a metric": {From: "09:00", To: "10:00", When: WindowWhen{Metric: "x", Above: 1}},
		"must be a forecast, such as node.cpu":   {From: "09:00", To: "10:00", When: WindowWhen{Metric: "node.cpu", Above: 1}},
		"[0].when.above 0: must be 1 to 10000":   {From: "09:00", To: "10:00", When: WindowWhen{Metric: "pool.online.cpu.predicted"}},
		"[0].grace goes with percent 0":          {From: "09:00", To: "10:00", Percent: 5, Grace: time.Second},
	} {
		problemsAre(t, CheckWindows([]Window{w}, []string{"online", "batch"}), want)
	}
	if _, err := NewWindows([]Window{{From: "9", To: "10:00"}}, nil, time.UTC, time.Second); err == nil || !strings.Contains(err.Error(), "window 9-10:00") {
		t.Error(err)
	}
}

func FuzzMinute(f *testing.F) {
	for _, text := range []string{"09:30", "24:00", "0:00", "23:59", "24:01", "", ":", "1:2:3", "-1:00", "+1:00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMinute(text)
		if err != nil {
			return
		}
		if m < 0 || m > dayMinutes || text != fmt.Sprintf("%02d:%02d", m/60, m%60) && text != fmt.Sprintf("%d:%02d", m/60, m%60) {
			t.Errorf("%q is %d", text, m)
		}
	})
}

func TestWindowsAllocs(t *testing.T) {
	w := newWindows(t, "Europe/Berlin", Window{From: "09:00", To: "18:00", Labels: map[string]string{"app": "*"}}, Window{From: "00:00", To: "24:00", Percent: 10})
	noAllocs(t, crowd(), func(v *View) []Decision { _, d := w.Step(v, Switch{}); return d })
}

func BenchmarkWindows(b *testing.B) {
	w, s := newWindows(b, "Europe/Berlin", Window{From: "09:00", To: "18:00", Labels: map[string]string{"app": "*"}}, Window{From: "00:00", To: "24:00", Percent: 10}), crowd()
	b.ReportAllocs()
	for b.Loop() {
		w.Step(s.tick(), Switch{})
	}
}
