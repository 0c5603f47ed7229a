package control

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func newMemory() *Memory { return NewMemory(DefaultConfig().Memory, nil, time.Second) }

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	// The node has 100 GiB, of which 65 % may be used and at least 1 % is headroom.
	for name, test := range map[string]struct {
		available int64 // in GiB
		be        int64 // in MiB
		cache     int64
		reserve   Bytes
		pool      int64
		want      int64 // in MiB
	}{
		"an idle node":                    {available: 100, want: 64 << 10},
		"online has 20 GiB":               {available: 80, want: 44 << 10},
		"BE's own is not online's":        {available: 70, be: 10 << 10, want: 44 << 10},
		"BE's cache is available":         {available: 70, be: 10 << 10, cache: 5 << 10, want: 44 << 10},
		"a reserve":                       {available: 80, reserve: Bytes(4 * gib), want: 40 << 10},
		"a limit of the pool":             {available: 80, pool: 10 * gib, want: 10 << 10},
		"online has all: only the least":  {available: 30, want: 64},
		"never below what BE holds":       {available: 20, be: 10 << 10, want: 10<<10 + 32},
		"nor below what it has in cache":  {available: 20, be: 10 << 10, cache: 10 << 10, want: 20<<10 + 32},
		"the least slack over what it is": {available: 30, be: 100, want: 132},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := DefaultConfig().Memory
			cfg.Reserve = test.reserve
			m := NewMemory(cfg, []PoolConfig{{Name: "batch", Memory: test.pool}}, time.Second)
			s := newStage(test.available*gib, 20*gib, actor{uid: "be", class: workload.BE, anon: test.be, cache: test.cache})
			got, decisions := m.Step(&s.View)
			if got.BatchLimit != test.want*mib || len(decisions) != 1 || got.Evict != nil || len(got.Reclaim) > 0 {
				t.Errorf("got %+v, want a limit of %s; %v", got, MemoryText(test.want*mib), decisions)
			}
		})
	}
}

// Online work grows by 1 GiB/s into memory that BE holds as cache. The limit follows, and memory
// is reclaimed from BE before the limit falls.
func TestMemoryFollowsOnline(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := newStage(80*gib, 50*gib, actor{uid: "be", class: workload.BE, anon: 10 << 10, cache: 20 << 10})
	before, _ := m.Step(&s.View)
	be := &s.Containers[0].Container.Memory
	reclaimed := false
	for range 40 {
		s.Node.Memory.Available -= gib
		s.Node.Memory.Free -= gib
		got, _ := m.Step(s.tick())
		if got.BatchLimit > before.BatchLimit {
			t.Fatalf("raised to %s while online grows", MemoryText(got.BatchLimit))
		}
		for _, r := range got.Reclaim {
			reclaimed = true
			if r.ID != "be" || r.Until != be.Current-r.Bytes || r.Bytes > 5*gib {
				t.Fatalf("asks for %+v", r)
			}
			s.Node.Memory.Free += r.Bytes // all of it is cache
			be.Current -= r.Bytes
			be.Cache -= r.Bytes
		}
		if got.BatchLimit < before.BatchLimit && got.BatchLimit < be.Current {
			t.Fatalf("lowered to %s below the %s that BE holds", MemoryText(got.BatchLimit), MemoryText(be.Current))
		}
		if got.Evict != nil {
			t.Fatalf("evicts while reclaim gives: %s", got.Evict.Why)
		}
		before = got
	}
	if !reclaimed || before.Headroom != 3*gib && before.Headroom < 2*gib {
		t.Errorf("headroom is %s after a growth of 1 GiB a second; reclaimed: %v", MemoryText(before.Headroom), reclaimed)
	}
	// Online work holds 50 GiB and 3 GiB are headroom, so 12 of 65 GiB are left.
	if want := 65*gib - 50*gib - before.Headroom; before.Goal != want || before.BatchLimit > want+2*gib {
		t.Errorf("goal %s, limit %s, want %s", MemoryText(before.Goal), MemoryText(before.BatchLimit), MemoryText(want))
	}
}

// The limit rises to the goal at once if batch work may soon need it, because it holds nearly its
// limit or because a container starts. It does not fall below what such a container was granted.
func TestMemoryRaisesAtOnce(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := newStage(40*gib, 30*gib, actor{uid: "be", class: workload.BE})
	m.Step(&s.View)
	s.Node.Memory.Available = 90 * gib
	got, decisions := m.Step(s.tick())
	if got.BatchLimit != got.Goal || got.Goal < 53*gib || len(decisions) != 1 || decisions[0].Action != "raise" {
		t.Errorf("%s, with a goal of %s: %v", MemoryText(got.BatchLimit), MemoryText(got.Goal), decisions)
	}
	s.Granted = 6 * gib
	s.Node.Memory.Available = 30 * gib
	for range 60 {
		if got, _ = m.Step(s.tick()); got.BatchLimit < s.Granted {
			t.Fatalf("%s, and %s are granted", MemoryText(got.BatchLimit), MemoryText(s.Granted))
		}
	}
	if got.BatchLimit > s.Granted+gib || got.Room > -s.Granted {
		t.Errorf("%s, with room for %s", MemoryText(got.BatchLimit), MemoryText(got.Room))
	}
	s.Granted = 0
	for range 3 {
		m.Step(s.tick())
	}
	s.Granted = 8 * gib // another container starts
	if got, _ = m.Step(s.tick()); got.BatchLimit < s.Granted {
		t.Errorf("%s for a container that starts with %s", MemoryText(got.BatchLimit), MemoryText(s.Granted))
	}
	s.NoBatchLimit = true
	if got, decisions = m.Step(s.tick()); got.BatchLimit != 0 || decisions != nil {
		t.Errorf("without a cgroup to limit: %s, %v", MemoryText(got.BatchLimit), decisions)
	}
	s.NoBatchLimit, s.Granted, s.Node.Memory.Available = false, 0, 60*gib
	if got, _ = m.Step(s.tick()); got.BatchLimit != got.Goal {
		t.Errorf("the first limit is %s, the goal %s", MemoryText(got.BatchLimit), MemoryText(got.Goal))
	}
}

// Memory that batch work does not need soon returns after a minute of low demand, in steps of a
// tenth of the node.
func TestMemoryRaises(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := newStage(60*gib, 30*gib)
	first, _ := m.Step(&s.View)
	s.Node.Memory.Available = 90 * gib
	for range 60 {
		if got, decisions := m.Step(s.tick()); got.BatchLimit != first.BatchLimit {
			t.Fatalf("raised before a minute has passed: %v", decisions)
		}
	}
	var second MemoryDesired
	var decisions []Decision
	for decisions == nil {
		second, decisions = m.Step(s.tick())
	}
	if second.BatchLimit-first.BatchLimit != 10*gib || len(decisions) != 1 || decisions[0].Action != "raise" {
		t.Errorf("from %s to %s: %v", MemoryText(first.BatchLimit), MemoryText(second.BatchLimit), decisions)
	}
	for range 10 {
		second, decisions = m.Step(s.tick())
	}
	if second.BatchLimit != 54*gib || decisions != nil {
		t.Errorf("ends at %s: %v", MemoryText(second.BatchLimit), decisions)
	}
}

// The heap of online work oscillates by 3 % of the node and grows slowly. The limit follows in few
// steps, and few of them are reported.
func TestMemoryMovesInFewSteps(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := newStage(80*gib, 50*gib, actor{uid: "be", class: workload.BE, anon: 2 << 10, cache: 42 << 10})
	be := &s.Containers[0].Container.Memory
	told := 0
	for second := range 3600 {
		s.Node.Memory.Available = 80*gib - int64(second)*3*mib - int64(second%20)*150*mib
		got, decisions := m.Step(s.tick())
		told += len(decisions)
		for _, r := range got.Reclaim {
			be.Current -= r.Bytes
			be.Cache -= r.Bytes
		}
		be.Current = min(be.Current+gib/4, got.BatchLimit)
		be.Cache = be.Current - be.Anon
	}
	if told > 60 {
		t.Errorf("%d decisions in an hour, for 13 GiB", told)
	}
}

// A single deviating measurement does not count as growth, because BE and the node are read one
// after the other.
func TestMemoryGrowthNeedsTwoLooks(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := newStage(80*gib, 60*gib)
	for i := range 20 {
		s.Node.Memory.Available = 80 * gib
		if i%2 == 1 {
			s.Node.Memory.Available = 77 * gib
		}
		if got, _ := m.Step(s.tick()); got.Headroom != gib {
			t.Fatalf("headroom %s", MemoryText(got.Headroom))
		}
	}
	s.Node.Memory.Available = 77 * gib
	m.Step(s.tick())
	got, _ := m.Step(s.tick())
	if got.Headroom < 8*gib {
		t.Errorf("a jump of 3 GiB that stays leaves a headroom of %s", MemoryText(got.Headroom))
	}
	for range 600 {
		got, _ = m.Step(s.tick())
	}
	if got.Headroom < 2*gib || got.Headroom > 5*gib/2 {
		t.Errorf("two half-lives later it is %s", MemoryText(got.Headroom))
	}
}

func TestMemoryStale(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*stage){
		"old":       func(s *stage) { s.Node.Memory.At = s.Now.Add(-4 * time.Second) },
		"unknown":   func(s *stage) { s.Node.Memory.At = time.Time{} },
		"in future": func(s *stage) { s.Node.Memory.At = s.Now.Add(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			s := newStage(80*gib, 60*gib, actor{uid: "be", class: workload.BE, anon: 10 << 10, cache: 10 << 10})
			before, _ := m.Step(&s.View)
			s.Node.Memory.Available, s.Node.Memory.Free = gib, 0
			for i := range 5 {
				s.tick()
				spoil(s)
				got, decisions := m.Step(&s.View)
				if got.BatchLimit != before.BatchLimit || got.Evict != nil || len(got.Reclaim) > 0 {
					t.Fatalf("decides: %+v", got)
				}
				if (len(decisions) == 1) != (i == 0) {
					t.Fatalf("step %d tells %v", i, decisions)
				}
			}
		})
	}
	for name, jump := range map[string]time.Duration{"back": -time.Hour, "ahead": time.Hour} {
		t.Run("clock "+name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			s := newStage(80*gib, 60*gib, actor{uid: "be", class: workload.BE, anon: 10 << 10, cache: 10 << 10})
			before, _ := m.Step(&s.View)
			m.Step(s.tick())
			s.Node.Memory.Available, s.Node.Memory.Free = gib, 0
			s.Now = s.Now.Add(jump)
			got, _ := m.Step(s.tick())
			if got.BatchLimit != before.BatchLimit || got.Evict != nil || len(got.Reclaim) > 0 {
				t.Errorf("decides on a jump: %+v", got)
			}
			if got, _ = m.Step(s.tick()); got.Evict == nil || len(got.Reclaim) == 0 {
				t.Errorf("and nothing a second later: %+v", got)
			}
		})
	}
}

// A falling limit stays above what BE holds and moves in bounded steps; memory is reclaimed only
// from containers that have it; nobody is evicted without need.
func TestMemoryProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newMemory()
		s := newStage(100*gib, 100*gib)
		n := rapid.IntRange(0, 5).Draw(t, "pods")
		for i := range n {
			s.add(actor{uid: string(rune('a' + i)), class: rapid.SampledFrom([]workload.Class{workload.BE, workload.LS}).Draw(t, "class")})
		}
		amount := rapid.Int64Range(0, 12<<10)
		limit := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			used, held := amount.Draw(t, "online")*5*mib, int64(0)
			for i := range s.Containers {
				c := &s.Containers[i].Container.Memory
				c.Anon, c.Cache = amount.Draw(t, "anon")*mib, amount.Draw(t, "cache")*mib
				c.Current, c.WorkingSet = c.Anon+c.Cache, c.Anon
				used += c.Anon
				if s.Containers[i].Class == workload.BE {
					held += c.Current
				}
			}
			s.Node.Memory.Available = max(0, 100*gib-used)
			s.Node.Memory.Free = rapid.Int64Range(0, s.Node.Memory.Available).Draw(t, "free")
			s.tick()
			s.Now = s.Now.Add(time.Duration(rapid.Int64Range(-5, 5).Draw(t, "jump")) * time.Second)
			if rapid.Bool().Draw(t, "measured") {
				s.measure()
			}
			got, _ := m.Step(&s.View)
			for _, r := range got.Reclaim {
				held -= r.Bytes
			}
			switch {
			case got.BatchLimit < limit && got.BatchLimit < held:
				t.Fatalf("lowered from %d to %d below %d", limit, got.BatchLimit, held)
			case limit > 0 && (got.BatchLimit > max(limit+10*gib+mib, got.Goal+mib) || limit-got.BatchLimit > 5*gib):
				t.Fatalf("from %s to %s in a step", MemoryText(limit), MemoryText(got.BatchLimit))
			case got.Headroom > 10*gib:
				t.Fatalf("headroom %s", MemoryText(got.Headroom))
			case got.Evict != nil && (got.Evict.Why == "" || got.Evict.Need <= 0):
				t.Fatalf("evicts without need: %+v", got.Evict)
			}
			limit = got.BatchLimit
			total := int64(0)
			for _, r := range got.Reclaim {
				total += r.Bytes
				i := strings.IndexByte("abcde", r.ID[0])
				if c := &s.Containers[i]; c.Class != workload.BE || r.Until < 0 || r.Bytes <= 0 || r.Until != c.Container.Memory.Current-r.Bytes {
					t.Fatalf("asks %+v of %+v", r, c)
				}
			}
			if total > 5*gib {
				t.Fatalf("asks for %s in a step", MemoryText(total))
			}
		}
	})
}

func TestMemoryAllocs(t *testing.T) {
	m := newMemory()
	noAllocs(t, crowd(), func(v *View) []Decision { _, d := m.Step(v); return d })
	// The same holds if the node stays short of memory and nothing can be done about it.
	m, s := newMemory(), newStage(25*gib, 20*gib)
	noAllocs(t, s, func(v *View) []Decision { _, d := m.Step(v); return d })
}

func BenchmarkMemory(b *testing.B) {
	m, s := newMemory(), crowd()
	b.ReportAllocs()
	for b.Loop() {
		m.Step(s.tick())
	}
}
