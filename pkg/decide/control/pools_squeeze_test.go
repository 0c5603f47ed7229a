package control

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestSqueezedPools checks that time windows and the batch switch shrink the batch pool in the
// same step, and that it grows again in the step in which they end.
func TestSqueezedPools(t *testing.T) {
	t.Parallel()
	off := BatchState{Closed: true, Squeeze: true, Why: "batch is switched off"}
	part := BatchState{Squeeze: true, Percent: 30, Why: "window 09:30-11:30 leaves batch 30% of its CPUs"}
	for name, c := range map[string]struct {
		state   BatchState
		share   int // percent that bounds leave; 0 for all
		threads int
		load    []workload.MilliCPU
		want    string // sizes in the step and three minutes later
		later   string
		why     string // reason of the first decision
	}{
		"off":                {off, 0, 1, cpuLoads(6, 10, 99), "[15 47 2]", "[15 47 2]", "batch is switched off: its pool keeps its minimum, and pool online has the others"},
		"a part":             {part, 0, 1, cpuLoads(6, 10, 99), "[15 40 9]", "[15 40 9]", "window 09:30-11:30 leaves batch 30% of its CPUs: its pool keeps 30% of its CPUs or its minimum"},
		"whole cores":        {part, 0, 2, cpuLoads(6, 10, 99), "[16 38 10]", "[16 38 10]", ""},
		"others still grow":  {off, 0, 1, cpuLoads(9, 10, 99), "[18 44 2]", "[18 44 2]", ""},
		"they find enough":   {off, 0, 1, cpuLoads(6, 30, 99), "[15 47 2]", "[15 47 2]", ""},
		"and give back":      {off, 0, 1, cpuLoads(2, 10, 99), "[15 47 2]", "[6 56 2]", ""},
		"bounds":             {BatchState{}, 30, 1, cpuLoads(6, 10, 99), "[15 40 9]", "[15 40 9]", "web waits: its pool keeps 30% of its CPUs or its minimum, and pool online has the others"},
		"bounds, and a part": {part, 50, 1, cpuLoads(6, 10, 99), "[15 44 5]", "[15 44 5]", ""},
		"only closed":        {BatchState{Closed: true, Why: "soon"}, 0, 1, cpuLoads(6, 10, 99), "[15 20 29]", "[15 20 29]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(shipped(), []int{15, 20, 29}, []int{64, 64, 0})
			if b.view.ThreadsPerCore = c.threads; c.threads == 2 {
				b.view.Pools[0].Size, b.view.Pools[1].Size, b.view.Pools[2].Size = 16, 20, 28
			}
			b.load = cpuLoads(6, 10, 99)
			b.run(time.Minute, tick)
			before := fmt.Sprint(b.pools.sizes.CPUs)
			b.told, b.load, b.view.Batch, b.view.Share = nil, c.load, c.state, BatchShare{c.share, "web waits"}
			if got := fmt.Sprint(b.step(tick)); got != c.want {
				t.Errorf("sizes %s, want %s; %s", got, c.want, b.actions())
			}
			if c.why != "" && !strings.HasPrefix(b.told[0].Why, c.why) {
				t.Errorf("told %+v, want %q", b.told, c.why)
			}
			if got := fmt.Sprint(b.run(3*time.Minute, tick)); got != c.later {
				t.Errorf("three minutes later %s, want %s; %s", got, c.later, b.actions())
			}
			b.view.Batch, b.view.Share = BatchState{}, BatchShare{}
			b.load = cpuLoads(6, 10, 99)
			if got := fmt.Sprint(b.step(tick)); c.want == c.later && c.load[0] == 6000 && c.load[1] == 10000 && got != before {
				t.Errorf("afterwards %s, want %s", got, before)
			}
		})
	}
}

// TestSqueezeProperties checks that a squeeze takes CPUs from the last pool only, down to its part
// or its minimum, and that every other pool has at least what the rules give it.
func TestSqueezeProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBench(t)
		last := len(b.load) - 1
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				b.view.Shared = workload.MilliCPU(rapid.IntRange(1, 80).Draw(t, "CPUs")) * 1000
			case 1:
				b.view.Share = BatchShare{rapid.SampledFrom([]int{0, 5, 34, 95, 100}).Draw(t, "share"), "web waits"}
				b.view.Batch = BatchState{Squeeze: rapid.Bool().Draw(t, "squeezed"), Percent: rapid.IntRange(0, 99).Draw(t, "percent"), Why: "noon"}
			}
			for i := range b.view.Pools {
				b.view.Pools[i].At, b.view.Pools[i].Usage = b.view.Now, workload.MilliCPU(rapid.IntRange(0, 40000).Draw(t, "load"))
			}
			got, told := b.pools.Step(&b.view)
			if len(got.CPUs) > 0 {
				state, core, pools := &b.view.Batch, b.pools.core, b.pools.state
				keep, share := pools[last].size, &b.view.Share
				squeezed := state.Squeeze || share.limits()
				if state.Squeeze {
					keep = min(keep, max(pools[last].minimum, (keep*state.Percent+99)/100)+core-1)
				}
				if share.limits() {
					keep = min(keep, max(pools[last].minimum, (pools[last].size*share.Percent+99)/100)+core-1)
				}
				gives := got.CPUs[last-1] - pools[last-1].size - pools[last-1].lent
				if got.CPUs[last] > keep || got.CPUs[last] < pools[last].minimum || gives < 0 || gives%core != 0 || gives > 0 && !squeezed {
					t.Fatalf("sizes %v, by the law %+v; %+v", got.CPUs, pools, *state)
				}
				sum := 0
				for i, size := range got.CPUs {
					if sum += size; i < last && size < pools[i].size {
						t.Fatalf("sizes %v, by the law %+v; %+v", got.CPUs, pools, *state)
					}
				}
				if sum != b.pools.total {
					t.Fatalf("sizes %v of %d CPUs", got.CPUs, b.pools.total)
				}
			}
			for _, d := range told {
				if d.From == d.To && (d.Action == "grow" || d.Action == "shrink") || d.Why == "" {
					t.Fatalf("told %+v", d)
				}
			}
			b.view.Now = b.view.Now.Add(rapid.SampledFrom([]time.Duration{tick, time.Second, 5 * time.Second}).Draw(t, "time"))
		}
	})
}
