package control

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestCriticalMark(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		nodes      int
		total, low int64
		want       int64
	}{
		"a large node":            {2, 512 * gib, gib, 8 * gib},
		"a small one: 5 %":        {1, 16 * gib, gib / 8, 16 * gib / 20},
		"raised watermarks":       {1, 16 * gib, 2 * gib, 4 * gib},
		"NUMA unknown counts one": {0, 512 * gib, 0, 4 * gib},
	} {
		if got := criticalMark(test.nodes, test.total, test.low); got/mib != test.want/mib {
			t.Errorf("%s: %s, want %s", name, MemoryText(got), MemoryText(test.want))
		}
	}
}

// evictsAfter runs steps until the controller asks for an eviction, and returns after how many
// seconds and why, or 0 if it never does.
func evictsAfter(m *Memory, s *stage, change func(*stage)) (seconds int, request EvictRequest, asked int64) {
	m.Step(&s.View)
	for i := range 30 {
		if change != nil {
			change(s)
		}
		got, _ := m.Step(s.tick())
		for _, r := range got.Reclaim {
			asked += r.Bytes
		}
		if got.Evict != nil {
			return i + 1, *got.Evict, asked
		}
	}
	return 0, EvictRequest{}, asked
}

func TestMemoryPressure(t *testing.T) {
	t.Parallel()
	be := actor{uid: "be", class: workload.BE, anon: 10 << 10, cache: 10 << 10}
	for name, test := range map[string]struct {
		available, free int64 // in GiB
		direct          float64
		actors          []actor
		change          func(*stage)
		evictPercent    int // 0 for the default
		after           int // in seconds; 0 for never
		need            int64
		why             string
		reclaims        bool
	}{
		"enough":                  {available: 60, free: 30, actors: []actor{be}},
		"69 % is under 70":        {available: 31, free: 30},
		"71 % of the node":        {available: 29, free: 20, actors: []actor{be}, after: 1, need: 3 * gib, why: "71% of the node's memory is in use, over 70%", reclaims: true},
		"little free, much cache": {available: 60, free: 1, actors: []actor{be}, reclaims: true},
		"and tasks reclaim for themselves, BE has none": {available: 60, free: 1, actors: []actor{be}, direct: 5, after: 2, why: "1.0 GiB are free, below the critical mark of 4.0 GiB", change: func(s *stage) {
			c := &s.Containers[0].Container.Memory
			c.Current, c.Cache = c.Anon, 0
		}},
		"online outruns reclaim": {available: 45, free: 10, actors: []actor{{uid: "be", class: workload.BE, anon: 29 << 10}}, evictPercent: 95, after: 6, why: "faster than reclaim gives", change: func(s *stage) {
			s.Node.Memory.Available -= 5 * gib
			s.Node.Memory.Free -= gib
		}},
		"a service starts fast, and memory is free": {available: 45, free: 30, actors: []actor{{uid: "be", class: workload.BE, anon: 40 << 10}}, change: func(s *stage) {
			s.Node.Memory.Available = max(s.Node.Memory.Available-4*gib, 32*gib)
			s.Node.Memory.Free = s.Node.Memory.Available
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(test.available*gib, test.free*gib, test.actors...)
			s.Node.Memory.Direct = test.direct
			cfg := DefaultConfig().Memory
			cfg.EvictPercent = cmp.Or(test.evictPercent, cfg.EvictPercent)
			after, request, asked := evictsAfter(NewMemory(cfg, nil, time.Second), s, test.change)
			if after != test.after || test.need != 0 && request.Need != test.need || !strings.Contains(request.Why, test.why) {
				t.Errorf("after %d s: %+v, want after %d s: %s", after, request, test.after, test.why)
			}
			if (asked > 0) != test.reclaims {
				t.Errorf("reclaims %s", MemoryText(asked))
			}
		})
	}
}

// If the kernel can't reclaim from a single container, the controller only asks for reclaim that
// the batch cgroup's limit can do.
func TestMemoryWithoutReclaim(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		available, free int64
		batch           int64 // in MiB
		reclaims        bool
	}{
		"over its goal":           {40, 20, 40 << 10, true},
		"little free, much cache": {60, 1, 10 << 10, false},
	} {
		s := newStage(test.available*gib, test.free*gib, actor{uid: "be", class: workload.BE, anon: test.batch / 2, cache: test.batch / 2})
		s.NoReclaim = true
		_, _, asked := evictsAfter(newMemory(), s, nil)
		if (asked > 0) != test.reclaims {
			t.Errorf("%s: reclaims %s", name, MemoryText(asked))
		}
	}
}

// Evictions for the node's memory continue until it is below the threshold by the margin.
func TestMemoryEvictsToTheMargin(t *testing.T) {
	t.Parallel()
	m, s := newMemory(), newStage(29*gib, 20*gib)
	m.Step(&s.View)
	for _, step := range []struct {
		available int64
		evicts    bool
	}{{29, true}, {31, true}, {33, false}, {31, false}, {29, true}} {
		s.Node.Memory.Available = step.available * gib
		if got, _ := m.Step(s.tick()); (got.Evict != nil) != step.evicts {
			t.Errorf("%d GiB available: %+v", step.available, got.Evict)
		}
	}
}

func TestMemoryNUMA(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := newStage(60*gib, 40*gib, actor{uid: "be", class: workload.BE, anon: 1 << 10, cache: 10 << 10})
	s.Node.Memory.Nodes = []observe.NUMANode{{Total: 50 * gib, Free: 39 * gib}, {Total: 50 * gib, Free: gib}}
	m.Step(&s.View)
	reclaimed, evicted := 0, 0
	for i := range 20 {
		if i == 10 {
			s.Node.Memory.Nodes[1].Direct = 100
		}
		got, _ := m.Step(s.tick())
		if len(got.Reclaim) > 0 && reclaimed == 0 {
			reclaimed = i + 1
		}
		if got.Evict != nil && evicted == 0 {
			evicted = i + 1
			if !strings.Contains(got.Evict.Why, "NUMA node 1 has 1.0 GiB free of 50.0 GiB") {
				t.Error(got.Evict.Why)
			}
		}
	}
	if reclaimed != 3 || evicted != 11 {
		t.Errorf("reclaims after %d s, evicts after %d s", reclaimed, evicted)
	}
	s.Node.Memory.Nodes[1].Free = 30 * gib
	for i := range 20 {
		if got, _ := m.Step(s.tick()); (len(got.Reclaim) > 0 || got.Evict != nil) && i > 4 {
			t.Fatalf("%d s after the pressure: %+v", i, got)
		}
	}
}

func TestMemoryOfPools(t *testing.T) {
	t.Parallel()
	m := NewMemory(DefaultConfig().Memory, []PoolConfig{{Name: "critical"}, {Name: "online", Memory: 10 * gib}}, time.Second)
	s := newStage(60*gib, 40*gib,
		actor{uid: "a", class: workload.LS, anon: 5 << 10, cache: 1 << 10, allow: workload.Reclaim},
		actor{uid: "b", class: workload.LS, anon: 4 << 10, cache: 2 << 10})
	m.Step(&s.View)
	if got, _ := m.Step(s.tick()); len(got.Reclaim) > 0 || got.Evict != nil {
		t.Errorf("at 90 %%: %+v", got)
	}
	use := func(mibs int64) MemoryDesired {
		s.Containers[1].Container.Memory.WorkingSet = mibs * mib
		got, _ := m.Step(s.tick())
		return got
	}
	if got := use(4800); len(got.Reclaim) != 1 || got.Reclaim[0].ID != "a" || got.Evict != nil {
		t.Errorf("at 96 %%, who permits gives cache: %+v", got)
	}
	if got := use(5000); got.Evict == nil || got.Evict.Pool != workload.Some(1) {
		t.Errorf("at 99 %%: %+v", got)
	}
	if got := use(4800); got.Evict == nil {
		t.Errorf("at 96 %% again, it goes on: %+v", got)
	}
	if got := use(4000); got.Evict != nil {
		t.Errorf("at 89 %%: %+v", got)
	}
}

// On a node whose page cache fills the memory, reclaim from BE takes place in steps at long
// intervals, and not at all if it has no effect.
func TestMemoryRests(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := newStage(60*gib, gib, actor{uid: "be", class: workload.BE, cache: 10 << 10})
	m.Step(&s.View)
	steps := 0
	for range 60 {
		got, _ := m.Step(s.tick())
		for _, r := range got.Reclaim {
			steps++
			s.Containers[0].Container.Memory.Current -= r.Bytes
			s.Containers[0].Container.Memory.Cache -= r.Bytes
		}
	}
	if steps != 2 {
		t.Errorf("%d steps in a minute", steps)
	}
}

// A measurement that is older than the reclaim does not count as its result.
func TestMemoryWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := newStage(20*gib, 20*gib, actor{uid: "be", class: workload.BE, cache: 40 << 10})
	m.Step(&s.View)
	var asked []int
	for i := range 12 {
		at := s.Containers[0].Container.Memory.At
		s.tick()
		if i%5 != 0 {
			s.Containers[0].Container.Memory.At = at
		}
		if got, _ := m.Step(&s.View); len(got.Reclaim) > 0 {
			asked = append(asked, i)
			s.Containers[0].Container.Memory.Current -= got.Reclaim[0].Bytes
			s.Containers[0].Container.Memory.Cache -= got.Reclaim[0].Bytes
		}
	}
	if len(asked) != 3 || asked[0] != 0 || asked[1] != 5 || asked[2] != 10 {
		t.Errorf("asks after %v s", asked)
	}
}

// BE's largest cache is reclaimed first, and memory that isn't cache last. Each wait doubles while
// nothing is reclaimed.
func TestMemoryReclaimOrder(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := newStage(80*gib, 60*gib,
		actor{uid: "small", class: workload.BE, anon: 100, cache: 100},
		actor{uid: "none", class: workload.BE, anon: 30 << 10},
		actor{uid: "large", class: workload.BE, anon: 100, cache: 1000},
		actor{uid: "ls", class: workload.LS, cache: 10 << 10})
	s.addSwap(10*gib, true)
	m.Step(&s.View)
	s.Node.Memory.Available = 20 * gib
	got, decisions := m.Step(s.tick())
	var order []string
	for _, r := range got.Reclaim {
		order = append(order, r.ID)
	}
	if strings.Join(order, " ") != "large small none" {
		t.Errorf("asks %+v", got.Reclaim)
	}
	if len(decisions) == 0 || decisions[0].Action != "reclaim" {
		t.Errorf("tells %+v", decisions)
	}
	var asked []int
	for i := range 40 {
		got, decisions = m.Step(s.tick())
		if len(got.Reclaim) > 0 {
			asked = append(asked, i)
		}
		if len(decisions) > 1 {
			t.Errorf("tells again: %+v", decisions)
		}
	}
	if len(asked) > 7 {
		t.Errorf("asks in vain %d times, after %v s", len(asked), asked)
	}
}
