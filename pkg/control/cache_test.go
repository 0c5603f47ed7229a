package control

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func sliced(maxMBps int) *Cache {
	cfg := DefaultConfig().Cache
	cfg.Class, cfg.MaxMBps = "be", maxMBps
	return NewCache(cfg, time.Second)
}

func TestCache(t *testing.T) {
	t.Parallel()
	type step struct {
		seconds   int
		excess    float64 // of run delay
		bandwidth float64 // MB/s
		want      Slice
	}
	for name, test := range map[string]struct {
		maxMBps int
		steps   []step
	}{
		"calm":                                 {10000, []step{{100, 0, 1000, Slice{100, 100}}}},
		"below the mark":                       {10000, []step{{100, 0.10, 1000, Slice{100, 100}}}},
		"contention narrows both, with pauses": {0, []step{{1, 0.11, 0, Slice{90, 90}}, {19, 0.11, 0, Slice{90, 90}}, {1, 0.11, 0, Slice{80, 80}}}},
		"down to the least":                    {0, []step{{1000, 0.5, 0, Slice{10, 10}}}},
		"between the marks it stays":           {0, []step{{1, 0.2, 0, Slice{90, 90}}, {1000, 0.06, 0, Slice{90, 90}}}},
		"calm widens step by step": {0, []step{
			{21, 0.2, 0, Slice{80, 80}}, {29, 0, 0, Slice{80, 80}}, {1, 0, 0, Slice{90, 90}}, {29, 0, 0, Slice{90, 90}}, {1, 0, 0, Slice{100, 100}}, {99, 0, 0, Slice{100, 100}},
		}},
		"contention begins the wait anew": {0, []step{{21, 0.2, 0, Slice{80, 80}}, {20, 0, 0, Slice{80, 80}}, {1, 0.2, 0, Slice{70, 70}}, {29, 0, 0, Slice{70, 70}}}},
		"bandwidth near the limit":        {10000, []step{{1, 0, 9000, Slice{100, 90}}, {100, 0, 8500, Slice{100, 90}}, {30, 0, 7900, Slice{100, 100}}}},
		"a limit that is not known":       {0, []step{{100, 0, 9000, Slice{100, 100}}}},
	} {
		s := newScene(16)
		c := s.run("batch", workload.BE, 0, 0)
		a := sliced(test.maxMBps)
		for i, step := range test.steps {
			c.Cache.Bandwidth = step.bandwidth * 1e6
			disturbed := []Disturbance{{Ref: "ns/calm"}, {Ref: "ns/web", Excess: Strain{RunDelay: step.excess}}}
			var got Slice
			for range step.seconds {
				got, _ = a.Step(s.second(), disturbed)
			}
			if got != step.want {
				t.Errorf("%s: after step %d %v, want %v", name, i, got, step.want)
			}
		}
	}
}

func TestCacheTells(t *testing.T) {
	t.Parallel()
	s := newScene(16)
	a := sliced(0)
	_, decisions := a.Step(s.second(), []Disturbance{{Ref: "ns/web", Excess: Strain{Memory: 0.25}}})
	if len(decisions) != 2 || decisions[0].Action != "narrow cache" || decisions[1].Action != "narrow bandwidth" || decisions[0].To != "90 % of its share" ||
		decisions[0].Why != "ns/web waits 25 % longer for memory or a CPU than when BE is away, over 10 %" {
		t.Errorf("decisions %+v", decisions)
	}
	cfg := DefaultConfig().Cache
	if got, decisions := NewCache(cfg, time.Second).Step(s.second(), []Disturbance{{Excess: Strain{Memory: 1}}}); got != (Slice{}) || decisions != nil {
		t.Errorf("without a class: %v, %v", got, decisions)
	}
	if p := cfg.Check(); len(p) != 0 {
		t.Errorf("problems of the shipped config: %v", p)
	}
	if p := (&CacheConfig{MaxMBps: -1}).Check(); len(p) != 5 {
		t.Errorf("problems %v", p)
	}
}

func TestCacheWidensNoBandwidthUnseen(t *testing.T) {
	t.Parallel()
	s := newScene(16)
	s.run("batch", workload.BE, 0, 0).Cache.Bandwidth = 9500e6
	a := sliced(10000)
	a.Step(s.second(), nil)
	for range 100 {
		if got, _ := a.Step(s.blind(), nil); got != (Slice{100, 90}) {
			t.Fatalf("unseen: %v", got)
		}
	}
}

func TestCacheProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newScene(16)
		c := s.run("batch", workload.BE, 0, 0)
		a := sliced(10000)
		before, moves := Slice{100, 100}, 0
		steps := rapid.IntRange(1, 300).Draw(t, "steps")
		for range steps {
			c.Cache.Bandwidth = float64(rapid.IntRange(0, 12000).Draw(t, "MB/s")) * 1e6
			now, decisions := a.Step(s.second(), []Disturbance{{Excess: Strain{Memory: float64(rapid.IntRange(0, 30).Draw(t, "excess")) / 100}}})
			for _, pair := range [][2]int{{before.Cache, now.Cache}, {before.Bandwidth, now.Bandwidth}} {
				if d := pair[1] - pair[0]; pair[1] < 10 || pair[1] > 100 || d > 10 || d < -10 {
					t.Fatalf("from %v to %v", before, now)
				}
			}
			if now != before {
				moves++
			}
			if (now != before) != (len(decisions) > 0) {
				t.Fatalf("from %v to %v with %d decisions", before, now, len(decisions))
			}
			before = now
		}
		// Each of the two narrows once in 20 s at most, and widens no more often.
		if most := 4 * (steps/20 + 1); moves > most {
			t.Fatalf("%d moves in %d s, at most %d were expected", moves, steps, most)
		}
	})
}

// Contention that comes back at 80 % is tried again more and more seldom.
func TestCacheSettles(t *testing.T) {
	t.Parallel()
	s := newScene(16)
	a := sliced(0)
	decided, suffered, excess := 0, 0, 0.0
	for range 7200 {
		now, decisions := a.Step(s.second(), []Disturbance{{Excess: Strain{Memory: excess}}})
		decided += len(decisions)
		excess = 0
		if now.Cache > 70 {
			excess = 0.5
			suffered++
		}
	}
	t.Logf("%d decisions, contention in %d of 7200 s", decided, suffered)
	if decided > 100 || suffered > 200 {
		t.Errorf("%d decisions, contention in %d of 7200 s", decided, suffered)
	}
}

func TestCacheAllocs(t *testing.T) {
	a := sliced(10000)
	stepsWithout(t, fiveHundred(), func(v *View) { a.Step(v, nil) })
}

func BenchmarkCache(b *testing.B) {
	a := sliced(10000)
	benchSteps(b, func(v *View) { a.Step(v, nil) })
}
