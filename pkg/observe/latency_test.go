package observe

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestHistogramCheck(t *testing.T) {
	t.Parallel()
	inf := math.Inf(1)
	for name, c := range map[string]struct {
		h    Histogram
		good bool
	}{
		"good":            {Histogram{[]float64{0.01, 0.05, inf}, []float64{1, 1, 2}}, true},
		"one bucket":      {Histogram{[]float64{inf}, []float64{1}}, false},
		"empty":           {Histogram{}, false},
		"no +Inf":         {Histogram{[]float64{0.01, 0.02}, []float64{1, 1}}, false},
		"falling counts":  {Histogram{[]float64{0.01, 0.02, inf}, []float64{2, 1, 2}}, false},
		"NaN":             {Histogram{[]float64{0.01, 0.02, inf}, []float64{1, math.NaN(), 2}}, false},
		"NaN bucket":      {Histogram{[]float64{math.NaN(), 0.02, inf}, []float64{1, 1, 2}}, false},
		"infinite count":  {Histogram{[]float64{0.01, 0.02, inf}, []float64{1, 1, inf}}, false},
		"negative":        {Histogram{[]float64{0.01, 0.02, inf}, []float64{-1, 1, 2}}, false},
		"-Inf bucket":     {Histogram{[]float64{-inf, 0.02, inf}, []float64{1, 1, 2}}, false},
		"before 0":        {Histogram{[]float64{-1e308, 0.05, inf}, []float64{1, 1, 2}}, false},
		"endless bucket":  {Histogram{[]float64{0.01, 1e308, inf}, []float64{1, 1, 2}}, false},
		"endless counts":  {Histogram{[]float64{0.01, 0.05, inf}, []float64{1, 1, math.MaxInt64}}, false},
		"twice":           {Histogram{[]float64{0.02, 0.02, inf}, []float64{1, 1, 2}}, false},
		"below the bound": {Histogram{[]float64{0.01, 0.015, inf}, []float64{1, 1, 2}}, false},
		"at the bound":    {Histogram{[]float64{0.01, 0.02, inf}, []float64{1, 1, 2}}, false},
	} {
		if err := c.h.Check(0.02); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever passes Check gives finite figures, since JSON has no others.
func TestLatencyIsFinite(t *testing.T) {
	t.Parallel()
	ends := []float64{math.Inf(-1), -1.7e308, -1, 0, 5e-324, 0.01, 0.03, 1, 1e6, 1.7e308, math.Inf(1)}
	rapid.Check(t, func(t *rapid.T) {
		h := Histogram{UpTo: slices.Compact(slices.Sorted(slices.Values(rapid.SliceOfN(rapid.SampledFrom(ends), 2, 8).Draw(t, "ends"))))}
		for range h.UpTo {
			h.Counts = append(h.Counts, rapid.SampledFrom([]float64{0, 1, 1000, 1 << 53, math.MaxInt64}).Draw(t, "count"))
		}
		slices.Sort(h.Counts)
		if h.Check(0.02) != nil {
			return
		}
		var m LatencyMeter
		m.Add(time.Unix(1, 0), Histogram{h.UpTo, make([]float64, len(h.UpTo))})
		m.Add(time.Unix(6, 0), h)
		l := m.Latency(0.99, 0.02)
		for _, figure := range []float64{l.Seconds, l.Slow, l.Requests} {
			if !(figure >= 0 && figure <= 1e16) {
				t.Fatalf("%+v of %+v", l, h)
			}
		}
	})
}

// The quantiles are those of Prometheus' histogram_quantile.
func TestQuantile(t *testing.T) {
	t.Parallel()
	h := Histogram{[]float64{0.01, 0.02, 0.05, math.Inf(1)}, []float64{50, 90, 98, 100}}
	for share, want := range map[float64]float64{0.25: 0.005, 0.5: 0.01, 0.7: 0.015, 0.94: 0.035, 0.99: 0.05, 0.9999: 0.05} {
		if got := h.quantile(share); math.Abs(got-want) > 1e-12 {
			t.Errorf("%v: %v, want %v", share, got, want)
		}
	}
	for than, want := range map[float64]float64{0.01: 50, 0.015: 30, 0.02: 10, 0.05: 2, 0.035: 6, 1: 2} {
		if got := h.slower(than); math.Abs(got-want) > 1e-9 {
			t.Errorf("slower than %v: %v, want %v", than, got, want)
		}
	}
	none := Histogram{h.UpTo, make([]float64, 4)}
	if got := none.quantile(0.99); got != 0 {
		t.Errorf("without requests: %v", got)
	}
}

// A quantile is above the bound exactly if more requests than the rest are.
func TestQuantileAgreesWithSlow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := randomHistogram(t)
		if h.requests() == 0 {
			return
		}
		share, bound := rapid.Float64Range(0.5, 0.9999).Draw(t, "share"), rapid.Float64Range(0.001, h.UpTo[len(h.UpTo)-2]).Draw(t, "bound")
		if got, rest := h.quantile(share), (1-share)*h.requests(); got > bound*(1+1e-9) && h.slower(bound) < rest*(1-1e-9) || got < bound*(1-1e-9) && h.slower(bound) > rest*(1+1e-9)+1e-9 {
			t.Fatalf("%+v: quantile %v of %v, %v of %v requests are slower than %v", h, share, got, h.slower(bound), h.requests(), bound)
		}
	})
}

// Whatever passes Check can show that its bound is broken by all requests.
func TestBoundCanBeBroken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h, bound := randomHistogram(t), rapid.SampledFrom([]float64{0.0005, 0.001, 0.002, 0.004, 0.009, 0.016}).Draw(t, "bound")
		if h.Check(bound) != nil {
			return
		}
		clear(h.Counts)
		h.Counts[len(h.Counts)-1] = 1000
		if got := h.quantile(0.99); got <= bound {
			t.Fatalf("all requests took longer than %+v, and the quantile is %v, within %v", h.UpTo, got, bound)
		}
	})
}

func randomHistogram(t *rapid.T) Histogram {
	n := rapid.IntRange(1, 8).Draw(t, "buckets")
	h := Histogram{Counts: make([]float64, n+1)}
	for i := range n {
		h.UpTo = append(h.UpTo, 0.001*float64((i+1)*(i+1)))
	}
	h.UpTo = append(h.UpTo, math.Inf(1))
	count := 0.0
	for i := range h.Counts {
		count += float64(rapid.IntRange(0, 50).Draw(t, "count"))
		h.Counts[i] = count
	}
	if err := h.Check(0.0005); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestLatencyMeter(t *testing.T) {
	t.Parallel()
	start := time.Unix(1e9, 0)
	var m LatencyMeter
	fast, slow := 0.0, 0.0
	add := func(second int, moreFast, moreSlow float64) Latency {
		fast, slow = fast+moreFast, slow+moreSlow
		m.Add(start.Add(time.Duration(second)*time.Second), Histogram{[]float64{0.01, 0.1, math.Inf(1)}, []float64{fast, fast + slow, fast + slow}})
		return m.Latency(0.99, 0.01)
	}
	if l := add(0, 1e6, 1e6); !l.At.IsZero() {
		t.Errorf("after one histogram: %+v", l)
	}
	if l := add(5, 5000, 0); l.Requests != 5000 || l.Slow != 0 || l.Seconds > 0.01 || l.At.Sub(l.From) != 5*time.Second {
		t.Errorf("5000 fast ones: %+v", l)
	}
	if l := add(10, 1000, 1000); l.Requests != 2000 || l.Slow != 1000 || l.Seconds < 0.09 {
		t.Errorf("half is slow: %+v", l)
	}
	if l := add(15, 100, 0); l.Requests != 2100 || l.At.Sub(l.From) != 10*time.Second {
		t.Errorf("too few for one window: %+v", l)
	}
	for second := 20; second <= 200; second += 5 {
		l := add(second, 1, 0)
		if second >= 100 && (l.Requests > 13 || l.At.Sub(l.From) > 65*time.Second || l.At.Sub(l.From) < time.Minute) {
			t.Fatalf("at %d s: %+v", second, l)
		}
	}
	for second := 205; second <= 300; second += 5 {
		if l := add(second, 0, 0); second >= 270 && (l.Requests != 0 || l.At.Sub(l.From) != 5*time.Second) {
			t.Fatalf("idle, at %d s: %+v", second, l)
		}
	}
	if len(m.pages) > 14 {
		t.Errorf("%d pages are kept", len(m.pages))
	}
	fast, slow = 0, 0
	if l := add(305, 3, 0); !l.At.IsZero() {
		t.Errorf("after a restart: %+v", l)
	}
	if l := add(310, 3, 0); l.Requests != 3 {
		t.Errorf("after a restart: %+v", l)
	}
	if l := add(371, 3, 0); !l.At.IsZero() {
		t.Errorf("after a gap: %+v", l)
	}
	if l := add(376, 3, 0); l.Requests != 3 || l.At.Sub(l.From) != 5*time.Second {
		t.Errorf("after a gap: %+v", l)
	}
	if l := add(309, 3, 0); !l.At.IsZero() {
		t.Errorf("the clock was set back: %+v", l)
	}
}
