package control

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const tick = 100 * time.Millisecond

func shipped() []PoolConfig {
	return []PoolConfig{
		{Name: "critical", Low: 30, High: 50, RCFMax: 100},
		{Name: "online", Low: 45, High: 60, RCFMax: 100},
		{Name: "batch", Low: 50, High: 80, Min: 2},
	}
}

// bench is a node of pools with their demand and their sizes.
type bench struct {
	pools *Pools
	view  View
	load  []workload.MilliCPU // demand of each pool
	told  []Decision
	moves int // changes of sizes of pools above the last
}

func newBench(pools []PoolConfig, sizes []int, requests []int) *bench {
	b := &bench{pools: NewPools(DefaultConfig().Pools, pools, time.Second), load: make([]workload.MilliCPU, len(pools))}
	b.view = View{Now: start, ThreadsPerCore: 1}
	for i, p := range pools {
		b.view.Pools = append(b.view.Pools, Pool{Name: p.Name, Size: sizes[i], Request: workload.MilliCPU(requests[i]) * 1000})
		b.view.Shared += workload.MilliCPU(sizes[i]) * 1000
	}
	return b
}

// step measures, decides, and then lets the given time pass.
func (b *bench) step(gone time.Duration) []int {
	for i := range b.load {
		p := &b.view.Pools[i]
		capacity := workload.MilliCPU(p.Size) * 1000
		p.At, p.Usage, p.Pressure = b.view.Now, min(b.load[i], capacity), 0
		if b.load[i] > capacity {
			p.Pressure = float64(b.load[i]-capacity) / float64(b.load[i])
		}
	}
	for i := range b.view.Containers {
		b.view.Containers[i].CPU.At = b.view.Now
	}
	return b.blind(gone)
}

// blind decides without a measurement.
func (b *bench) blind(gone time.Duration) []int {
	sizes, told := b.pools.Step(&b.view)
	b.told = append(b.told, told...)
	for i, n := range sizes.CPUs {
		if p := &b.view.Pools[i]; p.Size != n {
			p.Size = n
			if i < len(sizes.CPUs)-1 {
				b.moves++
			}
		}
	}
	b.view.Now = b.view.Now.Add(gone)
	return sizes.CPUs
}

func (b *bench) run(total, gone time.Duration) []int {
	var sizes []int
	for end := b.view.Now.Add(total); b.view.Now.Before(end); {
		sizes = b.step(gone)
	}
	return sizes
}

func (b *bench) actions() string {
	var all []string
	for _, d := range b.told {
		all = append(all, strings.TrimPrefix(d.Object, "pool ")+" "+d.Action)
	}
	return strings.Join(all, ", ")
}

func cpuLoads(loads ...float64) []workload.MilliCPU {
	var all []workload.MilliCPU
	for _, l := range loads {
		all = append(all, workload.MilliCPU(l*1000))
	}
	return all
}

// TestPoolSizes changes the load of a node at rest and checks the sizes.
func TestPoolSizes(t *testing.T) {
	t.Parallel()
	type change struct {
		load  []workload.MilliCPU
		after time.Duration // 0 for the step itself
		want  string
	}
	calm := cpuLoads(6, 10, 20)
	hungry := cpuLoads(6, 10, 99)
	for name, c := range map[string]struct {
		sizes, requests []int
		threads         int
		cfg             func([]PoolConfig)
		changes         []change
	}{
		"the law's example": {sizes: []int{24, 32, 8}, requests: []int{24, 32, 0}, changes: []change{{calm, 0, "[24 32 8]"}, {calm, 3 * time.Minute, "[15 20 29]"}}},
		"warm start":        {sizes: []int{15, 20, 29}, requests: []int{24, 32, 0}, changes: []change{{calm, 0, "[15 20 29]"}, {calm, 5 * time.Minute, "[15 20 29]"}}},
		"sizes that don't divide": {sizes: []int{64, 64, 64}, requests: []int{24, 32, 0}, changes: []change{
			{calm, 0, "[24 32 8]"}, {calm, 3 * time.Minute, "[15 20 29]"}}},
		"in whole cores": {sizes: []int{24, 32, 8}, requests: []int{24, 32, 0}, threads: 2, changes: []change{{calm, 3 * time.Minute, "[16 20 28]"}}},
		"a step to overload": {sizes: []int{15, 20, 29}, requests: []int{24, 32, 0}, changes: []change{
			{calm, time.Minute, "[15 20 29]"}, {cpuLoads(8.5, 10, 20), 0, "[22 17 25]"}, {cpuLoads(8.5, 13, 20), 0, "[22 17 25]"}, {cpuLoads(8.5, 13, 20), 0, "[22 25 17]"}}},
		"of a hungry batch pool, after two": {sizes: []int{15, 20, 29}, requests: []int{24, 32, 0}, changes: []change{
			{hungry, 2 * time.Minute, "[15 20 29]"}, {cpuLoads(6, 13, 99), 0, "[15 20 29]"}, {cpuLoads(6, 13, 99), 0, "[15 25 24]"}}},
		"or at once where it is nearly full": {sizes: []int{15, 20, 29}, requests: []int{24, 64, 0}, changes: []change{
			{hungry, time.Minute, "[15 20 29]"}, {cpuLoads(6, 19, 99), 0, "[15 47 2]"}, {cpuLoads(6, 19, 99), 0, "[15 37 12]"}}},
		"and what it requests, for a tick": {sizes: []int{15, 20, 29}, requests: []int{24, 40, 0}, changes: []change{
			{hungry, time.Minute, "[15 20 29]"}, {cpuLoads(6, 19, 99), 0, "[15 40 9]"}, {cpuLoads(6, 19, 99), 0, "[15 37 12]"}, {cpuLoads(6, 19, 99), time.Second, "[15 37 12]"}}},
		"a request comes before comfort": {sizes: []int{4, 2, 10}, requests: []int{2, 6, 0}, cfg: func(p []PoolConfig) { p[0].RCFMax, p[1].RCFMax = 0, 0 }, changes: []change{
			{cpuLoads(9, .5, 99), 2 * time.Second, "[13 1 2]"}, {cpuLoads(9, 5, 99), 0, "[8 6 2]"}, {cpuLoads(9, 5, 99), time.Second, "[8 6 2]"}}},
		"a lower pool's request, too": {sizes: []int{8, 2, 12}, requests: []int{6, 8, 0}, cfg: func(p []PoolConfig) { p[0].RCFMax = 0 }, changes: []change{
			{cpuLoads(3, .9, 99), time.Minute, "[8 2 12]"}, {cpuLoads(7, 5, 99), 0, "[14 6 2]"}}},
		"at most a fourth": {sizes: []int{15, 60, 85}, requests: []int{24, 120, 0}, changes: []change{
			{cpuLoads(6, 33, 20), time.Minute, "[15 60 85]"}, {cpuLoads(6, 46, 20), 0, "[15 75 70]"}, {cpuLoads(6, 46, 20), 0, "[15 88 57]"}}},
		"not over the requests":            {sizes: []int{15, 20, 29}, requests: []int{16, 20, 0}, changes: []change{{calm, 2 * time.Minute, "[15 20 29]"}, {cpuLoads(15, 20, 99), 2 * time.Second, "[16 20 28]"}}},
		"but for what it was found to use": {sizes: []int{15, 20, 29}, requests: []int{16, 1, 0}, changes: []change{{calm, 2 * time.Minute, "[15 17 32]"}, {cpuLoads(6, 20, 20), time.Second, "[15 17 32]"}}},
		"the highest first, from below": {sizes: []int{15, 20, 29}, requests: []int{64, 64, 0}, changes: []change{{calm, time.Minute, "[15 20 29]"},
			{cpuLoads(25, 20, 99), time.Second, "[53 9 2]"}}},
		"a minimum":         {sizes: []int{24, 32, 8}, requests: []int{24, 32, 0}, cfg: func(p []PoolConfig) { p[0].Min = 20 }, changes: []change{{calm, 3 * time.Minute, "[20 20 24]"}}},
		"least of requests": {sizes: []int{24, 32, 8}, requests: []int{24, 32, 0}, cfg: func(p []PoolConfig) { p[1].RCFMin = 75 }, changes: []change{{calm, 3 * time.Minute, "[15 24 25]"}}},
		"in the band":       {sizes: []int{15, 20, 29}, requests: []int{24, 32, 0}, changes: []change{{calm, 0, "[15 20 29]"}, {cpuLoads(7.4, 9.1, 0), 3 * time.Minute, "[15 20 29]"}, {cpuLoads(4.6, 11.9, 99), 3 * time.Minute, "[15 20 29]"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pools := shipped()
			if c.cfg != nil {
				c.cfg(pools)
			}
			b := newBench(pools, c.sizes, c.requests)
			b.view.ThreadsPerCore = max(c.threads, 1)
			if c.sizes[0] == c.sizes[2] {
				b.view.Shared = workload.MilliCPU(c.sizes[0]) * 1000
			}
			for i, change := range c.changes {
				b.load = change.load
				if got := fmt.Sprint(b.run(max(change.after, tick), tick)); got != change.want {
					t.Errorf("%d: sizes %s, want %s; %s", i, got, change.want, b.actions())
				}
			}
		})
	}
}

// TestStalePools stops the measurements of a node that uses far less than its requests.
func TestStalePools(t *testing.T) {
	t.Parallel()
	b := newBench(shipped(), []int{15, 20, 29}, []int{24, 32, 0})
	b.load = cpuLoads(6, 10, 99)
	b.run(time.Minute, tick)
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{2900 * time.Millisecond, "[15 20 29]"}, {300 * time.Millisecond, "[24 32 8]"}, {5 * time.Minute, "[24 32 8]"}} {
		var got []int
		for range c.after / tick {
			got = b.blind(tick)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s later: sizes %v, want %s", c.after, got, c.want)
		}
	}
	if got := fmt.Sprint(b.run(59*time.Second, tick)); got != "[24 32 8]" {
		t.Errorf("it shrank on less than a window: %s", got)
	}
	if got := fmt.Sprint(b.run(3*time.Minute, tick)); got != "[15 20 29]" {
		t.Errorf("it does not follow again: %s", got)
	}
	if want := "critical grow, critical stale, online grow, online stale, batch shrink, batch stale, critical fresh, online fresh, batch fresh"; !strings.HasPrefix(b.actions(), want) {
		t.Errorf("told %s, want %s", b.actions(), want)
	}
}

// TestOnePoolStale checks that a pool without recent measurements gives no CPUs to higher pools,
// and takes CPUs from the last pool only.
func TestOnePoolStale(t *testing.T) {
	t.Parallel()
	b := newBench(shipped(), []int{15, 20, 29}, []int{64, 22, 0})
	b.load = cpuLoads(6, 6, 99)
	b.run(time.Minute, tick)
	for i, want := range []string{"[15 22 27]", "[40 22 2]"} {
		for range 40 {
			p := &b.view.Pools[0]
			p.At, p.Usage = b.view.Now, min(workload.MilliCPU(6000+i*20000), workload.MilliCPU(p.Size)*1000)
			b.blind(tick)
		}
		if got := fmt.Sprint(b.pools.sizes.CPUs); got != want {
			t.Errorf("sizes %s, want %s; %s", got, want, b.actions())
		}
	}
}

// TestPoolsAtTheStart checks that the sizes found at the start stay until the first measurement.
func TestPoolsAtTheStart(t *testing.T) {
	t.Parallel()
	b := newBench(shipped(), []int{15, 20, 29}, []int{24, 32, 0})
	for range 20 {
		if got := fmt.Sprint(b.blind(tick)); got != "[15 20 29]" {
			t.Fatalf("sizes %s", got)
		}
	}
}

// TestClockJumps checks that a jump of the clock alone changes no size, and that no pool shrinks
// for a window after it.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{-24 * time.Hour, -time.Millisecond - tick, 10 * time.Second, 24 * time.Hour} {
		b := newBench(shipped(), []int{24, 32, 8}, []int{24, 32, 0})
		b.load = cpuLoads(6, 10, 5)
		b.run(59*time.Second, tick)
		b.view.Now = b.view.Now.Add(jump)
		if got := fmt.Sprint(b.run(59*time.Second, tick)); got != "[24 32 8]" || len(b.told) > 0 {
			t.Errorf("jump of %s: sizes %s, told %s", jump, got, b.actions())
		}
		if got := fmt.Sprint(b.run(3*time.Minute, tick)); got != "[15 20 29]" {
			t.Errorf("jump of %s: sizes %s in the end", jump, got)
		}
	}
	// When the clock is set for the first time, the product of load and time must not overflow.
	b := newBench(shipped(), []int{40, 20, 29}, []int{64, 64, 0})
	b.load = cpuLoads(20, 10, 5)
	b.run(time.Minute, tick)
	b.view.Now = b.view.Now.Add(56 * 365 * 24 * time.Hour)
	b.load[0] = 12000
	if got := fmt.Sprint(b.run(time.Second, tick)); got != "[40 20 29]" {
		t.Errorf("after decades: sizes %s, told %s", got, b.actions())
	}
	b = newBench(shipped(), []int{24, 32, 8}, []int{24, 32, 0})
	b.load = cpuLoads(6, 10, 5)
	for range 5000 {
		b.step(0)
	}
	if len(b.told) > 0 {
		t.Errorf("with a frozen clock: told %s", b.actions())
	}
}

// TestMachineChanges removes CPUs, as pins and hotplug do, and returns them.
func TestMachineChanges(t *testing.T) {
	t.Parallel()
	b := newBench(shipped(), []int{15, 20, 29}, []int{24, 32, 0})
	b.view.Now = start.Add(time.Hour)
	for _, c := range []struct {
		n    int
		want string
	}{{64, "[15 20 29]"}, {40, "[15 20 5]"}, {30, "[15 13 2]"}, {10, "[7 1 2]"}, {3, "[1 1 1]"}, {2, "[]"}, {64, "[24 32 8]"}, {70, "[24 32 14]"}} {
		b.view.Shared = workload.MilliCPU(c.n) * 1000
		if got := fmt.Sprint(b.blind(0)); got != c.want {
			t.Errorf("%d CPUs: sizes %s, want %s", c.n, got, c.want)
		}
	}
	if n := strings.Count(b.actions(), "share"); n != 1 {
		t.Errorf("told %d times that all share: %s", n, b.actions())
	}
}

// TestNewContainersCount starts a container in a pool that has shrunk below its requests.
func TestNewContainersCount(t *testing.T) {
	t.Parallel()
	b := newBench(shipped(), []int{15, 20, 29}, []int{24, 32, 0})
	b.load = cpuLoads(6, 10, 99)
	b.run(2*time.Minute, tick)
	b.view.Pools[1].Request += 8000
	b.view.Containers = []Container{{Pool: 1, Since: b.view.Now, Request: 8000}, {Pool: -1}, {Pool: 2, Request: 9000, Since: b.view.Now}}
	for range 3 {
		b.step(tick)
	}
	if got := b.view.Pools[1].Size; got != 30 { // 10 CPUs more bring its load into the band
		t.Errorf("with a new container of 8 CPUs the pool has %d", got)
	}
	b.load[1] = 15000
	b.view.Containers[0].CPU.Usage = 5000
	b.run(29*time.Second, tick)
	if got := b.view.Pools[1].Size; got != 30 {
		t.Errorf("while it is new the pool has %d", got)
	}
	b.load[1] = 11000
	b.run(5*time.Minute, tick)
	if got := b.view.Pools[1].Size; got != 21 {
		t.Errorf("when it is old the pool has %d", got)
	}
}

// A pool does not shrink because one of its services has a lower limit for the sake of the others.
func TestPoolOfACulpritKeepsItsSize(t *testing.T) {
	t.Parallel()
	b := newBench(shipped(), []int{4, 26, 2}, []int{1, 4, 0})
	b.load = cpuLoads(1, 14, 2)
	before := b.run(3*time.Minute, time.Second)[1]
	b.load[1], b.view.Pools[1].Demoted = 4000, 10000
	if size := b.run(3*time.Minute, time.Second)[1]; size != before {
		t.Errorf("it has %d CPUs, and had %d", size, before)
	}
	b.view.Pools[1].Demoted = 0
	if size := b.run(3*time.Minute, time.Second)[1]; size >= before {
		t.Errorf("it keeps %d CPUs of %d", size, before)
	}
}
