package control

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// drawExtreme draws a view with values that no node should have: no CPUs, no memory, huge amounts,
// fractions outside of 0 to 1, inconsistent times.
func drawExtreme(t *rapid.T, now time.Time) *View {
	amount := func(name string) workload.MilliCPU {
		return rapid.SampledFrom([]workload.MilliCPU{0, 1, 999, 8000, 8192000, 1 << 40}).Draw(t, name)
	}
	bytes := func(name string) int64 {
		return rapid.SampledFrom([]int64{0, 1, mib, 64 * gib, 1 << 52}).Draw(t, name)
	}
	share := func(name string) float64 {
		return rapid.SampledFrom([]float64{0, 0.5, 1, -1, 1e9, math.Inf(1), math.NaN()}).Draw(t, name)
	}
	seen := func(name string) time.Time {
		return rapid.SampledFrom([]time.Time{now, now, now, {}, now.Add(time.Hour), now.Add(-time.Hour)}).Draw(t, name)
	}
	cpus := rapid.SampledFrom([]int{0, 1, 2, 3, 64, 8192}).Draw(t, "CPUs")
	v := &View{Now: now, ThreadsPerCore: rapid.IntRange(0, 8).Draw(t, "threads"), CPUs: make([]observe.CPU, cpus),
		Capacity: workload.MilliCPU(cpus) * 1000, MemoryTotal: bytes("memory"),
		Isolated: rapid.Bool().Draw(t, "isolated"), NoReclaim: rapid.Bool().Draw(t, "no reclaim")}
	v.Allocatable = workload.MilliCPU(rapid.IntRange(0, cpus).Draw(t, "allocatable")) * 1000
	v.Shared = workload.MilliCPU(rapid.IntRange(0, int(v.Allocatable/1000)).Draw(t, "shared")) * 1000
	v.Batch = BatchState{Squeeze: rapid.Bool().Draw(t, "squeezed"), Percent: rapid.SampledFrom([]int{0, 1, 99}).Draw(t, "percent"), Evict: rapid.Bool().Draw(t, "evicts")}
	v.Node.CPU = observe.NodeCPU{At: seen("node"), Usage: amount("node's usage"), Interval: time.Second}
	v.Node.Memory = observe.NodeMemory{At: seen("memory"), Total: v.MemoryTotal, Available: bytes("available"), Free: bytes("free"), Low: bytes("low"), Direct: share("direct")}
	v.Node.Pressure = observe.Pressure{At: seen("pressure"), CPU: share("pressure"), Memory: share("memory pressure")}
	v.Forecasts = Forecasts{Pools: []workload.MilliCPU{amount("forecast"), amount("forecast")}, Soon: Amount{amount("soon"), bytes("soon")}, Long: Amount{amount("long"), bytes("long")}}
	v.BatchUse = Use{seen("batch use"), amount("batch use")}
	v.BatchMemory = Held{At: seen("batch memory"), Current: bytes("held"), Cache: bytes("cache"), Anon: bytes("anonymous")}
	for _, name := range []string{"critical", "online", "batch"} {
		v.Pools = append(v.Pools, Pool{Name: name, Size: rapid.IntRange(0, cpus).Draw(t, "size"), Request: amount("requests"), Quota: amount("quota"),
			At: seen("pool"), Usage: amount("usage"), Pressure: share("pressure")})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "pods") {
		class := rapid.SampledFrom([]workload.Class{workload.LS, workload.BE, workload.LSE, workload.System}).Draw(t, "class")
		c := Container{Container: observe.Container{ID: string(rune('a' + i))}, Pod: i, Pool: rapid.IntRange(-1, 2).Draw(t, "pool"), Class: class,
			Request: amount("request"), Limit: amount("limit"), Since: seen("start"), Burst: workload.Burst{Auto: true}}
		c.CPU = observe.ContainerCPU{At: seen("look"), StatAt: seen("throttling"), Interval: time.Second, Usage: amount("usage"), Periods: 10, Throttled: 5}
		c.Pressure = observe.Pressure{At: seen("pressure"), CPU: share("pressure"), Memory: share("memory pressure")}
		c.RunDelay = observe.RunDelay{At: seen("run delay"), Waiting: share("run delay")}
		c.Container.Memory = observe.ContainerMemory{At: seen("memory"), Current: bytes("held"), Anon: bytes("anonymous"), Cache: bytes("cache"), WorkingSet: bytes("working set")}
		v.Pods = append(v.Pods, Pod{UID: c.ID, Class: class, First: i, Count: 1, Allow: workload.Actions(rapid.IntRange(0, 15).Draw(t, "allow"))})
		v.Containers = append(v.Containers, c)
	}
	return v
}

// drawLimits draws a configuration of the smallest and largest valid values.
func drawLimits(t *rapid.T) Config {
	cfg := DefaultConfig()
	percent := func(least, most int) int { return rapid.SampledFrom([]int{least, most}).Draw(t, "percent") }
	cfg.Pools = PoolsConfig{SlowWindow: rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(t, "window"), ShrinkAfter: 1, NewPodTime: time.Hour,
		GrowCPUs: percent(1, mostCPUs), GrowPercent: percent(0, 100), ShrinkCPUs: percent(1, mostCPUs), ShrinkPercent: percent(0, 100)}
	cfg.Batch = BatchConfig{ThresholdPercent: percent(0, 100), FloorPercent: percent(0, 100), FloorCPUs: percent(1, mostCPUs), GrowPercent: percent(1, 100), Reserved: mostCPUs * 1000}
	cfg.Burst.MaxPercent, cfg.Demotion.StepPercent = percent(100, 10000), percent(1, 90)
	cfg.Memory.SafePercent, cfg.Memory.HeadroomPercent, cfg.Memory.Reserve = percent(1, 67), percent(1, 50), Bytes(percent(0, math.MaxInt/1000))
	cfg.Eviction.SatisfactionPercent = percent(0, 100)
	cfg.Offer.CPUMarginPercent, cfg.Offer.MemoryMarginPercent = percent(0, 100), percent(0, 100)
	return cfg
}

// TestExtremes checks that no measurement makes a controller panic or want something impossible.
func TestExtremes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawLimits(t)
		law := []PoolConfig{{Name: "critical", Low: 1, High: 2, RCFMin: 1000, RCFMax: 1000, Min: mostCPUs}, {Name: "online", Low: 99, High: 100, Memory: 1}, {Name: "batch", Low: 1, High: 100, Min: mostCPUs, Memory: 1}}
		pools, batch, burst, demotion := NewPools(cfg.Pools, law, time.Second), NewBatch(cfg.Batch, time.Second), NewBurst(cfg.Burst, time.Second), NewDemotion(cfg.Demotion, time.Second)
		memory, eviction, offering := NewMemory(cfg.Memory, law, time.Second), NewEviction(cfg.Eviction, On, time.Second), NewOffering(cfg.Offer, Amount{}, time.Second, Peaks{})
		interference, cache := NewInterference(time.Second), NewCache(CacheConfig{Class: "be", TrafficPercent: 1, MaxMBps: 1, MinPercent: 1, StepPercent: 100}, time.Second)
		now := stageNow()
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			v := drawExtreme(t, now)
			sizes, _ := pools.Step(v)
			sum, short := 0, []Shortage(nil)
			for i, n := range sizes.CPUs {
				if sum += n; n < 1 {
					t.Fatalf("sizes %v", sizes.CPUs)
				}
				if sizes.Short[i] > 0 {
					short = append(short, Shortage{Crowded: i == 1, Pool: i, Missing: workload.MilliCPU(sizes.Short[i]) * 1000, Apart: true})
				}
			}
			if len(sizes.CPUs) > 0 && sum != int(v.Shared/1000) {
				t.Fatalf("sizes %v of %s CPUs", sizes.CPUs, v.Shared)
			}
			if b, _ := batch.Step(v); b.Amount < 0 || b.Amount > v.Shared && !b.Hold || b.CPUs < 0 || b.CPUs > int(v.Shared/1000) {
				t.Fatalf("budget %+v of %s CPUs", b, v.Shared)
			}
			interference.Step(v)
			if s, _ := cache.Step(v); s.Cache < 1 || s.Cache > 100 || s.Bandwidth < 1 || s.Bandwidth > 100 {
				t.Fatalf("slice %+v", s)
			}
			raised, _ := burst.Step(v)
			for _, q := range raised {
				if q.CPU <= v.Containers[q.ID[0]-'a'].Limit {
					t.Fatalf("raised to %+v, limit %s", q, v.Containers[q.ID[0]-'a'].Limit)
				}
			}
			demoted, _ := demotion.Step(v, short)
			for _, q := range demoted {
				if q.CPU < max(leastQuota, v.Containers[q.ID[0]-'a'].Request) {
					t.Fatalf("demoted to %+v", q)
				}
			}
			m, _ := memory.Step(v)
			if m.BatchLimit < 0 || m.Goal < 0 || m.Headroom < 0 {
				t.Fatalf("memory %+v", m)
			}
			for _, r := range m.Reclaim {
				if r.Bytes <= 0 || r.Until < 0 {
					t.Fatalf("reclaims %+v", r)
				}
			}
			var requests []EvictRequest
			if m.Evict != nil {
				requests = append(requests, *m.Evict)
			}
			if e, _ := eviction.Step(v, batch.now, requests); e.Evict != nil && v.Pods[e.Evict.UID[0]-'a'].Class != workload.BE && v.Pods[e.Evict.UID[0]-'a'].Allow&workload.EvictPod == 0 {
				t.Fatalf("evicts %+v", e.Evict)
			}
			if o, _ := offering.Step(v, nil); o.ShortTerm.CPU < 0 || o.ShortTerm.MemoryBytes < 0 || o.LongTerm.CPU < 0 || o.LongTerm.MemoryBytes < 0 {
				t.Fatalf("offer %+v", o)
			}
			now = now.Add(rapid.SampledFrom([]time.Duration{0, tick, time.Second, time.Second, time.Second, -time.Hour, 60 * 365 * 24 * time.Hour}).Draw(t, "time"))
		}
	})
}
