package sim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
)

func TestMistakesHaveTheirLine(t *testing.T) {
	t.Parallel()
	const good = "machine: 4 cores\nduration: 1m\npods:\n- name: a\n  load: {cpu: 1}\n"
	for text, want := range map[string]string{
		"":                                    "is empty",
		"machine: [":                          "not YAML",
		good + "---\na: b":                    "line 6: is a second document",
		"duration: 1m":                        "machine: is missing",
		good + "config: {mode: of}":           "line 6: config.mode",
		good + "config:\n  colour: red":       "line 7: config.colour: is not a key",
		good + "machin: x":                    "did you mean machine?",
		good + "vary: all":                    "line 6: vary: \"all\": must be batch or online",
		good + "start: now":                   "must be a date",
		good + "budget: 3":                    "must be a share",
		good + "hardware: {smt: 0%}":          "hardware.smt: must be over 0%",
		good + "- name: a\n  load: {cpu: 1}":  "line 6: pods[1].name: \"a\" is there twice",
		good + "- name: b":                    "pods[1].load.cpu: is missing",
		good + "- {name: b, load: {cpu: -1}}": "line 6: pods[1].load.cpu: \"-1\": must not be negative",
		good + "- {name: b, load: {cpu: 1, curve: cosine}}":                                    "must be constant, sine",
		good + "- {name: b, load: {cpu: 1, curve: bursts}}":                                    "bursts need",
		good + "- {name: b, load: {cpu: 1, curve: steps}}":                                     "is missing: a list of times",
		good + "- {name: b, load: {curve: trace, trace: \"1;2\"}}":                             "must be lines of seconds",
		good + "- {name: b, load: {curve: trace, trace: \"1,2\\n1,3\"}}":                       "later than the one before",
		good + "- {name: b, load: {cpu: 1, peaks: [\"25:00\"]}}":                               "must be a time of day",
		good + "- {name: b, load: {cpu: 1, steps: [{at: 1m}, {at: 1m}]}}":                      "later than that of the step before",
		good + "- {name: b, load: {cpu: 1, drift: 11%}}":                                       "must be at most 10% per day",
		good + "- {name: b, load: {cpu: 1}, service: {time: 1ms}}":                             "needs an slo",
		good + "- {name: b, load: {cpu: 1}, start: 2m, end: 1m}":                               "must be after the start",
		good + "- {name: b, load: {cpu: 1}, requests: {cpu: 2}, limits: {cpu: 1}}":             "is above the limit",
		good + "- {name: b, load: {cpu: 1}, cycles: [{at: 0s, load: 0%}]}":                     "must be over 0%",
		good + "- {name: b, load: {cpu: 1}, cycles: [{at: 1s, load: 1%}, {at: 1s, load: 2%}]}": "must be later than that of the step before",
		good + "- {name: b, count: 5000, load: {cpu: 1}}":                                      "must be 0 to 2000",
	} {
		_, err := Parse([]byte(text))
		var errs config.Errors
		if !errors.As(err, &errs) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n%v\nwant %q", text, err, want)
		}
	}
	if _, err := Parse([]byte(good)); err != nil {
		t.Error(err)
	}
}

func TestCurves(t *testing.T) {
	t.Parallel()
	tide := Load{Curve: Sine, CPU: 10, Low: 0.2, Peaks: []Hour{Hour(20 * time.Hour)}}
	twice := Load{Curve: Sine, CPU: 10, Peaks: []Hour{Hour(12 * time.Hour), Hour(19 * time.Hour)}, Width: 6 * time.Hour}
	steps := Load{Curve: Steps, CPU: 10, Steps: []Step{{0, 0.1}, {time.Minute, 1}}}
	work := Load{Curve: Sine, CPU: 10, Low: 0.2, Peaks: []Hour{Hour(12 * time.Hour)}, Weekend: 0.5}
	crowd := Load{Curve: Sine, CPU: 10, Peaks: []Hour{Hour(12 * time.Hour)}, Steps: []Step{{time.Minute, 3}, {time.Hour, 1}}}
	trace := Load{Curve: Trace, points: []point{{10 * time.Second, 1}, {20 * time.Second, 3}}}
	for _, test := range []struct {
		name         string
		load         Load
		since, clock time.Duration
		want         float64
	}{
		{"constant", Load{Curve: Constant, CPU: 2}, time.Hour, 0, 2},
		{"at the peak", tide, 0, 20 * time.Hour, 10},
		{"far from it", tide, 0, 8 * time.Hour, 2},
		{"over midnight", tide, 0, 26 * time.Hour, 6},
		{"the first of two", twice, 0, 12 * time.Hour, 10},
		{"between two", twice, 0, 15 * time.Hour, 0},
		{"the second of two", twice, 0, 19 * time.Hour, 10},
		{"before a step", steps, 59 * time.Second, 0, 1},
		{"after it", steps, time.Minute, 0, 10},
		{"on Friday", work, 0, 4*day + 12*time.Hour, 10},
		{"on Saturday", work, 0, 5*day + 12*time.Hour, 6},
		{"on the Sunday before", work, 0, -12 * time.Hour, 6},
		{"at night on Sunday", work, 0, 6 * day, 2},
		{"before a crowd", crowd, 0, 12 * time.Hour, 10},
		{"in it", crowd, 30 * time.Minute, 12 * time.Hour, 30},
		{"after it", crowd, 2 * time.Hour, 12 * time.Hour, 10},
		{"grown", Load{Curve: Constant, CPU: 10, Drift: 0.1}, 2 * day, 0, 12.1},
		{"before a trace", trace, 0, 0, 1},
		{"in it", trace, 15 * time.Second, 0, 2},
		{"after it", trace, time.Hour, 0, 3},
	} {
		got := newSource(test.load, 1, "a").at(test.since, test.clock, time.Second)
		if d := got - test.want; d > 1e-9 || d < -1e-9 {
			t.Errorf("%s: %g, want %g", test.name, got, test.want)
		}
	}
}

// Bursts take their share of time, and noise doesn't change the mean.
func TestRandomLoads(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]Load{
		"bursts": {Curve: Bursts, CPU: 10, Every: time.Minute, For: 6 * time.Second},
		"noise":  {Curve: Constant, CPU: 1, Noise: 0.2},
	} {
		s, sum := newSource(l, 1, "a"), 0.0
		const n = 200000
		for i := range n {
			at := time.Duration(i) * 100 * time.Millisecond
			sum += s.at(at, at, 100*time.Millisecond)
		}
		if mean := sum / n; mean < 0.9 || mean > 1.1 {
			t.Errorf("%s: the mean is %g, want 1", name, mean)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range Shipped() {
		text, err := Text(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(brief))
	f.Add([]byte("machine: 1 cores\nduration: 1s\n\"\": x\npods: [{name: a, load: {curve: trace, trace: \"s,c\\n1,2\"}}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if err != nil {
			var errs config.Errors
			if !errors.As(err, &errs) || slices.ContainsFunc(errs, func(e config.Error) bool { return e.Text == "" }) {
				t.Errorf("an error that says nothing: %v", err)
			}
			return
		}
		if s.Config == nil || s.Duration <= 0 || len(s.Pods) == 0 {
			t.Errorf("half a scenario: %+v", s)
		}
	})
}
