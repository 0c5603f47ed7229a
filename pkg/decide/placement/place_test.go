package placement

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func set(t testing.TB, text string) cpuset.Set {
	t.Helper()
	s, err := cpuset.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func place(t testing.TB, l *Ledger, name string, r workload.Request) Assignment {
	t.Helper()
	as, err := l.Place(who(name), r, cpuset.Set{}, start)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return as
}

// TestMemoryNodes has the CPUs 0-3 on node 0, 4-7 on node 1 and so on. Each node has 8 GiB unless
// the machine says otherwise.
func TestMemoryNodes(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for name, c := range map[string]struct {
		machine string
		before  int64 // memory guarantee of an existing pin on node 0
		request workload.MemoryNodes
		memory  int64
		want    string
		refused string
	}{
		"fits":                    {machine: "2 packages 2 nodes 4 cores memory 8G", memory: 8 * gib, want: "0"},
		"unknown":                 {machine: "2 packages 2 nodes 4 cores memory 8G", want: "0"},
		"widens to the nearest":   {machine: "2 packages 2 nodes 4 cores memory 8G", memory: 9 * gib, want: "0-1"},
		"widens to what is left":  {machine: "2 packages 2 nodes 4 cores memory 8G", memory: 17 * gib, want: "0-2"},
		"beside another":          {machine: "2 packages 2 nodes 4 cores memory 8G", before: 5 * gib, memory: 4 * gib, want: "0-1"},
		"all":                     {machine: "2 nodes 4 cores memory 8G", memory: 16 * gib, want: ""},
		"more than all":           {machine: "2 nodes 4 cores memory 8G", memory: 99 * gib, want: ""},
		"no memory at the CPUs":   {machine: "2 packages 2 nodes 4 cores memory 8G node 0 memory 0", memory: gib, want: "1"},
		"no CPUs, not needed":     {machine: "2 packages 4 cores memory 8G memory-nodes 1 64G", memory: 8 * gib, want: "0"},
		"no CPUs, after the fast": {machine: "2 packages 4 cores memory 8G memory-nodes 1 64G", memory: 16 * gib, want: "0-1"},
		"no CPUs, needed":         {machine: "2 packages 4 cores memory 8G memory-nodes 1 64G", memory: 17 * gib, want: ""},
		"any":                     {machine: "2 nodes 4 cores memory 8G", request: workload.MemoryNodes{Policy: workload.MemoryAny}, memory: gib, want: ""},
		"listed":                  {machine: "2 packages 2 nodes 4 cores memory 8G", request: workload.MemoryNodes{Policy: workload.MemoryListed, Nodes: cpuset.Of(2, 3)}, memory: 16 * gib, want: "2-3"},
		"listed, too small":       {machine: "2 packages 2 nodes 4 cores memory 8G", request: workload.MemoryNodes{Policy: workload.MemoryListed, Nodes: cpuset.Of(2)}, memory: 9 * gib, refused: "no room"},
		"listed, taken":           {machine: "2 packages 2 nodes 4 cores memory 8G", before: 5 * gib, request: workload.MemoryNodes{Policy: workload.MemoryListed, Nodes: cpuset.Of(0)}, memory: 4 * gib, refused: "no room"},
		"listed, does not exist":  {machine: "2 nodes 4 cores memory 8G", request: workload.MemoryNodes{Policy: workload.MemoryListed, Nodes: cpuset.Of(1, 7)}, refused: "memory nodes 7"},
		"listed, without memory":  {machine: "2 packages 2 nodes 4 cores memory 8G node 0 memory 0", request: workload.MemoryNodes{Policy: workload.MemoryListed, Nodes: cpuset.Of(0)}, refused: "memory nodes 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(Default(), machine(t, c.machine))
			r := pinned(workload.LSR, 2)
			if c.before > 0 {
				r.Memory = c.before
				place(t, l, "before", r)
			}
			r.Memory, r.MemoryNodes = c.memory, c.request
			before := describe(l)
			as, err := l.Place(who("pin"), r, cpuset.Set{}, start)
			switch {
			case c.refused == "" && (err != nil || as.Mems != set(t, c.want)):
				t.Errorf("on %s, %v, want %q", as.Mems, err, c.want)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("got %v, want %q", err, c.refused)
			case c.refused != "" && describe(l) != before:
				t.Error("a refusal changed the ledger")
			}
		})
	}
}

func TestPools(t *testing.T) {
	t.Parallel()
	sized := func(critical, online, batch Size) []Pool {
		return []Pool{{Name: "critical", Size: critical}, {Name: "online", Size: online}, {Name: "batch", Size: batch}}
	}
	for name, c := range map[string]struct {
		machine string
		config  Config
		pin     int
		want    [3]string
	}{
		"no sizes":             {flat, Config{Pools: sized(Size{}, Size{}, Size{})}, 0, [3]string{"0-7", "0-7", "0-7"}},
		"beside a pin":         {flat, Config{Pools: sized(Size{}, Size{}, Size{})}, 2, [3]string{"2-7", "2-7", "2-7"}},
		"count":                {flat, Config{Pools: sized(Size{Count: 2}, Size{}, Size{})}, 0, [3]string{"0-1", "2-7", "0-7"}},
		"percent, whole cores": {"4 cores 2 threads", Config{Pools: sized(Size{Percent: 30}, Size{}, Size{})}, 0, [3]string{"0-1,4-5", "2-3,6-7", "0-7"}},
		"set":                  {flat, Config{Pools: sized(Size{Set: cpuset.Of(3, 4)}, Size{}, Size{})}, 0, [3]string{"3-4", "0-2,5-7", "0-7"}},
		"sized batch overlaps": {flat, Config{Pools: sized(Size{}, Size{}, Size{Count: 3})}, 0, [3]string{"0-7", "0-7", "0-2"}},
		"exclusive":            {flat, Config{Mode: Exclusive, Pools: sized(Size{Count: 2}, Size{}, Size{Count: 3})}, 0, [3]string{"0-1", "5-7", "2-4"}},
		"exclusive, rest":      {flat, Config{Mode: Exclusive, Pools: sized(Size{Count: 2}, Size{Count: 2}, Size{})}, 0, [3]string{"0-1", "2-3", "4-7"}},
		"each keeps a core":    {flat, Config{Mode: Exclusive, Pools: sized(Size{Count: 8}, Size{}, Size{Count: 2})}, 0, [3]string{"0-5", "7", "6"}},
		"reserved and system":  {flat, Config{Reserved: cpuset.Of(0), System: cpuset.Of(7), Pools: sized(Size{}, Size{}, Size{})}, 0, [3]string{"1-6", "1-6", "1-6"}},
		"sizes leave to pins":  {flat, Config{Pools: sized(Size{Count: 2}, Size{}, Size{})}, 2, [3]string{"0-1", "4-7", "0-1,4-7"}},
		"one pool":             {flat, Config{Pools: []Pool{{Name: "online"}}}, 2, [3]string{"2-7"}},
		"one pool, sized":      {flat, Config{Pools: []Pool{{Name: "online", Size: Size{Count: 3}}}}, 0, [3]string{"0-2"}},
		"one pool, exclusive":  {flat, Config{Mode: Exclusive, Pools: []Pool{{Name: "online"}}}, 2, [3]string{"2-7"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(c.config, machine(t, c.machine))
			if c.pin > 0 {
				place(t, l, "pin", pinned(workload.LSR, c.pin))
			}
			for i, p := range l.Pools() {
				if p.CPUs != set(t, c.want[i]) {
					t.Errorf("%s is %s, want %s", p.Name, p.CPUs, c.want[i])
				}
			}
		})
	}
}

// TestPoolsMoveLittle checks that a pool of unchanged size keeps its CPUs when pins come and go
// elsewhere, and that Undo restores everything.
func TestPoolsMoveLittle(t *testing.T) {
	t.Parallel()
	l := New(Config{Pools: []Pool{{Name: "critical", Size: Size{Count: 2}}, {Name: "online"}, {Name: "batch"}}}, machine(t, flat))
	explicit := pinned(workload.LSR, 2)
	explicit.CPUSet = cpuset.Of(0, 1)
	before := describe(l)
	place(t, l, "on the pool", explicit)
	moved := l.Pools()[0].CPUs
	if moved.Overlaps(explicit.CPUSet) || moved.Size() != 2 {
		t.Fatalf("critical is on %s", moved)
	}
	l.Undo()
	if after := describe(l); after != before {
		t.Errorf("before %s\nafter %s", before, after)
	}
	place(t, l, "on the pool", explicit)
	for range 3 {
		place(t, l, "a", pinned(workload.LSR, 3))
		l.Release("a")
		l.Release("on the pool")
		if got := l.Pools()[0].CPUs; got != moved {
			t.Fatalf("critical moved from %s to %s", moved, got)
		}
	}
}

func TestExplicitCPUs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cpus    string
		class   workload.Class
		smt     workload.SMTPolicy
		refused string
	}{
		"as asked":      {cpus: "4,6", class: workload.LSR},
		"whole core":    {cpus: "2,6", class: workload.LSE},
		"splits a core": {cpus: "2-3", class: workload.LSE, refused: "siblings 6-7"},
		"may split":     {cpus: "2-3", class: workload.LSE, smt: workload.SMTAny},
		"one per core":  {cpus: "2-3", class: workload.LSR, smt: workload.SMTOnePerCore},
		"sibling taken": {cpus: "2,5", class: workload.LSR, smt: workload.SMTOnePerCore, refused: "needs the siblings 1 without another pin: default/first/c holds 1"},
		"offline":       {cpus: "2,9", class: workload.LSR, refused: "CPUs 9 are not online"},
		"taken":         {cpus: "1-2", class: workload.LSR, refused: "default/first/c holds 1"},
		"reserved":      {cpus: "0,2", class: workload.LSR, refused: "0 are reserved"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(Config{Reserved: cpuset.Of(0), Pools: Default().Pools}, machine(t, "4 cores 2 threads"))
			first := pinned(workload.LSR, 1)
			first.CPUSet = cpuset.Of(1)
			place(t, l, "first", first)
			r := pinned(c.class, 2)
			r.CPUSet, r.SMT = set(t, c.cpus), c.smt
			as, err := l.Place(who("pin"), r, cpuset.Set{}, start)
			if c.refused == "" && (err != nil || as.CPUs != r.CPUSet) || c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("on %s, %v", as.CPUs, err)
			}
		})
	}
}

func TestExclusiveGroups(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		level workload.ExclusiveLevel
		group string
		want  string
	}{
		"not exclusive": {workload.NotExclusive, "a", "4"},
		"core":          {workload.ExclusiveCore, "a", "1"},
		"node":          {workload.ExclusiveNode, "a", "2"},
		"another group": {workload.ExclusiveNode, "b", "4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(Default(), machine(t, "2 nodes 2 cores 2 threads")) // cores 0,4 and 1,5 on node 0
			first := pinned(workload.LSR, 1)
			first.CPUSet, first.ExclusiveGroup = cpuset.Of(0), "a"
			place(t, l, "first", first)
			second := pinned(workload.LSR, 1)
			second.Exclusive, second.ExclusiveGroup = c.level, c.group
			if as := place(t, l, "second", second); as.CPUs != set(t, c.want) {
				t.Errorf("on %s, want %s", as.CPUs, c.want)
			}
		})
	}
}

func TestShortage(t *testing.T) {
	t.Parallel()
	l := New(Default(), machine(t, flat))
	place(t, l, "web", workload.Request{Class: workload.LS, Milli: 2500})
	place(t, l, "batch", workload.Request{Class: workload.BE, Milli: 9000})
	place(t, l, "db", pinned(workload.LSR, 4))
	for n, words := range map[int][]string{
		2: {"would leave 2", "need 3", "2.5 of CPU"},
		5: {"5 CPUs needed", "4 free (4-7)", "default/db/c (0-3)"},
	} {
		_, err := l.Place(who("x"), pinned(workload.LSR, n), cpuset.Set{}, start)
		if !IsShortage(err) {
			t.Fatalf("%d CPUs: %v", n, err)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q is not in: %v", w, err)
			}
		}
	}
	place(t, l, "x", pinned(workload.LSR, 1))
}

// TestAvoid checks that CPUs of a pending update are taken only if no others are suitable, and
// never by a running pin.
func TestAvoid(t *testing.T) {
	t.Parallel()
	l := New(Default(), machine(t, flat))
	avoid := cpuset.Range(0, 3)
	as, err := l.Place(who("a"), pinned(workload.LSR, 2), avoid, start)
	if err != nil || as.CPUs.Overlaps(avoid) {
		t.Errorf("on %s, %v", as.CPUs, err)
	}
	if as, err = l.Place(who("b"), pinned(workload.LSR, 4), avoid, start); err != nil {
		t.Errorf("on %s, %v", as.CPUs, err)
	}
	l.Release("b")
	if as, err := l.Resize("a", pinned(workload.LSR, 5), avoid); err == nil {
		t.Errorf("grew to %s", as.CPUs)
	}
	if as, err := l.Resize("a", pinned(workload.LSR, 4), avoid); err != nil || as.CPUs.Overlaps(avoid) {
		t.Errorf("on %s, %v", as.CPUs, err)
	}
}

func TestStale(t *testing.T) {
	t.Parallel()
	l := New(Default(), machine(t, flat))
	put := func(name, container string, class workload.Class, at time.Duration) {
		id := who(name)
		id.Pod, id.Container = "pod", container
		if _, err := l.Place(id, pinned(class, 1), cpuset.Set{}, start.Add(at)); err != nil {
			t.Fatal(err)
		}
	}
	put("old", "x", workload.LSR, 0)
	put("replaced", "y", workload.LSR, time.Minute)
	put("younger", "y", workload.LSR, 2*time.Minute)
	put("held", "z", workload.LSR, 0)
	put("ls", "v", workload.LS, 0)
	l.Hold("held", start.Add(time.Second))
	if got := strings.Join(l.Stale(who("next"), start.Add(3*time.Minute), 150*time.Second), " "); got != "old replaced" {
		t.Errorf("stale: %s", got)
	}
}
