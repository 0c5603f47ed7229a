package sim

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/predict"
)

// The history of a service that has its load at nine each day is its load at nine each day.
func TestHistory(t *testing.T) {
	t.Parallel()
	text, err := Text("opening")
	if err != nil {
		t.Fatal(err)
	}
	s := parsed(t, string(text))
	m, _, err := s.read()
	if err != nil {
		t.Fatal(err)
	}
	all, err := instances(s, m, 1)
	if err != nil {
		t.Fatal(err)
	}
	set := history(s, m, []string{"critical", "online", "batch"}, all)
	start, key := time.Time(s.Start), predict.Key{Kind: predict.Pool, Name: "online", Resource: predict.CPU}
	for at, want := range map[time.Duration]float64{0: 0.88, 5 * time.Minute: 8} { // the rest of the time, 8 × 2.2 CPUs × 5 %
		now := start.Add(at)
		set.Add(now, key, 0.88)
		f := set.Forecast(now, key, 9*time.Minute)
		if !f.Trusted || f.Peak < want || f.Peak > 2*want {
			t.Errorf("at %s: %+v, want %g", now, f, want)
		}
	}
	if f := set.Forecast(start, predict.Key{Kind: predict.Pool, Name: "batch", Resource: predict.CPU}, time.Hour); f.Peak != 0 {
		t.Errorf("the batch pool: %+v", f)
	}
	for _, test := range []struct {
		name   string
		load   Load
		before time.Duration
		want   float64
	}{
		{"steps", Load{Curve: Steps, CPU: 10, Steps: []Step{{0, 0.1}, {time.Minute, 1}}}, time.Hour, 1},
		{"a holiday that nobody knew", Load{Curve: Constant, CPU: 10, Steps: []Step{{0, 0.3}}}, time.Hour, 10},
		{"less by the drift", Load{Curve: Constant, CPU: 10, Drift: 0.1}, day, 10 / 1.1},
	} {
		if got := meanLoad(newSource(test.load, 1, "a"), test.before, 0); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s: %g, want %g", test.name, got, test.want)
		}
	}
	if got := meanNoise(0.1); math.Abs(got-0.0408) > 0.001 {
		t.Errorf("a noise of 10 %% leaves %g", got)
	}
}
