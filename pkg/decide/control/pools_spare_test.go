package control

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// lending returns a node whose batch work yields at once, with the law's example.
func lending() *bench {
	b := newBench(shipped(), []int{15, 20, 29}, []int{24, 32, 0})
	b.view.Isolated = true
	copy(b.load, cpuLoads(5.9, 10, 99))
	return b
}

// TestSpare follows the spare CPUs of two pools, which a load of 5.9 and 10 CPUs leaves 3 of 15
// and 3 of 20.
func TestSpare(t *testing.T) {
	t.Parallel()
	b := lending()
	want := func(when string, critical, online int) {
		t.Helper()
		if got := b.pools.sizes.Spare; got[0] != critical || got[1] != online {
			t.Fatalf("%s, spare are %v, want %d and %d", when, got, critical, online)
		}
	}
	b.step(tick)
	want("at first", 0, 0)
	b.run(4800*time.Millisecond, tick)
	want("before five seconds", 0, 0)
	b.run(time.Second, tick)
	want("after five seconds", 3, 3)

	copy(b.load, cpuLoads(6.7, 10, 99))
	b.step(tick)
	want("with a higher load", 0, 3) // 6.7 CPUs, and 0.8 more, are half of 15
	copy(b.load, cpuLoads(5.9, 10, 99))
	b.run(5*time.Second, tick)
	want("soon after it", 0, 3)
	b.run(50*time.Second, tick)
	want("while another rise is expected", 1, 3) // 5.9 CPUs, and 0.8 more, need 14
	b.run(20*time.Second, tick)
	want("when none came for a minute", 3, 3)

	for name, forbid := range map[string]func(v *View){
		"batch work does not yield": func(v *View) { v.Isolated = false },
		"there is none":             func(v *View) { v.Pools[2].Empty = true },
		"it is squeezed":            func(v *View) { v.Batch.Squeeze = true },
	} {
		b := lending()
		b.run(10*time.Second, tick)
		forbid(&b.view)
		b.step(tick)
		if got := b.pools.sizes.Spare; !slices.Equal(got, []int{0, 0, 0}) {
			t.Errorf("although %s, spare are %v", name, got)
		}
	}
	b.view.Now = b.view.Now.Add(10 * time.Second)
	b.blind(tick)
	want("without measurements", 0, 0)
}

// TestSpareAfterClockJumps checks that a pool which lends nothing when the clock jumps lends again as
// soon as one that waited as long.
func TestSpareAfterClockJumps(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{-24 * time.Hour, -time.Minute, time.Hour} {
		b := lending()
		b.run(10*time.Second, tick)
		copy(b.load, cpuLoads(6.7, 10, 99))
		b.step(tick)
		copy(b.load, cpuLoads(5.9, 10, 99))
		b.view.Now = b.view.Now.Add(jump)
		b.run(90*time.Second, tick)
		if got := b.pools.sizes.Spare; got[0] == 0 || got[1] == 0 {
			t.Errorf("90 seconds after a jump of %s, spare are %v", jump, got)
		}
	}
}

// TestSpareDecisions checks that a rise is one decision with its reason, and so is a fall.
func TestSpareDecisions(t *testing.T) {
	t.Parallel()
	b := lending()
	b.run(10*time.Second, tick)
	copy(b.load, cpuLoads(7, 10, 99))
	b.step(tick)
	var told []string
	for _, d := range b.told {
		if d.Moves == "spare" && d.Object == "pool critical" {
			told = append(told, d.Action+" "+d.From+" to "+d.To+": "+d.Why)
		}
	}
	if want := []string{
		"lend 0 spare CPUs to 3 spare CPUs: for 5s its load was at most 5.9 CPUs, 50% of 12: batch work may use the others until the load rises",
		"return 3 spare CPUs to 0 spare CPUs: its load of 7 CPUs needs 15 of its 15 CPUs",
	}; !slices.Equal(told, want) {
		t.Errorf("the decisions are %q", told)
	}
}

// TestSpareIsSpare checks that a pool keeps CPUs for its load, its minimum and whole cores, that
// nothing is spare without a measurement, and that the sizes are those of a node that lends nothing.
func TestSpareIsSpare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBench(t)
		b.view.Isolated = true
		cfg := b.pools.cfg
		cfg.Lend = false
		twin := NewPools(cfg, b.pools.pools, time.Second)
		last := len(b.load) - 1
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			b.load[rapid.IntRange(0, last).Draw(t, "pool")] = cpuLoads(rapid.Float64Range(0, 40).Draw(t, "load"))[0]
			b.view.Isolated = rapid.IntRange(0, 9).Draw(t, "yields") > 0
			b.view.Batch.Squeeze = rapid.IntRange(0, 9).Draw(t, "squeezed") == 0
			blind := rapid.IntRange(0, 9).Draw(t, "blind") == 0
			for range rapid.SampledFrom([]int{1, 3, 70}).Draw(t, "times") {
				sizes := slices.Clone(b.view.Pools)
				if blind {
					b.blind(tick)
				} else {
					b.step(tick)
				}
				view := b.view
				view.Now = view.Now.Add(-tick)
				view.Pools = slices.Clone(b.view.Pools)
				for i := range view.Pools {
					view.Pools[i].Size = sizes[i].Size
				}
				if without, _ := twin.Step(&view); !slices.Equal(without.CPUs, b.pools.sizes.CPUs) {
					t.Fatalf("sizes are %v, and %v on a node that lends nothing", b.pools.sizes.CPUs, without.CPUs)
				}
				checkSpare(t, b)
			}
		}
	})
}

func checkSpare(t *rapid.T, b *bench) {
	p := b.pools
	for i, n := range p.sizes.Spare {
		s := &p.state[i]
		switch keep := p.sizeOf(i) - n; {
		case n == 0:
		case n < 0, n%p.core != 0, keep < p.pools[i].Min:
			t.Fatalf("pool %d of %d CPUs with a minimum of %d has %d to spare", i, p.sizeOf(i), p.pools[i].Min, n)
		case len(p.sizes.CPUs) == 0, i == len(p.state)-1, !b.view.Isolated, b.view.Batch.Squeeze, !s.known:
			t.Fatalf("pool %d has %d CPUs to spare", i, n)
		case int(s.fast)*100 > keep*1000*p.pools[i].High:
			t.Fatalf("pool %d keeps %d CPUs for a load of %s", i, keep, cpus(s.fast))
		}
	}
}

// TestSpareSideEffects lets lent CPUs raise the load of their pool, as batch work that takes memory
// bandwidth does: the pool lends less and less often, and as before once the effect is gone.
func TestSpareSideEffects(t *testing.T) {
	t.Parallel()
	b := lending()
	lent, lending := []time.Duration{}, false
	harm := true
	run := func(d time.Duration) {
		for end := b.view.Now.Add(d); b.view.Now.Before(end); {
			copy(b.load, cpuLoads(5.9, 10, 99))
			if lending && harm {
				b.load[0] = 7400
			}
			b.step(tick)
			if now := b.pools.sizes.Spare[0] > 0; now != lending {
				if lending = now; now {
					lent = append(lent, b.view.Now.Sub(start).Round(time.Second))
				}
			}
		}
	}
	run(10 * time.Minute)
	for i := 2; i < len(lent)-1; i++ {
		if wait, before := lent[i+1]-lent[i], lent[i]-lent[i-1]; wait < before {
			t.Errorf("CPUs were lent after %s", lent)
		}
	}
	if len(lent) < 4 || len(lent) > 12 {
		t.Errorf("CPUs were lent %d times, after %s", len(lent), lent)
	}
	harm = false
	run(4 * time.Minute)
	if !lending {
		t.Error("nothing is lent although it does no harm any more")
	}
}
