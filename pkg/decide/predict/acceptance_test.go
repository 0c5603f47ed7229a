package predict

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var begin = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC) // a Monday

// The values and weights 1 to 4, each a half-life after the one before, are those of the test of
// the Vertical Pod Autoscaler: of 6.125 in all, 1/8 is at most 2, 5/8 at most 3, and 17/8 at most
// 4, which is 34.7 %.
func TestPercentilesOfDecayingValues(t *testing.T) {
	t.Parallel()
	h := NewHistogram(&Scale{First: 1, Ratio: 1, Most: 100}, time.Hour)
	for i := range 4 {
		h.Add(float64(i+1), float64(i+1), begin.Add(time.Duration(i)*time.Hour))
	}
	for part, want := range map[float64]float64{0: 2, 0.02: 2, 0.03: 3, 0.10: 3, 0.11: 4, 0.34: 4, 0.35: 5, 1: 5} {
		if got := h.Percentile(part); got != want {
			t.Errorf("percentile %g is %g, want %g", 100*part, got, want)
		}
	}
}

func TestReclaimable(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.CPU.Scale = Scale{First: 0.1, Ratio: 1, Most: 100}
	s := NewSeries(&cfg, CPU, time.Minute)
	for i := range 100 {
		usage := 0.45 // in the bucket that ends at 0.5
		if i >= 97 {
			usage = 1.9
		}
		s.Add(begin.Add(time.Duration(i)*time.Minute), usage)
	}
	s.Add(begin.Add(100*time.Minute), 0)
	peak := s.By(ByHistogram, begin.Add(100*time.Minute), time.Hour).Peak
	if got := Reclaimable(2, peak); math.Abs(got-1.45) > 1e-3 {
		t.Errorf("2 CPUs with a 95th percentile of 0.5 leave %g, want 1.45", got)
	}
	if got := Reclaimable(0.5, peak); got != 0 {
		t.Errorf("a request below the peak leaves %g", got)
	}
}

// filled returns a history of so many minutes.
func filled(minutes int, usage func(minute int) float64) *history {
	h := newHistory(time.Minute)
	for i := range minutes {
		h.enter(h.stepOf(begin)+int64(i), max(0, usage(i)))
	}
	return &h
}

func sine(period float64) func(int) float64 {
	return func(minute int) float64 { return 2 + math.Sin(2*math.Pi*float64(minute)/period) }
}

// noisy adds normal noise, in parts of the amplitude 1.
func noisy(usage func(int) float64, noise float64, seed uint64) func(int) float64 {
	rng := rand.New(rand.NewPCG(seed, 0))
	return func(minute int) float64 { return usage(minute) + noise*rng.NormFloat64() }
}

func TestPeriodIsFound(t *testing.T) {
	t.Parallel()
	const days, day = 3, 24 * 60
	spikes := func(minute int) float64 { // two narrow peaks a day
		if at := minute % day; at >= 540 && at < 600 || at >= 1200 && at < 1320 {
			return 4
		}
		return 0.5
	}
	week := func(minute int) float64 {
		if minute/day%7 >= 5 {
			return 0.5
		}
		return sine(day)(minute)
	}
	for name, c := range map[string]struct {
		usage func(int) float64
		days  int
		want  time.Duration
	}{
		"24 hours":                       {sine(day), days, 24 * time.Hour},
		"24 hours, two peaks":            {spikes, days, 24 * time.Hour},
		"24 hours, above a trend":        {func(m int) float64 { return sine(day)(m) + float64(m)/2000 }, days, 24 * time.Hour},
		"a week":                         {week, 14, 7 * 24 * time.Hour},
		"100 minutes, which is no usual": {sine(100), days, 100 * time.Minute},
		"5 hours, which is no usual":     {sine(300), days, 5 * time.Hour},
	} {
		for seed := range uint64(20) {
			noise := 0.2
			if seed == 0 {
				noise = 0
			}
			got := findPeriod(filled(c.days*day, noisy(c.usage, noise, seed)))
			if (got - c.want).Abs() > time.Minute {
				t.Errorf("%s, with noise of %g, seed %d: found %v", name, noise, seed, got)
			}
		}
	}
}

func TestNoPeriodInNoise(t *testing.T) {
	t.Parallel()
	const minutes = 3 * 24 * 60
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fading := func(minutes, size float64) func(int) float64 {
			slow := 0.0
			return func(int) float64 { slow = slow*math.Exp(-1/minutes) + size*rng.NormFloat64(); return 10 + slow }
		}
		for _, c := range []struct {
			name  string
			usage func(int) float64
		}{
			{"white noise", func(int) float64 { return 4 + rng.NormFloat64() }},
			{"noise that fades in 5 minutes", fading(5, 1)},
			{"noise that fades in an hour", fading(60, 0.3)},
			{"bursts at random", func(int) float64 {
				if rng.IntN(200) == 0 {
					return 8
				}
				return 1
			}},
			{"a constant", func(int) float64 { return 3 }},
			{"a ramp", func(m int) float64 { return float64(m) / 100 }},
		} {
			if got := findPeriod(filled(minutes, c.usage)); got != 0 {
				t.Errorf("%s, seed %d: a period of %v", c.name, seed, got)
			}
		}
	}
}
