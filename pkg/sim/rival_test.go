package sim

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// The quotas are those of Koordinator's own tests (cpu_suppress_test.go): 80 CPUs, 20 left to batch
// work.
func TestKoordinator(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ node, had, others, want float64 }{
		{80, 10, 32, 18},
		{80, 19, 32, 20},
		{80, 24, 32, 20},
		{80, 19.8, 32, 19.8},
		{80, math.Inf(1), 32, 20},
		{80, 0.5, 80, 0.02},
		{20, 8, 9, 4},
	} {
		k := koordinator{node: test.node, threshold: 0.65, quota: test.had}
		if got := k.decide(test.others); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("from %g of %g, others use %g: %g, want %g", test.had, test.node, test.others, got, test.want)
		}
	}
}

func testLAR(core, cpus int) *lar {
	l := &lar{core: core, pools: []larPool{
		{PoolConfig: control.PoolConfig{Name: "critical", Low: 30, High: 50}, cpus: core},
		{PoolConfig: control.PoolConfig{Name: "online", Low: 45, High: 60}, cpus: core},
		{PoolConfig: control.PoolConfig{Name: "batch", Low: 50, High: 80}},
	}}
	l.restTo(cpus)
	return l
}

func (l *lar) sizes() [3]int { return [3]int{l.pools[0].cpus, l.pools[1].cpus, l.pools[2].cpus} }

func TestLAR(t *testing.T) {
	t.Parallel()
	l := testLAR(1, 64)
	for _, test := range []struct {
		what     string
		requests [2]float64
		used     [2]float64
		want     [3]int
	}{
		{"both have the middle of their bands", [2]float64{24, 32}, [2]float64{6, 10}, [3]int{15, 20, 29}},
		{"within the bands nothing moves", [2]float64{24, 32}, [2]float64{7, 9.5}, [3]int{15, 20, 29}},
		{"no more than is requested", [2]float64{24, 32}, [2]float64{14, 30}, [3]int{24, 32, 8}},
		{"the last pool gives first, the next one then", [2]float64{40, 32}, [2]float64{16, 17}, [3]int{40, 23, 1}},
		{"what fell goes to the last pool", [2]float64{40, 32}, [2]float64{2, 2}, [3]int{5, 4, 55}},
	} {
		for i := range test.used {
			l.pools[i].used, l.pools[i].most = slices.Repeat([]float64{test.used[i]}, larWindow), max(l.core, roundUp(test.requests[i], l.core))
		}
		if l.divide(); l.sizes() != test.want {
			t.Errorf("%s: %v, want %v", test.what, l.sizes(), test.want)
		}
	}
}

// The pools always have all CPUs together, each a core, in whole cores, and none but the last more
// than is requested.
func TestLARProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		core := rapid.IntRange(1, 2).Draw(t, "core")
		cpus := core * rapid.IntRange(3, 64).Draw(t, "cores")
		l := testLAR(core, cpus)
		for i := range 2 {
			l.pools[i].used = make([]float64, larWindow) // of a minute without load
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			for i := range 2 {
				p := &l.pools[i]
				p.most = max(core, roundUp(rapid.Float64Range(0, 100).Draw(t, "request"), core))
				p.seconds = rapid.Float64Range(0, float64(p.cpus)).Draw(t, "used")
				p.note()
			}
			l.divide()
			sum := 0
			for i, n := range l.sizes() {
				sum += n
				if n < core || n%core != 0 || i < 2 && n > l.pools[i].most {
					t.Fatalf("pool %d has %d CPUs in cores of %d, at most %d", i, n, core, l.pools[i].most)
				}
			}
			if sum != cpus {
				t.Fatalf("%v are not %d CPUs", l.sizes(), cpus)
			}
		}
	})
}
