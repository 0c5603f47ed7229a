package sim

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

func TestSqueezesAreCounted(t *testing.T) {
	t.Parallel()
	grow := func(pool string, load, forecast float64) *control.Decision {
		return &control.Decision{Controller: "pools", Object: "pool " + pool, Action: "grow", Facts: []control.Fact{{Name: "forecast_cpus", Value: forecast}, {Name: "load_cpus", Value: load}}}
	}
	for _, test := range []struct {
		name          string
		idle          bool // no batch work runs
		decision      *control.Decision
		all, expected int
	}{
		{"a load that was not forecast", false, grow("online", 5, 0), 1, 0},
		{"more than was forecast", false, grow("online", 5, 4), 1, 0},
		{"what was forecast", false, grow("online", 5, 5), 1, 1},
		{"before the load comes", false, grow("online", 1, 5), 1, 1},
		{"a later step of a movement", false, &control.Decision{Controller: "pools", Object: "pool online", Action: "grow", Steps: 2}, 0, 0},
		{"the batch pool grows", false, grow("batch", 1, 0), 0, 0},
		{"no batch work", true, grow("online", 5, 5), 0, 0},
		{"a budget", false, &control.Decision{Controller: "batch", Object: "node", Action: "squeeze"}, 1, 0},
		{"more budget", false, &control.Decision{Controller: "batch", Object: "node", Action: "grow"}, 0, 0},
	} {
		r := report{decisions: map[string]int{}, series: Series{Pools: []PoolSeries{{Name: "online"}, {Name: "batch"}, {Name: "pinned"}}}}
		r.squeezes.possible = !test.idle
		r.Record(time.Time{}, control.On, test.decision)
		if r.squeezes.all != test.all || r.squeezes.expected != test.expected {
			t.Errorf("%s: %+v, want %d and %d", test.name, r.squeezes, test.all, test.expected)
		}
	}
}
