package control

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// drawBench draws a random node with random pools.
func drawBench(t *rapid.T) *bench {
	bands := [][2]int{{30, 50}, {45, 60}, {50, 80}, {10, 90}, {40, 45}}
	n := rapid.IntRange(2, 5).Draw(t, "pools")
	var pools []PoolConfig
	var sizes, requests []int
	core := rapid.IntRange(1, 2).Draw(t, "threads")
	for i := range n {
		band := rapid.SampledFrom(bands).Draw(t, "band")
		c := PoolConfig{Name: fmt.Sprint(i), Low: band[0], High: band[1], Min: rapid.IntRange(0, 4).Draw(t, "min")}
		c.RCFMin, c.RCFMax = rapid.IntRange(0, 50).Draw(t, "rcf min"), rapid.SampledFrom([]int{0, 80, 100}).Draw(t, "rcf max")
		pools = append(pools, c)
		sizes = append(sizes, core*rapid.IntRange(1, 20).Draw(t, "size"))
		requests = append(requests, rapid.IntRange(0, 40).Draw(t, "request"))
	}
	b := newBench(pools, sizes, requests)
	b.view.ThreadsPerCore = core
	for i := range pools {
		b.view.Pools[i].Quota = workload.MilliCPU(rapid.IntRange(0, 12000).Draw(t, "quota"))
	}
	return b
}

// TestLaw checks the rules of the pools' sizes under random changes of load, requests, CPUs and
// measurements over time.
func TestLaw(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBench(t)
		twin := NewPools(b.pools.cfg, b.pools.pools, time.Second)
		last := len(b.load) - 1
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				b.view.Shared = workload.MilliCPU(rapid.IntRange(1, 80).Draw(t, "CPUs")) * 1000
			case 1:
				b.view.Pools[rapid.IntRange(0, last).Draw(t, "pool")].Request = workload.MilliCPU(rapid.IntRange(0, 40000).Draw(t, "request"))
			case 2:
				b.view.Forecasts.Pools = cpuLoads(rapid.SliceOfN(rapid.Float64Range(0, 100), 0, last+1).Draw(t, "forecasts")...)
			default:
				b.load[rapid.IntRange(0, last).Draw(t, "pool")] = workload.MilliCPU(rapid.IntRange(0, 40000).Draw(t, "load"))
			}
			gone := rapid.SampledFrom([]time.Duration{tick, tick, time.Second, 5 * time.Second, -time.Second}).Draw(t, "time")
			for range rapid.SampledFrom([]int{1, 2, 3, 10, 70}).Draw(t, "times") {
				before, total := slices.Clone(b.view.Pools), b.pools.total
				var sizes []int
				if rapid.IntRange(0, 30).Draw(t, "blind") == 0 {
					sizes = b.blind(gone)
				} else {
					sizes = b.step(gone)
				}
				checkLaw(t, b, before, sizes, total)
				view := b.view
				view.Now = view.Now.Add(-gone)
				view.Pools = slices.Clone(b.view.Pools)
				for i := range view.Pools {
					view.Pools[i].Size = before[i].Size
				}
				if again, _ := twin.Step(&view); !slices.Equal(again.CPUs, sizes) {
					t.Fatalf("the same inputs gave %v and %v", sizes, again.CPUs)
				}
			}
		}
	})
}

func checkLaw(t *rapid.T, b *bench, before []Pool, sizes []int, total int) {
	p, n, sum := b.pools, int(b.view.Shared/1000), 0
	last := len(p.state) - 1
	if len(sizes) == 0 {
		if n >= p.core*len(p.state) {
			t.Fatalf("%d CPUs are not divided", n)
		}
		return
	}
	higherGrew := false
	for i, size := range sizes {
		s := &p.state[i]
		sum += size
		if size < p.core || i < last && size%p.core != 0 && before[i].Size%p.core == 0 {
			t.Fatalf("pool %d has %d CPUs, cores have %d", i, size, p.core)
		}
		if i == last {
			if s.minimum = min(s.minimum, n); size < s.minimum {
				t.Fatalf("the last pool has %d of %d", size, s.minimum)
			}
			break
		}
		checkCap(t, b, i, size)
		taker := &p.state[s.taker]
		promised := s.cause == causeTaken && taker.guessed > 0 && taker.size <= taker.owed && size >= s.owed
		if total == n && size < before[i].Size && !higherGrew && !promised && s.cause != causeCalm && s.cause != causeSeen && s.cause != causeCap {
			t.Fatalf("pool %d lost CPUs, %d to %d, to none above it", i, before[i].Size, size)
		}
		if s.cause == causeTaken && p.overloaded(i) && !taker.forces && !promised {
			t.Fatalf("an ordinary taking left pool %d with %d CPUs for a load of %s", i, size, s.fast)
		}
		higherGrew = higherGrew || size > before[i].Size
		if p.overloaded(i) && total == n {
			checkRelief(t, b, i, before[i].Size)
		}
		if !s.known && size < before[i].Size && total == n && !higherGrew {
			t.Fatalf("pool %d shrank from %d to %d without a measurement", i, before[i].Size, size)
		}
	}
	if sum != n {
		t.Fatalf("sizes %v of %d CPUs", sizes, n)
	}
}

// checkCap checks that no pool exceeds its maximum once its usage has been measured, and that the
// maximum is that of rule 4.
func checkCap(t *rapid.T, b *bench, i, size int) {
	s, cfg := &b.pools.state[i], &b.pools.pools[i]
	watched := !s.adopted.IsZero() && b.pools.last.Sub(s.adopted) > b.pools.cfg.SlowWindow
	if cfg.RCFMax == 0 || !s.known || !watched {
		return
	}
	requested := math.Ceil(float64(s.request.max()) * float64(cfg.RCFMax) / 1e5)
	observed := math.Ceil(float64(s.peak) / float64(cfg.High) / 10)
	due := int(max(requested, observed, float64(s.minimum))) + b.pools.core - 1
	if size > due {
		t.Fatalf("pool %d has %d CPUs; requests of %s, use of %s", i, size, s.request.max(), s.peak)
	}
}

// checkRelief checks that a pool that is still over its band has all that it may have, or all that
// lower pools can give in this step.
func checkRelief(t *rapid.T, b *bench, i, before int) {
	p := b.pools
	s := &p.state[i]
	for j := range i { // it grows from what the pools above leave it
		before -= max(p.state[j].size-p.state[j].before, 0)
	}
	step := max(p.cfg.GrowCPUs, (before*p.cfg.GrowPercent+99)/100)
	if bounded := !p.urgent(i) && s.size >= before+max(step/p.core*p.core, p.core); bounded || s.size >= s.cap || s.cause == causeTaken {
		return
	}
	last := len(p.state) - 1
	for j := last; j > i; j-- {
		keep := p.keeps(j)
		if j == last && s.presses || s.forces && (j == last || p.state[j].known) {
			keep = p.least(j)
		}
		if p.state[j].guessed == 0 && p.state[j].size-keep >= p.core {
			t.Fatalf("pool %d has %d CPUs for a load of %s, pool %d keeps %d of %d", i, s.size, s.fast, j, p.state[j].size, keep)
		}
	}
	if s.over >= forcedAfter && p.sizes.Short[i] <= 0 {
		t.Fatalf("pool %d doesn't tell that it is short", i)
	}
}

// TestBandMovesNothing varies loads within their bands.
func TestBandMovesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := newBench(shipped(), []int{rapid.IntRange(4, 20).Draw(t, "a"), rapid.IntRange(4, 20).Draw(t, "b"), 30}, []int{99, 99, 0})
		for range 300 {
			for i := range 2 {
				p := b.pools.pools[i]
				b.load[i] = workload.MilliCPU(b.view.Pools[i].Size * 10 * rapid.IntRange(p.Low, p.High).Draw(t, "load"))
			}
			b.load[2] = workload.MilliCPU(rapid.IntRange(0, 99000).Draw(t, "batch"))
			if b.step(time.Second); len(b.told) > 0 {
				t.Fatalf("told %s: %s", b.actions(), b.told[0].Why)
			}
		}
	})
}

// TestFewMoves counts changes of sizes over hours of varying load.
func TestFewMoves(t *testing.T) {
	t.Parallel()
	wave := func(period time.Duration, low, high float64) func(time.Duration, *rand.Rand) float64 {
		return func(at time.Duration, _ *rand.Rand) float64 {
			if at%period < period/2 {
				return low
			}
			return high
		}
	}
	noise := func(level, spread float64) func(time.Duration, *rand.Rand) float64 {
		return func(_ time.Duration, r *rand.Rand) float64 { return level * (1 + spread*(2*r.Float64()-1)) }
	}
	for name, c := range map[string]struct {
		load func(time.Duration, *rand.Rand) float64
		most int // maximum number of moves of both pools per hour, after the first hour
	}{
		"noise of a tenth":         {noise(10, .1), 0},
		"noise of a half":          {noise(10, .5), 6},
		"normal noise":             {func(_ time.Duration, r *rand.Rand) float64 { return max(0, 10+3*r.NormFloat64()) }, 40},
		"spikes":                   {func(_ time.Duration, r *rand.Rand) float64 { return 5 + 15*math.Floor(r.Float64()+.002) }, 80},
		"a wave of a second":       {wave(time.Second, 5, 20), 0},
		"a wave of half a minute":  {wave(30*time.Second, 5, 20), 0},
		"a wave of two minutes":    {wave(2*time.Minute, 5, 20), 60},
		"a wave of four minutes":   {wave(4*time.Minute, 5, 20), 300},
		"at the edge of the band":  {noise(10.5, .02), 0},
		"a wave of half a percent": {wave(10*time.Second, 9.95, 10.05), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const hours = 2
			b := newBench(shipped(), []int{20, 20, 60}, []int{90, 90, 0})
			r := rand.New(rand.NewPCG(1, 2))
			b.load[2] = 99000
			for at := time.Duration(0); at < (hours+1)*time.Hour; at += tick {
				if at == time.Hour {
					b.moves = 0
				}
				b.load[0], b.load[1] = workload.MilliCPU(1000*c.load(at, r)), workload.MilliCPU(700*c.load(at, r))
				b.step(tick)
			}
			if b.moves > hours*c.most {
				t.Errorf("%d moves in %d hours", b.moves, hours)
			}
			t.Logf("%d moves in %d hours", b.moves, hours)
		})
	}
}

// TestShort overloads a pool until it can take no more CPUs, and then removes the load.
func TestShort(t *testing.T) {
	t.Parallel()
	b := newBench(shipped(), []int{15, 20, 29}, []int{24, 64, 0})
	b.load = cpuLoads(6, 40, 99)
	b.run(2*time.Second, tick)
	if got := fmt.Sprint(b.pools.sizes.CPUs, b.pools.sizes.Short); got != "[15 47 2] [0 30 0]" {
		t.Errorf("sizes and what is missing: %s", got)
	}
	b.load[0] = 20000
	b.run(2*time.Second, tick)
	if got := fmt.Sprint(b.pools.sizes.CPUs); got != "[40 22 2]" {
		t.Errorf("a higher pool takes from a short one: %s", got)
	}
	b.load = cpuLoads(6, 5, 99)
	b.run(time.Minute, tick)
	if got := b.actions(); fmt.Sprint(b.pools.sizes.Short) != "[0 0 0]" || got[len(got)-len("online enough"):] != "online enough" {
		t.Errorf("%v, told %s", b.pools.sizes.Short, got)
	}
}

// TestSmall has a load that is within the band for no whole number of CPUs.
func TestSmall(t *testing.T) {
	t.Parallel()
	b := newBench(shipped(), []int{4, 4, 8}, []int{8, 8, 0})
	b.load = cpuLoads(.7, 1.9, 9)
	if b.run(2*time.Minute, tick); fmt.Sprint(b.pools.sizes.Small) != "[true false false]" {
		t.Errorf("small: %v", b.pools.sizes.Small)
	}
	for range 40 {
		b.blind(tick)
	}
	if b.pools.sizes.Small[0] || !strings.Contains(b.actions(), "critical large") {
		t.Errorf("small: %v, told %s", b.pools.sizes.Small, b.actions())
	}
	b.load[0] = 2000
	if b.run(time.Second, tick); fmt.Sprint(b.pools.sizes.Small) != "[false false false]" {
		t.Errorf("small: %v", b.pools.sizes.Small)
	}
}

func BenchmarkPools(b *testing.B) {
	pools := append([]PoolConfig{{Name: "first", Low: 30, High: 50, RCFMax: 100}}, shipped()...)
	n := newBench(pools, []int{15, 15, 20, 50}, []int{24, 24, 32, 0})
	n.load = cpuLoads(6, 6, 10, 99)
	for i := range 500 {
		n.view.Containers = append(n.view.Containers, Container{Pool: i % 4, Request: 100, Since: start.Add(-time.Hour)})
	}
	n.step(tick)
	n.told = nil
	b.ReportAllocs()
	for b.Loop() {
		n.step(tick)
	}
	if len(n.told) > 0 {
		b.Fatal(n.actions())
	}
}
