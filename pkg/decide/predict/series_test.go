package predict

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A percentile is at least what a sorted list gives, and at most a bucket above it.
func TestPercentilesAgreeWithASortedList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		scale := DefaultConfig().CPU.Scale
		values := rapid.SliceOfN(rapid.Float64Range(0, 900), 1, 50).Draw(t, "values")
		part := rapid.Float64Range(0.01, 0.99).Draw(t, "part")
		h := NewHistogram(&scale, time.Hour)
		for _, value := range values {
			h.Add(value, 1, begin)
		}
		slices.Sort(values)
		exact := values[int(math.Ceil(part*float64(len(values))-1e-9))-1]
		got := h.Percentile(part)
		if got < exact || got > exact*scale.Ratio+2*scale.First {
			t.Fatalf("percentile %g of %v is %g, not %g", part, values, got, exact)
		}
	})
}

// Every value lies in its bucket, also at the ends of the buckets.
func TestBucketsHoldTheirValues(t *testing.T) {
	t.Parallel()
	for _, scale := range []Scale{DefaultConfig().CPU.Scale, DefaultConfig().Memory.Scale, {First: 1, Ratio: 1, Most: 100}} {
		for bucket := range scale.bucket(scale.Most) {
			for _, value := range []float64{scale.start(bucket), (scale.start(bucket) + scale.start(bucket+1)) / 2} {
				if got := scale.bucket(value); got != bucket && scale.start(got) > value*(1+1e-12) || got < bucket-1 {
					t.Errorf("%+v: %g is in bucket %d, which begins at %g, and not in %d", scale, value, got, scale.start(got), bucket)
				}
			}
		}
		if got := scale.bucket(math.Inf(1)); got != scale.bucket(scale.Most) {
			t.Errorf("%+v: infinity is in bucket %d", scale, got)
		}
	}
}

// What was measured before a change of the half-life has the weight that it had, whether the state was saved meanwhile or not.
func TestHalfLifeChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after time.Duration
		hours         int // of measurements after the change
		want          float64
	}{
		"longer":  {12 * time.Hour, 24 * time.Hour, 72, 1},
		"shorter": {24 * time.Hour, 12 * time.Hour, 1, 4},
	} {
		for _, saved := range []bool{false, true} {
			key := Key{Node, "", CPU}
			cfg := DefaultConfig()
			cfg.CPU.HalfLife = c.before
			s := NewSet(cfg)
			now := begin
			measure := func(hours int, value float64) {
				for range 60 * hours {
					now = now.Add(time.Minute)
					s.Add(now, key, value)
				}
			}
			measure(20*24, 4)
			cfg.CPU.HalfLife = c.after
			if saved {
				var err error
				if s, err = Decode(cfg, s.Encode()); err != nil {
					t.Fatal(err)
				}
			} else {
				s.Configure(cfg)
			}
			measure(c.hours, 1)
			if got := s.series[key].histogram.Percentile(0.9); math.Abs(got/c.want-1) > 0.1 {
				t.Errorf("%s, saved %v: percentile 90 is %g, want %g", name, saved, got, c.want)
			}
		}
	}
}

// The weight of a sample halves in each half-life, over any time and any jumps of the clock.
func TestOldSamplesLoseTheirWeight(t *testing.T) {
	t.Parallel()
	scale := Scale{First: 1, Ratio: 1, Most: 100}
	for _, gone := range []time.Duration{20 * time.Hour, 200 * time.Hour, 100_000 * time.Hour, -200 * time.Hour} {
		h := NewHistogram(&scale, time.Hour)
		h.Add(50, 1000, begin)
		h.Add(1, 1, begin.Add(gone))
		if got := h.Percentile(0.99); got != 2 {
			t.Errorf("%v later, percentile 99 is %g", gone, got)
		}
	}
}

func TestPackedValues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.Float64Range(1e-6, 1e15).Draw(t, "value")
		if got := unpack(pack(value)); got < value*(1-1e-7) || got > value*1.004 {
			t.Fatalf("%g became %g", value, got)
		}
	})
	for _, value := range []float64{0, -1, math.Inf(1)} {
		if got := unpack(pack(value)); got < 0 || math.IsInf(got, 0) || math.IsNaN(got) || pack(value) == missing {
			t.Errorf("%g became %g", value, got)
		}
	}
}

// Whatever is measured, with gaps and jumps of the clock, a forecast is a finite number, and its
// confidence a part of 1.
func TestForecastsAreFinite(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := DefaultConfig()
		s, now := NewSeries(&cfg, CPU, rapid.SampledFrom([]time.Duration{fineStep, coarseStep}).Draw(t, "step")), begin
		for range rapid.IntRange(1, 30).Draw(t, "stretches") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 60, 3600, 86400, -60, -86400, 30 * 86400, -30 * 86400}).Draw(t, "jump")) * time.Second)
			level := rapid.SampledFrom([]float64{0, 1, 3.5, 1e6, math.NaN(), math.Inf(1), -1}).Draw(t, "level")
			for range rapid.IntRange(1, 400).Draw(t, "minutes") {
				s.Add(now, level)
				now = now.Add(time.Minute)
			}
			s.FindPeriod()
			for _, horizon := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour} {
				for _, f := range []Forecast{s.Forecast(now, horizon), s.By(ByHistogram, now, horizon), s.By(ByProfile, now, horizon), s.By(ByPeriod, now, horizon)} {
					if !(f.Peak >= 0) || math.IsInf(f.Peak, 0) || !(f.Confidence >= 0 && f.Confidence <= 1) {
						t.Fatalf("%+v", f)
					}
				}
			}
		}
	})
}

// A new series is not trusted before a day was compared, nor one whose peaks come as they like.
func TestTrust(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	rng := rand.New(rand.NewPCG(3, 3))
	s := NewSeries(&cfg, CPU, time.Minute)
	for i := range 10 * dayMinutes {
		now := begin.Add(time.Duration(i) * time.Minute)
		s.Add(now, 3+0.1*rng.Float64())
		if f := s.Forecast(now, time.Hour); f.Trusted != (i >= int(leastTime/time.Minute)+60) {
			t.Fatalf("after %d minutes: %+v", i, f)
		}
	}
	wild := NewSeries(&cfg, CPU, time.Minute)
	for i := range 10 * dayMinutes {
		now := begin.Add(time.Duration(i) * time.Minute)
		wild.Add(now, math.Exp(2*rng.NormFloat64()))
		if f := wild.Forecast(now, time.Hour); f.Trusted {
			t.Fatalf("peaks without a pattern, after %d minutes: %+v", i, f)
		}
	}
}

// A daily rise is forecast before it comes, which neither the histogram nor the last hour can.
func TestRiseIsForecast(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	s, key := NewSet(cfg), Key{Workload, "shop/web", CPU}
	usage := func(minute int) float64 {
		if at := minute % dayMinutes; at >= 9*60 && at < 11*60 {
			return 6
		}
		return 1
	}
	now := begin
	for i := range 4*dayMinutes + 9*60 - 5 { // until 8:55
		now = begin.Add(time.Duration(i) * time.Minute)
		s.Add(now, key, usage(i))
		s.Search(now)
	}
	if f := s.Forecast(now, key, 10*time.Minute); !f.Trusted || f.Peak < 6 || f.Peak > 7 {
		t.Errorf("five minutes before the rise: %+v", f)
	}
	if f := s.Forecast(now.Add(-3*time.Hour), key, 10*time.Minute); f.Peak > 2 {
		t.Errorf("three hours before the rise: %+v", f)
	}
	if f := s.Forecast(now.Add(time.Hour), key, 10*time.Minute); f.Trusted {
		t.Errorf("an hour without measurements: %+v", f)
	}
}

// A full set keeps what is measured, and replaces what is no longer.
func TestSetIsBounded(t *testing.T) {
	t.Parallel()
	s := NewSet(DefaultConfig())
	name := func(i int) Key { return Key{Workload, string(rune('a'+i%26)) + string(rune(0x100+i)), CPU} }
	for i := range MaxSeries + 50 {
		s.Add(begin, name(i), 1)
	}
	if s.Len() != MaxSeries {
		t.Fatalf("%d series", s.Len())
	}
	later := begin.Add(2 * time.Hour)
	for i := range MaxSeries - 10 {
		s.Add(later, name(i), 1)
	}
	for i := MaxSeries; i < MaxSeries+50; i++ {
		s.Add(later, name(i), 1)
	}
	if s.Len() != MaxSeries {
		t.Errorf("%d series", s.Len())
	}
	for i := range MaxSeries - 10 {
		if s.series[name(i)] == nil {
			t.Fatalf("series %d is measured, and was replaced", i)
		}
	}
	if s.series[name(MaxSeries+9)] == nil || s.series[name(MaxSeries+10)] != nil {
		t.Error("not those that were measured no longer were replaced")
	}
}

// A second of 500 containers: CPU and memory of each, and the search for one period.
func BenchmarkAdd(b *testing.B) {
	s, now := fullSet(1)
	keys := fullKeys()
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Second)
		for _, key := range keys {
			s.Add(now, key, 2)
		}
		s.Search(now)
	}
}

func BenchmarkForecast(b *testing.B) {
	s, now := fullSet(2)
	keys := fullKeys()
	for b.Loop() {
		for _, key := range keys {
			s.Forecast(now, key, time.Hour)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)), "ns/forecast")
}

func BenchmarkFindPeriod(b *testing.B) {
	for name, step := range map[string]time.Duration{"minutes": fineStep, "quarters": coarseStep} {
		b.Run(name, func(b *testing.B) {
			h := newHistory(step)
			for i := range int64(len(h.values)) {
				h.enter(i, curve(int(i)*int(step/time.Minute)))
			}
			for b.Loop() {
				findPeriod(&h)
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	s, _ := fullSet(1)
	for b.Loop() {
		s.Encode()
	}
}
