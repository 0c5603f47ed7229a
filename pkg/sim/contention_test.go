package sim

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
)

func TestLastLevelCache(t *testing.T) {
	t.Parallel()
	n := testNode(t, "8 cores")
	n.hardware.LLC = 100e6
	service := hungry(1)
	service.LLC, service.Traffic, service.Sensitivity = 40e6, 1e9, 0.5
	small := hungry(1)
	small.LLC = 10e6
	big := hungry(4)
	big.LLC = 500e6
	a, b := n.start("a", service, nil), n.start("b", small, nil)
	n.advance(0, 0)
	if a.cached != 40e6 || b.cached != 10e6 || a.lostCache() != 0 || a.moved != 1e9 {
		t.Errorf("alone they hold %g and %g bytes, and move %g", a.cached, b.cached, a.moved)
	}
	c := n.start("c", big, nil)
	n.advance(step, 0)
	n.advance(2*step, 0)
	if b.cached != 10e6 || math.Abs(a.cached-18e6) > 1 || math.Abs(c.cached-72e6) > 1 { // 90 MB by CPU time, 1 to 4
		t.Errorf("beside a large one they hold %g, %g and %g bytes", a.cached, b.cached, c.cached)
	}
	lost := 1 - 18.0/40
	if math.Abs(a.speed-1/(1+0.5*lost)) > 1e-9 || math.Abs(a.moved-1e9*a.speed*(1+3*lost)) > 1 || b.speed != 1 {
		t.Errorf("the speeds are %g and %g, the first moves %g bytes per second", a.speed, b.speed, a.moved)
	}
}

// TestCycles checks that cycles per instruction are what slowness makes of them, and that they are counted for ten
// seconds of each minute, or each second where they are counted all the time.
func TestCycles(t *testing.T) {
	t.Parallel()
	n := testNode(t, "4 cores")
	p := hungry(2)
	p.Cycles = []Step{{150 * time.Second, 2}}
	c := n.start("a", p, nil)
	s := &sampler{node: n}
	begin := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	var counts []observe.CPI
	run := func(from, to time.Duration) {
		counts = nil
		for now := from; now < to; now += step {
			n.advance(now, 0)
			s.note(begin.Add(now + step))
			s.measure(begin.Add(now + step))
			if at := c.sums.reading.CPI; len(counts) == 0 && !at.At.IsZero() || len(counts) > 0 && at != counts[len(counts)-1] {
				counts = append(counts, at)
			}
		}
	}
	s.follow([]observe.Target{{ID: "a"}})
	run(0, 30*time.Second)
	if len(counts) != 0 {
		t.Errorf("nobody wants counts, and there are %v", counts)
	}
	s.follow([]observe.Target{{ID: "a", CPI: true}})
	run(30*time.Second, 270*time.Second)
	if len(counts) != 4 {
		t.Fatalf("in four minutes there are %d counts", len(counts))
	}
	for i, want := range []float64{1, 1, 2, 2} {
		if got := counts[i]; got.Over != countTime || got.Usage != 2000 || math.Abs(got.Cycles/want-1) > 0.06 || got.Cycles == want {
			t.Errorf("count %d is %+v, and there are %g cycles per instruction", i, got, want)
		}
	}
	s.follow([]observe.Target{{ID: "a", CPI: true, CPIAlways: true}})
	run(270*time.Second, 290*time.Second)
	if len(counts) < 19 || counts[len(counts)-1].Over != usageEvery {
		t.Errorf("in twenty seconds there are %d counts, the last of them %+v", len(counts), counts[len(counts)-1])
	}
}
