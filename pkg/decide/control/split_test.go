package control

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		budget workload.MilliCPU
		claims []Share[workload.MilliCPU]
		want   string
	}{
		"nobody":             {1000, nil, "[]"},
		"by weight":          {3000, []Share[workload.MilliCPU]{{1, 9000, 0}, {2, 9000, 0}}, "[1 2]"},
		"no weight":          {3000, []Share[workload.MilliCPU]{{0, 9000, 0}, {2, 9000, 0}}, "[1 2]"},
		"one needs less":     {3000, []Share[workload.MilliCPU]{{1, 500, 0}, {1, 9000, 0}}, "[0.5 2.5]"},
		"enough for all":     {9000, []Share[workload.MilliCPU]{{1, 500, 0}, {1, 2000, 0}}, "[0.5 2]"},
		"a floor":            {3000, []Share[workload.MilliCPU]{{1, 9000, 2000}, {9, 9000, 0}}, "[2 1]"},
		"a floor over need":  {3000, []Share[workload.MilliCPU]{{1, 100, 200}, {1, 9000, 0}}, "[0.2 2.8]"},
		"floors alone":       {100, []Share[workload.MilliCPU]{{1, 9000, 200}, {1, 0, 200}}, "[0.2 0.2]"},
		"nothing":            {0, []Share[workload.MilliCPU]{{1, 9000, 0}, {1, 9000, 0}}, "[0 0]"},
		"what can't be cut":  {1000, []Share[workload.MilliCPU]{{1, 9000, 0}, {1, 9000, 0}, {1, 9000, 0}}, "[0.334 0.333 0.333]"},
		"beyond any weight":  {3000, []Share[workload.MilliCPU]{{math.MaxInt64, 9000, 0}, {1 << 30, 9000, 0}}, "[1.504 1.496]"},
		"the largest weight": {1 << 20, []Share[workload.MilliCPU]{{1 << 20, 1 << 24, 0}, {1, 1 << 24, 0}}, "[1048.576 0]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := fmt.Sprint(Split(nil, c.budget, c.claims)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestSplitProperties(t *testing.T) {
	t.Parallel()
	claim := rapid.Custom(func(t *rapid.T) Share[workload.MilliCPU] {
		return Share[workload.MilliCPU]{rapid.Int64Range(0, math.MaxInt64).Draw(t, "weight"), workload.MilliCPU(rapid.Int64Range(0, 1<<24).Draw(t, "demand")), workload.MilliCPU(rapid.Int64Range(0, 1000).Draw(t, "floor"))}
	})
	rapid.Check(t, func(t *rapid.T) {
		claims := rapid.SliceOfN(claim, 0, 20).Draw(t, "claims")
		budget := workload.MilliCPU(rapid.Int64Range(0, 1<<25).Draw(t, "budget"))
		given := Split(nil, budget, claims)
		more := Split(nil, budget+workload.MilliCPU(rapid.Int64Range(0, 1<<20).Draw(t, "more")), claims)
		var sum, floors, demands workload.MilliCPU
		for i, c := range claims {
			most := max(c.Demand, c.Floor)
			if given[i] < c.Floor || given[i] > most {
				t.Fatalf("%+v has %d", c, given[i])
			}
			if more[i] < given[i] {
				t.Fatalf("%+v has %d, and %d of a larger budget", c, given[i], more[i])
			}
			sum, floors, demands = sum+given[i], floors+c.Floor, demands+most
		}
		if want := max(min(budget, demands), floors); sum != want {
			t.Fatalf("given %d, want %d", sum, want)
		}
	})
}

func BenchmarkSplit(b *testing.B) {
	claims := make([]Share[workload.MilliCPU], 200)
	for i := range claims {
		claims[i] = Share[workload.MilliCPU]{int64(1 + i%7), workload.MilliCPU(100 * i), 10}
	}
	into := make([]workload.MilliCPU, 0, len(claims))
	b.ReportAllocs()
	for b.Loop() {
		into = Split(into, 500000, claims)
	}
}
