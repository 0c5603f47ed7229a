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

// cacheScene has a service that was alone for a minute, holding 20 MB of cache and moving 100 MB
// per CPU second, beside batch work that has just begun.
type cacheScene struct {
	*scene
	web, job *Container
}

func newCacheScene(a *Cache) *cacheScene {
	s := &cacheScene{scene: newScene(16)}
	s.run("web", workload.LS, 2000, 0)
	s.run("job", workload.BE, 0, 0)
	s.web, s.job = s.at("web"), s.at("job")
	s.serve(20e6, 0)
	for range 60 {
		a.Step(s.second())
	}
	s.job.CPU.Usage = 8000
	return s
}

// serve sets the cache that the service holds in MB, and how many percent more memory traffic it
// causes for its work.
func (s *cacheScene) serve(holds, more float64) {
	s.web.Cache.Occupancy = int64(holds)
	s.web.Cache.Bandwidth = 100e6 * float64(s.web.CPU.Usage) / 1000 * (1 + more/100)
}

func TestCache(t *testing.T) {
	t.Parallel()
	type step struct {
		seconds   int
		holds     float64 // the service's cache in MB
		more      float64 // the service's additional memory traffic in percent
		batch     float64 // batch work's cache in MB
		bandwidth float64 // batch work's bandwidth in MB/s
		want      CacheShare
	}
	for name, test := range map[string]struct {
		maxMBps int
		steps   []step
	}{
		"nothing is lost":                            {0, []step{{100, 20, 90, 30, 1000, CacheShare{100, 100}}}},
		"lost, but not missed":                       {0, []step{{100, 10, 5, 30, 1000, CacheShare{100, 100}}}},
		"lost to somebody else":                      {0, []step{{100, 10, 90, 5, 1000, CacheShare{100, 100}}}},
		"lost to batch work":                         {0, []step{{5, 10, 90, 30, 1000, CacheShare{90, 100}}}},
		"with pauses":                                {0, []step{{22, 10, 90, 30, 0, CacheShare{90, 100}}, {2, 10, 90, 30, 0, CacheShare{80, 100}}}},
		"down to the least":                          {0, []step{{1000, 1, 200, 30, 0, CacheShare{10, 100}}}},
		"calm widens step by step":                   {0, []step{{5, 10, 90, 30, 0, CacheShare{90, 100}}, {80, 20, 0, 30, 0, CacheShare{100, 100}}}},
		"bandwidth near the limit":                   {10000, []step{{1, 20, 0, 30, 9000, CacheShare{100, 90}}, {100, 20, 0, 30, 8500, CacheShare{100, 90}}, {30, 20, 0, 30, 7700, CacheShare{100, 100}}}},
		"bandwidth that services fill":               {300, []step{{100, 20, 50, 30, 10, CacheShare{100, 100}}}},
		"a bandwidth whose end is not known":         {0, []step{{100, 20, 0, 30, 90000, CacheShare{100, 100}}}},
		"a service that needs the more, and has all": {0, []step{{100, 25, 90, 30, 0, CacheShare{100, 100}}}},
	} {
		a := sliced(test.maxMBps)
		s := newCacheScene(a)
		for i, step := range test.steps {
			s.serve(step.holds*1e6, step.more)
			s.job.Cache.Occupancy, s.job.Cache.Bandwidth = int64(step.batch*1e6), step.bandwidth*1e6
			var got CacheShare
			for range step.seconds {
				got, _ = a.Step(s.second())
			}
			if got != step.want {
				t.Errorf("%s: after step %d %v, want %v", name, i, got, step.want)
			}
		}
	}
}

// TestCacheHeedsNoPressure checks that waits for a CPU or for memory do not count as contention
// for the cache.
func TestCacheHeedsNoPressure(t *testing.T) {
	t.Parallel()
	a := sliced(10000)
	s := newCacheScene(a)
	s.web.Pressure.CPU, s.web.Pressure.Memory, s.web.RunDelay.Waiting = 0.9, 0.9, 5
	for range 100 {
		if got, decisions := a.Step(s.second()); got != (CacheShare{100, 100}) || decisions != nil {
			t.Fatalf("%v, %+v", got, decisions)
		}
	}
}

func TestCacheTells(t *testing.T) {
	t.Parallel()
	a := sliced(10000)
	s := newCacheScene(a)
	s.serve(8e6, 200)
	s.job.Cache.Occupancy, s.job.Cache.Bandwidth = 40e6, 9500e6
	var all []Decision
	for range 5 {
		_, decisions := a.Step(s.second())
		all = append(all, decisions...)
	}
	if len(all) != 2 || all[0].Action != "narrow bandwidth" || all[0].Why != "containers use 10100 of the 10000 MB/s that the node's memory can do, BE 9500 of them" ||
		all[1].Action != "narrow cache" || all[1].To != "90 % of its share" ||
		all[1].Why != "ns/web holds less of the cache than when BE is away, BE holds what it lost, and it fetches 38 % more from memory for each second that it runs, over 20 %" {
		t.Errorf("decisions %+v", all)
	}
	cfg := DefaultConfig().Cache
	none := NewCache(cfg, time.Second)
	if got, decisions := none.Step(s.second()); got != (CacheShare{}) || decisions != nil || none.Blind() != "" {
		t.Errorf("without a class: %v, %v, %q", got, decisions, none.Blind())
	}
	if p := cfg.Check(); len(p) != 0 {
		t.Errorf("problems of the shipped config: %v", p)
	}
	if p := (&CacheConfig{MaxMBps: -1}).Check(); len(p) != 5 {
		t.Errorf("problems %v", p)
	}
}

// TestCacheCantTell checks that without counters, or before a service was measured alone, the
// share stays as it is and the controller says why.
func TestCacheCantTell(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		set   func(s *scene)
		blind string
	}{
		"nothing is counted": {func(s *scene) {
			for i := range s.Containers {
				s.Containers[i].Cache.At = time.Time{}
			}
		}, "can't tell contention: no container's cache and memory traffic are counted (rdt.monitor is off, or this machine doesn't count them)"},
		"batch work alone is counted": {func(s *scene) { s.at("web").Cache.At = time.Time{} }, "can't tell contention for the cache: no service runs whose cache is counted"},
		"never alone":                 {func(*scene) {}, "can't tell contention for the cache: no service was seen for 30s while BE was away"},
	} {
		s := newScene(16)
		web, job := s.run("web", workload.LS, 2000, 0), s.run("job", workload.BE, 0, 0)
		a := sliced(0)
		for i := range 100 {
			s.at("web").Cache.Bandwidth, s.at("web").Cache.Occupancy = float64(100e6+i*10e6), int64(20e6-i*1e5)
			s.at("job").CPU.Usage, s.at("job").Cache.Occupancy = 8000, 40e6
			s.second()
			test.set(s)
			if got, decisions := a.Step(&s.View); got != (CacheShare{100, 100}) || decisions != nil || a.Blind() != test.blind {
				t.Fatalf("%s: %v, %+v, %q", name, got, decisions, a.Blind())
			}
		}
		_, _ = web, job
	}
}

// TestCacheAfterAService checks that batch work gets its cache back once the service that lost some of it is idle,
// and that nothing changes while nobody counts the service's cache.
func TestCacheAfterAService(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		set  func(s *cacheScene)
		want int
	}{
		"it is idle":        {func(s *cacheScene) { s.web.CPU.Usage, s.web.Cache.Bandwidth = 0, 0 }, 100},
		"it is not counted": {func(s *cacheScene) { s.web.Cache.At = time.Time{} }, 80},
	} {
		a := sliced(0)
		s := newCacheScene(a)
		s.serve(8e6, 200)
		s.job.Cache.Occupancy = 40e6
		var got CacheShare
		for got.Cache != 80 {
			got, _ = a.Step(s.second())
		}
		for range 600 {
			s.second()
			test.set(s)
			got, _ = a.Step(&s.View)
		}
		if got.Cache != test.want {
			t.Errorf("%s: batch work has %d %% of its cache, want %d", name, got.Cache, test.want)
		}
	}
}

// TestCacheBesideAVirtualMachine checks that batch work whose usage can't be measured hides no contention.
func TestCacheBesideAVirtualMachine(t *testing.T) {
	t.Parallel()
	a := sliced(0)
	s := newCacheScene(a)
	s.run("vm", workload.BE, 0, 0).Unseen = true
	s.web, s.job = s.at("web"), s.at("job")
	s.serve(8e6, 200)
	s.job.Cache.Occupancy = 40e6
	var got CacheShare
	for range 60 {
		s.second()
		vm := s.at("vm")
		vm.CPU.At, vm.Cache.At = time.Time{}, time.Time{}
		got, _ = a.Step(&s.View)
	}
	if got.Cache > 80 {
		t.Errorf("batch work has %d %% of its cache", got.Cache)
	}
}

func TestCacheWidensNoBandwidthUnseen(t *testing.T) {
	t.Parallel()
	a := sliced(10000)
	s := newCacheScene(a)
	s.job.Cache.Bandwidth = 9500e6
	a.Step(s.second())
	for range 100 {
		if got, _ := a.Step(s.blind()); got.Cache != 100 || got.Bandwidth > 90 {
			t.Fatalf("unseen: %v", got)
		}
	}
}

func TestCacheProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := sliced(10000)
		s := newCacheScene(a)
		before, moves := CacheShare{100, 100}, 0
		steps := rapid.IntRange(1, 300).Draw(t, "steps")
		for range steps {
			s.job.Cache.Bandwidth = float64(rapid.IntRange(0, 12000).Draw(t, "MB/s")) * 1e6
			s.job.Cache.Occupancy = int64(rapid.IntRange(0, 40e6).Draw(t, "batch holds"))
			s.serve(float64(rapid.IntRange(0, 30e6).Draw(t, "holds")), float64(rapid.IntRange(0, 300).Draw(t, "more")))
			now, decisions := a.Step(s.second())
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
		// Cache and bandwidth each narrow at most once in 20 s, and widen no more often.
		if most := 4 * (steps/20 + 1); moves > most {
			t.Fatalf("%d moves in %d s, at most %d were expected", moves, steps, most)
		}
	})
}

// If contention returns at 80 %, the controller tries 80 % again at growing intervals.
func TestCacheSettles(t *testing.T) {
	t.Parallel()
	a := sliced(0)
	s := newCacheScene(a)
	s.job.Cache.Occupancy = 40e6
	decided, suffered := 0, 0
	for range 7200 {
		now, decisions := a.Step(s.second())
		decided += len(decisions)
		s.serve(20e6, 0)
		if now.Cache > 70 {
			s.serve(8e6, 200)
			suffered++
		}
	}
	t.Logf("%d decisions, contention in %d of 7200 s", decided, suffered)
	if decided > 100 || suffered > 400 {
		t.Errorf("%d decisions, contention in %d of 7200 s", decided, suffered)
	}
}

func TestCacheAllocs(t *testing.T) {
	a := sliced(10000)
	stepsWithout(t, fiveHundred(), func(v *View) { a.Step(v) })
}

func BenchmarkCache(b *testing.B) {
	a := sliced(10000)
	benchSteps(b, func(v *View) { a.Step(v) })
}

// TestNoCacheCounted checks that nothing is kept about services where resctrl counts no cache.
func TestNoCacheCounted(t *testing.T) {
	t.Parallel()
	s := fiveHundred()
	a := NewCache(DefaultConfig().Cache, time.Second)
	for range 3 {
		s.second()
		for i := range s.Containers {
			s.Containers[i].Cache.At = time.Time{}
		}
		a.Step(&s.View)
	}
	if n := len(a.llc.pods.of); n > 0 {
		t.Errorf("%d services are followed", n)
	}
	a.Step(s.second())
	if len(a.llc.pods.of) == 0 {
		t.Error("no service is followed although its cache is counted")
	}
}
