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
