package control

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestOffload checks from which containers memory goes to swap, and how much, when batch work
// without page cache holds 20 GiB more than it may.
func TestOffload(t *testing.T) {
	t.Parallel()
	const all = 3 * gib // a tenth of what the container holds
	for name, test := range map[string]struct {
		swap     int64
		inMemory bool
		change   func(s *stage)
		want     int64
	}{
		"swap in memory":                {swap: 40 * gib, inMemory: true, want: all},
		"swap on a disk":                {swap: 40 * gib, want: 600 * mib}, // the budget of the first ten minutes
		"a disk to which others swap":   {swap: 40 * gib, change: func(s *stage) { s.Node.Memory.SwapWrites = 100 << 20 }, want: 501 * mib},
		"a tenth of it stays free":      {swap: 10 * gib, inMemory: true, change: func(s *stage) { s.Node.Memory.SwapFree = 2 * gib }, want: gib},
		"it is nearly full":             {swap: 10 * gib, inMemory: true, change: func(s *stage) { s.Node.Memory.SwapFree = gib }},
		"no swap":                       {},
		"the container's limit":         {swap: 40 * gib, inMemory: true, change: func(s *stage) { s.Containers[0].Swap.Free = 64 * mib }, want: 64 * mib},
		"the container may not swap":    {swap: 40 * gib, inMemory: true, change: func(s *stage) { s.Containers[0].Swap.Free = 0 }},
		"it reads its memory back":      {swap: 40 * gib, inMemory: true, change: func(s *stage) { s.Containers[0].Pressure.Memory = 0.11 }},
		"its memory in swap is unknown": {swap: 40 * gib, inMemory: true, change: func(s *stage) { s.Containers[0].Swap.At = time.Time{} }},
		"it is a service":               {swap: 40 * gib, inMemory: true, change: func(s *stage) { s.Containers[0].Class = workload.LS }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(80*gib, 60*gib, actor{uid: "be", class: workload.BE, anon: 30 << 10})
			s.addSwap(test.swap, test.inMemory)
			m := newMemory()
			m.Step(&s.View)
			s.Node.Memory.Available = 30 * gib
			s.tick()
			if test.change != nil {
				test.change(s)
			}
			asked := int64(0)
			got, _ := m.Step(&s.View)
			for _, r := range got.Reclaim {
				asked += r.Bytes
			}
			if max(asked-test.want, test.want-asked) > mib {
				t.Errorf("asks for %s, want %s", MemoryText(asked), MemoryText(test.want))
			}
		})
	}
}

// TestEvictionWaitsForOffload checks that pods are evicted for the node's memory only when batch
// work's memory doesn't go to swap.
func TestEvictionWaitsForOffload(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		swaps      bool // the kernel moves to swap what is requested
		percent    int  // size of the memory that zram takes for it
		evictsIn   int  // seconds; 0 for never
		swapped    int64
		whenItEnds string
	}{
		"it goes to swap":        {swaps: true, percent: 30, swapped: 5 * gib, whenItEnds: "went to swap"},
		"the kernel refuses":     {evictsIn: 2},
		"it does not compress":   {swaps: true, percent: 100, evictsIn: 2},
		"it goes to a fast disk": {swaps: true, swapped: 5 * gib, whenItEnds: "went to swap"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(29*gib, 29*gib, actor{uid: "be", class: workload.BE, anon: 50 << 10})
			s.addSwap(60*gib, true)
			m := newMemory()
			m.Step(&s.View)
			evicted, summary := 0, ""
			for second := range 120 {
				got, decisions := m.Step(s.tick())
				if got.Evict != nil && evicted == 0 {
					evicted = second + 1
				}
				for _, d := range decisions {
					if d.Action == "reclaimed" {
						summary = d.Why
					}
				}
				for _, r := range got.Reclaim {
					if test.swaps {
						s.swapOut(0, r.Bytes)
						held := r.Bytes * int64(test.percent) / 100
						s.Node.Memory.SwapHeld += held
						s.Node.Memory.Available -= held
						s.Node.Memory.Free -= held
					}
				}
				if evicted > 0 {
					break
				}
			}
			d := &m.desired
			if evicted != test.evictsIn || d.Taken.Swap < test.swapped || !strings.Contains(summary, test.whenItEnds) {
				t.Errorf("evicts after %d s, %s went to swap (%q)", evicted, MemoryText(d.Taken.Swap), summary)
			}
			if evicted == 0 && (d.Swapped != d.Taken.Swap || d.Held > d.Goal) {
				t.Errorf("in the end: %+v", d)
			}
		})
	}
}

// TestCloseLook checks when the memory of each BE container has to be measured with the node's: before
// memory is taken back, and while that goes on, but not between attempts that gave nothing.
func TestCloseLook(t *testing.T) {
	t.Parallel()
	s := newStage(80*gib, 60*gib, actor{uid: "be", class: workload.BE, anon: 30 << 10})
	m := newMemory()
	closely := func(available int64) bool {
		s.Node.Memory.Available = available
		got, _ := m.Step(s.tick())
		return got.Closely
	}
	m.Step(&s.View)
	if closely(80 * gib) {
		t.Error("on a calm node")
	}
	for _, available := range []int64{75, 70, 65, 60, 55} {
		closely(available * gib)
	}
	if !closely(50 * gib) {
		t.Errorf("while others grow and batch work nears its goal: %+v", m.desired)
	}
	if !closely(30*gib) || !closely(20*gib) {
		t.Errorf("while batch work holds too much: %+v", m.desired)
	}
	times := 0
	for range 60 {
		if closely(20 * gib) {
			times++
		}
	}
	if times > 10 {
		t.Errorf("%d times in a minute, although nothing can be had", times)
	}
}

// TestSwapBudget checks that no more is written to a disk than the budget of the time that has
// passed, whatever the node does.
func TestSwapBudget(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newStage(80*gib, 60*gib, actor{uid: "a", class: workload.BE, anon: 40 << 10}, actor{uid: "b", class: workload.BE, anon: 20 << 10})
		s.addSwap(1000*gib, false)
		cfg := DefaultConfig().Memory
		cfg.SwapMBps = rapid.IntRange(0, 50).Draw(t, "budget")
		m := NewMemory(cfg, nil, time.Second)
		m.Step(&s.View)
		written, step := int64(0), int64(0)
		for second := range rapid.IntRange(1, 300).Draw(t, "seconds") {
			s.Node.Memory.Available = rapid.Int64Range(10, 60).Draw(t, "available") * gib
			s.Node.Memory.SwapWrites = float64(step)
			got, _ := m.Step(s.tick())
			step = 0
			for _, r := range got.Reclaim {
				step += r.Bytes
				for i := range s.Containers {
					if s.Containers[i].ID == r.ID {
						s.swapOut(i, r.Bytes)
					}
				}
			}
			written += step
			if most := swapBudget(&cfg, firstSwapBudget+time.Duration(second+1)*time.Second); float64(written) > most {
				t.Fatalf("%s were written in %d s, at most %s", MemoryText(written), second+1, MemoryText(int64(most)))
			}
		}
	})
}
