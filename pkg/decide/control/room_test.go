package control

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestRoom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cpus  workload.MilliCPU
		pools []PoolNeed
		want  workload.MilliCPU
	}{
		// 64 − 15/24 × 24 − 20/32 × 32 = 64 − 15 − 20 = 29: nobody requests anything of the last pool.
		"the law's example": {64000, []PoolNeed{{CPUs: 15000, Request: 24000, RCFMax: 100}, {CPUs: 20000, Request: 32000, RCFMax: 100}, {CPUs: 29000, RCFMax: 100}}, 29000},
		// The last pool's RCF is 1 at most: 64 − 15 − 20 − 25.
		"batch work that requests less than its pool has": {64000, []PoolNeed{{CPUs: 15000, Request: 24000}, {CPUs: 20000, Request: 32000}, {CPUs: 29000, Request: 25000, RCFMax: 100}}, 4000},
		// Its RCF is 29/40: 64 − 15 − 20 − 29/40 × 40.
		"batch work that requests more than its pool has": {64000, []PoolNeed{{CPUs: 15000, Request: 24000}, {CPUs: 20000, Request: 32000}, {CPUs: 29000, Request: 40000, RCFMax: 100}}, 0},
		// RCF of the first pool: 15/24 is 62.5 %, raised to 75 %: 64 − 0.75 × 24 − 20 = 64 − 18 − 20.
		"the least RCF": {64000, []PoolNeed{{CPUs: 15000, Request: 24000, RCFMin: 75}, {CPUs: 20000, Request: 32000}}, 26000},
		// RCF of the second: 20/32 is 62.5 %, lowered to 50 %: 64 − 15 − 0.5 × 32 = 64 − 15 − 16.
		"the highest RCF": {64000, []PoolNeed{{CPUs: 15000, Request: 24000}, {CPUs: 20000, Request: 32000, RCFMax: 50}}, 33000},
		// A pool that requests 1.5 CPUs counts with 80 % of that, 1.2, but needs a core of 2: 8 − 2.
		"what a pool needs in any case": {8000, []PoolNeed{{CPUs: 2000, Request: 1500, RCFMax: 80, Least: 2000}}, 6000},
		// A pool without requests has no RCF: its 3 CPUs count as they are, and with a highest RCF not at all.
		"no requests":                    {8000, []PoolNeed{{CPUs: 3000}}, 5000},
		"no requests and a highest RCF":  {8000, []PoolNeed{{CPUs: 3000, RCFMax: 100}}, 8000},
		"more than there is":             {8000, []PoolNeed{{CPUs: 8000, Request: 8000}, {CPUs: 2000, RCFMin: 50, Request: 16000}}, 0},
		"a request that no machine has":  {8000, []PoolNeed{{Request: 1 << 62, RCFMin: mostRCF}, {Request: 1 << 62, RCFMin: mostRCF}}, 0},
		"no pool":                        {8000, nil, 8000},
		"no CPU":                         {0, []PoolNeed{{CPUs: 1000}}, 0},
		"a negative amount of a bad bug": {8000, []PoolNeed{{CPUs: -1000, Request: -1000, RCFMin: 100}}, 8000},
	} {
		if got := Room(c.cpus, c.pools); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Room is between 0 and the CPUs. It never grows with what a pool has, requests, or needs in any
// case, nor with either bound of its RCF.
func TestRoomProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Custom(func(t *rapid.T) workload.MilliCPU {
			return workload.MilliCPU(rapid.Int64Range(0, 200_000).Draw(t, "amount"))
		})
		percent := rapid.IntRange(1, mostRCF)
		cpus := amount.Draw(t, "CPUs")
		pools := make([]PoolNeed, rapid.IntRange(1, 4).Draw(t, "pools"))
		for i := range pools {
			pools[i] = PoolNeed{CPUs: amount.Draw(t, "size"), Request: amount.Draw(t, "request"), RCFMin: percent.Draw(t, "least") - 1, RCFMax: percent.Draw(t, "most"), Least: amount.Draw(t, "in any case")}
		}
		before := Room(cpus, pools)
		if before < 0 || before > cpus {
			t.Fatalf("a room of %d in %d", before, cpus)
		}
		p := &pools[rapid.IntRange(0, len(pools)-1).Draw(t, "which")]
		switch rapid.IntRange(0, 4).Draw(t, "what grows") {
		case 0:
			p.CPUs += amount.Draw(t, "more")
		case 1:
			p.Request += amount.Draw(t, "more")
		case 2:
			p.RCFMin += percent.Draw(t, "more")
		case 3:
			p.RCFMax += percent.Draw(t, "more")
		case 4:
			p.Least += amount.Draw(t, "more")
		}
		if after := Room(cpus, pools); after > before {
			t.Fatalf("the room grows from %d to %d", before, after)
		}
	})
}

// TestPoolsRoom takes the room from pools that follow their load.
func TestPoolsRoom(t *testing.T) {
	t.Parallel()
	calm := cpuLoads(6, 10, 20)
	batch := Container{Pool: 2, Class: workload.BE, Request: 25000}
	for name, c := range map[string]struct {
		cfg    func([]PoolConfig)
		change func(*bench)
		want   workload.MilliCPU
	}{
		// The pools have 15, 20 and 29; the last needs its minimum of 2: 64 − 15 − 20 − 2.
		"no batch work": {nil, nil, 27000},
		// The last pool is empty, and lends what it doesn't need. The loans are no needs.
		"lent CPUs": {nil, func(b *bench) { b.view.Pools[2].Empty = true }, 27000},
		// Batch work requests 25: 64 − 15 − 20 − 25.
		"batch work": {nil, func(b *bench) { b.view.Containers = append(b.view.Containers, batch) }, 4000},
		// A squeeze gives CPUs of the last pool to the one above it, for as long as it lasts.
		"squeezed batch work": {nil, func(b *bench) {
			b.view.Containers, b.view.Batch = append(b.view.Containers, batch), BatchState{Squeeze: true}
		}, 4000},
		// Half of what batch work requests counts: 64 − 15 − 20 − 12.5, in whole cores.
		"batch work with an RCF": {func(p []PoolConfig) { p[2].RCFMax = 50 }, func(b *bench) { b.view.Containers = append(b.view.Containers, batch) }, 16000},
		// The online pool has 75 % of its request of 32 at least: 64 − 15 − 24 − 2.
		"a least RCF": {func(p []PoolConfig) { p[1].RCFMin = 75 }, nil, 23000},
		// Without measurements each pool counts with its requests: 64 − 24 − 32 − 2.
		"load unknown": {nil, func(b *bench) { b.view.Now = b.view.Now.Add(time.Minute); b.blind(time.Second) }, 6000},
	} {
		pools := shipped()
		if c.cfg != nil {
			c.cfg(pools)
		}
		b := newBench(pools, []int{15, 20, 29}, []int{24, 32, 0})
		b.load = calm
		b.run(3*time.Minute, time.Second)
		step := func() { b.step(time.Second) }
		if c.change != nil {
			c.change(b)
			if name == "load unknown" {
				step = func() { b.blind(time.Second) }
			}
		}
		step()
		if got := b.pools.sizes.Room; got != c.want {
			t.Errorf("%s: %d, want %d; sizes %v", name, got, c.want, b.pools.sizes.CPUs)
		}
	}
}

// TestRoomIsThere lets new containers request the whole room, in either pool, and use as much of it as
// the upper end of the pool's band: the pool gets CPUs for that, or a core less, which rounding costs.
func TestRoomIsThere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cpus := rapid.IntRange(12, 64).Draw(t, "CPUs")
		requests := []int{rapid.IntRange(1, cpus/2).Draw(t, "critical"), rapid.IntRange(1, cpus/2).Draw(t, "online"), 0}
		b := newBench(shipped(), []int{cpus / 3, cpus / 3, cpus - 2*(cpus/3)}, requests)
		b.view.ThreadsPerCore = rapid.IntRange(1, 2).Draw(t, "threads")
		b.view.Containers = []Container{{Pool: 2, Class: workload.BE, Request: workload.MilliCPU(rapid.IntRange(0, cpus).Draw(t, "batch")) * 1000}}
		for i := range 2 {
			b.load[i] = workload.MilliCPU(requests[i] * rapid.IntRange(0, 10*b.pools.pools[i].High).Draw(t, "load"))
		}
		b.load[2] = 1000_000
		b.run(5*time.Minute, time.Second)
		into, room := rapid.IntRange(0, 1).Draw(t, "into"), b.pools.sizes.Room/1000
		if lacks := b.pools.sizes.Short[0]+b.pools.sizes.Short[1] > 0; lacks {
			if room > 0 {
				t.Fatalf("pools lack %v, and there is room for %d", b.pools.sizes.Short, room)
			}
			return
		}
		b.view.Pools[into].Request += room * 1000
		b.load[into] += room * 10 * workload.MilliCPU(b.pools.pools[into].High)
		sizes := b.run(5*time.Minute, time.Second)
		if most := workload.MilliCPU((sizes[into] + b.view.ThreadsPerCore) * 10 * b.pools.pools[into].High); b.load[into] > most {
			t.Fatalf("with %d more requested, the pools have %v for loads of %v, and lack %v", room, sizes, b.load, b.pools.sizes.Short)
		}
	})
}
