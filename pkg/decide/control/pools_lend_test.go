package control

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestEmptyBatchPool checks that the other pools share the batch pool's CPUs, in proportion to
// their sizes, while it is empty; that they do not change for a load which they hold with these
// CPUs; and that batch work has its CPUs at once when it comes.
func TestEmptyBatchPool(t *testing.T) {
	t.Parallel()
	b := newBench(shipped(), []int{15, 20, 29}, []int{64, 64, 0})
	b.view.Now = start.Add(time.Hour)
	for _, c := range []struct {
		what     string
		empty    bool
		critical bool // the critical pool is empty
		n        int
		load     []workload.MilliCPU
		after    time.Duration
		want     string
	}{
		{"batch work", false, false, 64, cpuLoads(6, 10, 20), time.Minute, "[15 20 29]"},
		{"none", true, false, 64, cpuLoads(6, 10, 0), tick, "[26 35 3]"},
		{"for long", true, false, 64, cpuLoads(6, 10, 0), time.Hour, "[26 35 3]"},
		{"more load", true, false, 64, cpuLoads(9, 17, 0), 2 * time.Second, "[26 35 3]"},
		{"more than it has", true, false, 64, cpuLoads(9, 25, 0), 2 * time.Second, "[23 39 2]"},
		{"of the higher one", true, false, 64, cpuLoads(20, 5, 0), 2 * time.Second, "[45 17 2]"},
		{"fewer CPUs", true, false, 60, cpuLoads(20, 5, 0), tick, "[45 13 2]"},
		{"batch work again", false, false, 60, cpuLoads(6, 5, 0), 30 * time.Minute, "[16 11 33]"},
		{"none, and nothing critical", true, true, 60, cpuLoads(0, 5, 0), tick, "[16 42 2]"},
	} {
		b.view.Pools[2].Empty, b.view.Pools[0].Empty, b.view.Shared, b.load = c.empty, c.critical, workload.MilliCPU(c.n)*1000, c.load
		if got := fmt.Sprint(b.run(c.after, tick)); got != c.want {
			t.Errorf("%s: sizes %s, want %s", c.what, got, c.want)
		}
	}
	if b := newBench(shipped(), []int{15, 20, 29}, []int{16, 20, 0}); true {
		b.view.Pools[2].Empty, b.load = true, cpuLoads(6, 10, 0)
		if got := fmt.Sprint(b.run(2*time.Minute, tick)); got != "[16 20 28]" {
			t.Errorf("sizes %s are over what the pools may have", got)
		}
	}
}

// TestLending checks that while CPUs are lent each pool has at least the CPUs that the rules give
// it, the last at least its minimum, and all pools together all CPUs.
func TestLending(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBench(t)
		last := len(b.load) - 1
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			b.view.Pools[rapid.IntRange(0, last).Draw(t, "pool")].Empty = rapid.IntRange(0, 2).Draw(t, "empty") > 0
			if rapid.IntRange(0, 3).Draw(t, "CPUs change") == 0 {
				b.view.Shared = workload.MilliCPU(rapid.IntRange(1, 80).Draw(t, "CPUs")) * 1000
			}
			b.load[rapid.IntRange(0, last).Draw(t, "busy")] = workload.MilliCPU(rapid.IntRange(0, 40000).Draw(t, "load"))
			sizes := b.step(rapid.SampledFrom([]time.Duration{tick, time.Second, -time.Second}).Draw(t, "time"))
			sum := 0
			for i, size := range sizes {
				s := &b.pools.state[i]
				sum += size
				if i < last && size < s.size || i == last && size < min(s.minimum, s.size) {
					t.Fatalf("pool %d has %d CPUs, the law gives it %d, its minimum is %d", i, size, s.size, s.minimum)
				}
				if i < last && size > s.size && (!b.view.Pools[last].Empty || size > s.cap) {
					t.Fatalf("pool %d has %d CPUs, the law gives it %d of at most %d", i, size, s.size, s.cap)
				}
			}
			if len(sizes) > 0 && sum != int(b.view.Shared/1000) {
				t.Fatalf("sizes %v of %s", sizes, b.view.Shared)
			}
		}
	})
}
