package placement

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// settled is a request of a service or of batch work for one NUMA node.
func settled(class workload.Class, numa workload.NUMAPolicy, milli workload.MilliCPU) workload.Request {
	return workload.Request{Class: class, NUMA: numa, Milli: milli}
}

// homeOf returns where a container runs.
func homeOf(t *testing.T, l *Ledger, id string) (home, cpus, mems cpuset.Set) {
	t.Helper()
	h, ok := l.Holder(id)
	if !ok {
		t.Fatalf("%s is not in the ledger", id)
	}
	as, _ := l.Assignment(id)
	return h.Home, as.CPUs, h.Mems
}

// TestHomes fills a machine of two NUMA nodes with services that each run on one.
func TestHomes(t *testing.T) {
	t.Parallel()
	m := machine(t, "2 nodes 8 cores memory 64G")
	nodes := []cpuset.Set{m.Nodes[0].CPUs, m.Nodes[1].CPUs}
	most := workload.MilliCPU(nodes[0].Size()) * 1000
	l := New(Default(), m)
	place := func(id string, r workload.Request) error {
		_, err := l.Place(who(id), r, cpuset.Set{}, start)
		return err
	}
	for i, want := range []int{0, 1, 1, 0} { // the second has more, and then the first
		milli := []workload.MilliCPU{most / 2, most / 4, most / 4, most / 8}[i]
		id := fmt.Sprint("s", i)
		if err := place(id, settled(workload.LS, workload.NUMASingle, milli)); err != nil {
			t.Fatal(err)
		}
		if home, cpus, mems := homeOf(t, l, id); home != cpuset.Of(want) || cpus != nodes[want] || mems != cpuset.Of(want) {
			t.Errorf("%s is at home on %v, on CPUs %v and memory %v, want node %d", id, home, cpus, mems, want)
		}
	}
	err := place("large", settled(workload.LS, workload.NUMASingle, most))
	if err == nil || !strings.Contains(err.Error(), "no NUMA node has") || !strings.Contains(err.Error(), "numa.sluice.dev: prefer") {
		t.Errorf("%v", err)
	}
	if err := place("large", settled(workload.LS, workload.NUMAPrefer, most)); err != nil {
		t.Fatal(err)
	}
	if home, cpus, mems := homeOf(t, l, "large"); !home.IsEmpty() || !cpus.IsEmpty() || !mems.IsEmpty() {
		t.Errorf("without room it is at home on %v, on CPUs %v and memory %v", home, cpus, mems)
	}
	if err := place("job", settled(workload.BE, workload.NUMAPrefer, 0)); err != nil {
		t.Fatal(err)
	}
	if home, cpus, mems := homeOf(t, l, "job"); home.Size() != 1 || cpus.IsEmpty() || !mems.IsEmpty() {
		t.Errorf("batch work is at home on %v, on CPUs %v and memory %v", home, cpus, mems)
	}
	l.Release("s0")
	if home, _, _ := homeOf(t, l, "s1"); home != cpuset.Of(1) {
		t.Errorf("a service moves to node %v because another one has left", home)
	}
	if as, err := l.Resize("s1", settled(workload.LS, workload.NUMASingle, most/2), cpuset.Set{}); err != nil || as.CPUs != nodes[1] {
		t.Errorf("a resize moves it to %v: %v", as.CPUs, err)
	}
}

// A home is kept over a restart of the plugin, and pools with few CPUs there don't confine anyone.
func TestHomeIsKept(t *testing.T) {
	t.Parallel()
	m := machine(t, "2 nodes 8 cores memory 64G")
	l := New(Default(), m)
	if !l.Adopt(who("web"), settled(workload.LS, workload.NUMASingle, 2000), m.Nodes[1].CPUs, cpuset.Of(1), start) {
		t.Fatal("it is not adopted")
	}
	if home, cpus, mems := homeOf(t, l, "web"); home != cpuset.Of(1) || cpus != m.Nodes[1].CPUs || mems != cpuset.Of(1) {
		t.Errorf("home %v, CPUs %v, memory %v", home, cpus, mems)
	}
	pins := workload.Request{Class: workload.LSR, CPUs: m.Nodes[1].CPUs.Size() - 1}
	pins.CPUSet = cpuset.Difference(m.Nodes[1].CPUs, cpuset.Of(m.Nodes[1].CPUs.First()))
	if _, err := l.Place(who("pin"), pins, cpuset.Set{}, start); err != nil {
		t.Fatal(err)
	}
	as, _ := l.Assignment("web")
	if home, _, _ := homeOf(t, l, "web"); home != cpuset.Of(1) || as.CPUs != l.Shared() || !strings.Contains(as.Why, "its home, has only 1 of the pool's CPUs") {
		t.Errorf("beside a pin: %+v", as)
	}
	l.Release("pin")
	if _, cpus, _ := homeOf(t, l, "web"); cpus != m.Nodes[1].CPUs {
		t.Errorf("after the pin: %v", cpus)
	}
	l.SetMachine(without(m, m.Nodes[1].CPUs))
	if home, cpus, _ := homeOf(t, l, "web"); !home.IsEmpty() || !cpus.IsEmpty() {
		t.Errorf("with one node online: home %v, CPUs %v", home, cpus)
	}
}

// Nobody at home moves because others come and go, as long as the pool keeps its CPUs.
func TestHomesStay(t *testing.T) {
	t.Parallel()
	m := machine(t, "2 nodes 8 cores memory 64G")
	rapid.Check(t, func(t *rapid.T) {
		l := New(Default(), m)
		homes := map[string]cpuset.Set{}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "id"))
			class := rapid.SampledFrom([]workload.Class{workload.LS, workload.BE}).Draw(t, "class")
			r := settled(class, rapid.SampledFrom([]workload.NUMAPolicy{workload.NUMAPrefer, workload.NUMASingle}).Draw(t, "numa"), workload.MilliCPU(rapid.IntRange(0, 9000).Draw(t, "milli")))
			_, there := l.Holder(id)
			var err error
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				l.Release(id)
				delete(homes, id)
				continue
			case 1:
				if !there {
					continue
				}
				_, err = l.Resize(id, r, cpuset.Set{})
			default:
				if there {
					continue
				}
				_, err = l.Place(who(id), r, cpuset.Set{}, start)
			}
			for _, h := range l.Holders() {
				checkHome(t, l, h)
				if had := homes[h.ID]; h.ID != id && h.Home != had || h.ID == id && err == nil && !had.IsEmpty() && h.Home != had {
					t.Fatalf("step %d: %s moves from %v to %v", i, h.ID, had, h.Home)
				}
				homes[h.ID] = h.Home
			}
		}
	})
}

// An undone Place leaves nobody at another home.
func TestUndoRestoresHomes(t *testing.T) {
	t.Parallel()
	m := machine(t, "2 nodes 8 cores memory 64G")
	l := New(Default(), m)
	l.Adopt(who("web"), settled(workload.LS, workload.NUMASingle, 2000), m.Nodes[1].CPUs, cpuset.Of(1), start)
	l.Hold("web", start)
	pin := workload.Request{Class: workload.LSR, CPUs: m.Nodes[1].CPUs.Size(), CPUSet: m.Nodes[1].CPUs}
	if _, err := l.Place(who("pin"), pin, cpuset.Set{}, start); err != nil {
		t.Fatal(err)
	}
	if home, _, _ := homeOf(t, l, "web"); home != cpuset.Of(0) {
		t.Fatalf("beside the pin its home is %v", home)
	}
	l.Undo()
	if home, cpus, _ := homeOf(t, l, "web"); home != cpuset.Of(1) || cpus != m.Nodes[1].CPUs {
		t.Errorf("after the undo it is at home on %v, on CPUs %v", home, cpus)
	}
}

// A home is kept while the CPUs of the pools are not known yet, and those who lost theirs for want of room
// get one when there is room.
func TestHomesAreFoundAgain(t *testing.T) {
	t.Parallel()
	m := machine(t, "2 nodes 8 cores memory 64G")
	want := func(l *Ledger, id string, node int) {
		t.Helper()
		if h, _ := l.Holder(id); h.Home != cpuset.Of(node) || h.Mems != cpuset.Of(node) || h.Short != "" {
			t.Errorf("%s is at home on %q with memory %q, want %d; %s", id, h.Home, h.Mems, node, h.Short)
		}
	}
	web := settled(workload.LS, workload.NUMASingle, 2000)
	l := New(Default(), m)
	l.Adopt(who("web"), web, m.Nodes[1].CPUs, cpuset.Of(1), start)
	l.Hold("web", start)
	renamed := Config{Pools: []Pool{{Name: "services"}, {Name: "rest"}}}
	n, err := l.Reconfigured(renamed, map[string]RevisedRequest{"web": {Request: web}})
	if err != nil {
		t.Fatal(err)
	}
	want(n, "web", 1)

	apart := New(Config{Mode: Exclusive, Follow: true, Pools: []Pool{{Name: "online"}, {Name: "batch"}}}, m)
	apart.SetSizes([]int{4, 4})
	online := m.Nodes[0].CPUs // the pool is on the other node before anybody is found
	if apart.pools[0].Overlaps(online) {
		online = m.Nodes[1].CPUs
	}
	home := m.NodesOf(online).First()
	apart.DivideOnce(func() {
		apart.Adopt(who("web"), web, online, cpuset.Set{}, start)
		apart.Adopt(who("other"), workload.Request{Class: workload.LS}, online, cpuset.Set{}, start)
		for _, id := range []string{"web", "other"} {
			apart.Hold(id, start)
			apart.KeepMemory(id, cpuset.Of(home))
		}
	})
	want(apart, "web", home)

	beside := New(Default(), m)
	beside.DivideOnce(func() {
		cpus := cpuset.Union(m.Nodes[0].CPUs, cpuset.Of(m.Nodes[1].CPUs.First()))
		beside.Adopt(who("web"), web, cpus, cpuset.Of(1), start) // a pin had most of its home
		beside.Hold("web", start)
		beside.KeepMemory("web", cpuset.Of(1))
	})
	want(beside, "web", 1)

	// web loses its home while the other node has no room.
	if _, err := l.Place(who("full"), settled(workload.LS, workload.NUMASingle, 7000), cpuset.Set{}, start); err != nil {
		t.Fatal(err)
	}
	want(l, "full", 0)
	pin := workload.Request{Class: workload.LSR, CPUs: m.Nodes[1].CPUs.Size(), CPUSet: m.Nodes[1].CPUs}
	l.holders["full"].Request.Milli = 5000 // so that the pin is possible
	l.holders["web"].Request.Milli = 3500
	pin.CPUs--
	pin.CPUSet = cpuset.Difference(pin.CPUSet, cpuset.Of(pin.CPUSet.First()))
	if _, err := l.Place(who("pin"), pin, cpuset.Set{}, start); err != nil {
		t.Fatal(err)
	}
	l.SetExternal(cpuset.Of(m.Nodes[1].CPUs.First()))
	if h, _ := l.Holder("web"); !h.Home.IsEmpty() || !strings.Contains(h.Short, "no NUMA node has") {
		t.Errorf("without room its home is %v: %q", h.Home, h.Short)
	}
	l.SetExternal(cpuset.Set{})
	l.Release("pin")
	if h, _ := l.Holder("web"); h.Home != cpuset.Of(1) || h.Short != "" {
		t.Errorf("with room its home is %v: %q", h.Home, h.Short)
	}
}

// A container that requests nothing needs no room, and one whose memory is bound to a node is at home there.
func TestHomeByRequest(t *testing.T) {
	t.Parallel()
	m := machine(t, "2 nodes 8 cores memory 64G")
	l := New(Default(), m)
	for _, id := range []string{"x", "y"} {
		if _, err := l.Place(who(id), settled(workload.LS, workload.NUMASingle, 8000), cpuset.Set{}, start); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Place(who("debug"), settled(workload.LS, workload.NUMASingle, 0), cpuset.Set{}, start); err != nil {
		t.Errorf("beside others who request all: %v", err)
	}
	for node := range 2 {
		l := New(Default(), m)
		r := settled(workload.LS, workload.NUMAPrefer, 1000)
		r.MemoryNodes = workload.MemoryNodes{Policy: workload.MemoryListed, Nodes: cpuset.Of(node)}
		if _, err := l.Place(who("web"), r, cpuset.Set{}, start); err != nil {
			t.Fatal(err)
		}
		if home, _, _ := homeOf(t, l, "web"); home != cpuset.Of(node) {
			t.Errorf("with memory of node %d its home is %v", node, home)
		}
	}
}

// BenchmarkHomes divides a node whose containers have a home, or ask for one in vain.
func BenchmarkHomes(b *testing.B) {
	m := machine(b, "2 packages 4 nodes 32 cores 2 threads l3 8 cores")
	for _, milli := range []workload.MilliCPU{500, 70000} {
		b.Run(fmt.Sprint(milli), func(b *testing.B) {
			l := New(exclusive(), m)
			for i := range 500 {
				if _, err := l.Place(who(fmt.Sprint(i)), settled(workload.LS, workload.NUMAPrefer, milli), cpuset.Set{}, start); err != nil {
					b.Fatal(err)
				}
			}
			for i := 0; b.Loop(); i++ {
				l.SetSizes([]int{8 + i%2*4, 128, 1})
			}
		})
	}
}
