package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// assignments lists what all containers should have.
func assignments(l *Ledger) (text string) {
	for _, h := range l.Holders() {
		as, _ := l.Assignment(h.ID)
		text += fmt.Sprintln(h.ID, as.CPUs, as.Mems)
	}
	return text
}

// checkSeparations checks that a pod that is kept apart has what it requests, out of its pool, in whole cores where there
// are some, that no other container of an online pool runs there, and that the others have what they request, and
// at least half of the pool.
func checkSeparations(t *rapid.T, l *Ledger) {
	var all cpuset.Set
	for _, s := range l.Separations() {
		n, err := l.Separable(s.Pod)
		if (err == nil) != !s.CPUs.IsEmpty() || s.CPUs.Size() != n {
			t.Fatalf("%s has %v apart, and it can have %d: %v", s.Pod, s.CPUs, n, err)
		}
		if s.CPUs.Overlaps(all) {
			t.Fatalf("CPUs %v are set apart twice", cpuset.Intersect(s.CPUs, all))
		}
		all = cpuset.Union(all, s.CPUs)
	}
	for _, s := range l.Separations() {
		if s.CPUs.IsEmpty() {
			continue
		}
		var own, others workload.MilliCPU
		var pool cpuset.Set
		for _, h := range l.Holders() {
			if h.Pod == s.Pod {
				pool, own = l.pools[l.pool(&h.Request)], own+h.Request.Milli
			}
		}
		rest := cpuset.Difference(pool, all)
		if !s.CPUs.SubsetOf(pool) || workload.MilliCPU(s.CPUs.Size())*1000 < own || 2*rest.Size() < pool.Size() {
			t.Fatalf("%s, which requests %s, has CPUs %v of its pool %v, which others leave %v", s.Pod, own, s.CPUs, pool, rest)
		}
		for _, h := range l.Holders() {
			as, _ := l.Assignment(h.ID)
			apart := slices.ContainsFunc(l.Separations(), func(s Separation) bool { return s.Pod == h.Pod && !s.CPUs.IsEmpty() })
			switch {
			case h.Pod == s.Pod:
				if as.CPUs != s.CPUs {
					t.Fatalf("%s has CPUs %v, and its pod is apart on %v", h.ID, as.CPUs, s.CPUs)
				}
			case h.claim || h.Request.Class == workload.BE || h.Request.Class == workload.System:
			case l.orOnline(as.CPUs).Overlaps(s.CPUs):
				t.Fatalf("%s has CPUs %v, and %s is apart on %v", h.ID, as.CPUs, s.Pod, s.CPUs)
			case h.CPUs.IsEmpty() && !apart && l.pools[l.pool(&h.Request)].Overlaps(pool):
				others += h.Request.Milli
			}
		}
		if workload.MilliCPU(rest.Size())*1000 < others {
			t.Fatalf("%v is left of pool %v for others that request %s", rest, pool, others)
		}
	}
}

func service(milli workload.MilliCPU) workload.Request {
	return workload.Request{Class: workload.LS, Milli: milli}
}

// TestSeparate checks on a machine whose cores are 0 and 4, 1 and 5, and so on, which CPUs a pod gets that is kept apart,
// and which the others.
func TestSeparate(t *testing.T) {
	t.Parallel()
	batch := workload.Request{Class: workload.BE}
	critical := service(1000)
	critical.Pool = "critical"
	atHome := service(1000)
	atHome.NUMA = workload.NUMAPrefer
	exclusive := Config{Mode: Exclusive, Pools: []Pool{{Name: "critical", Size: Size{Count: 2}}, {Name: "online"}, {Name: "batch", Size: Size{Count: 2}}}}
	for name, c := range map[string]struct {
		machine string
		config  Config
		pods    map[string]workload.Request
		loud    string // CPUs of the pod that is to be kept apart
		web     string
		job     string
		why     string // part of why it can't be
	}{
		"overlap":               {"4 cores 2 threads", Default(), map[string]workload.Request{"loud": service(1500), "web": service(3000), "job": batch}, "0,4", "1-3,5-7", "", ""},
		"pools share all":       {"4 cores 2 threads", Default(), map[string]workload.Request{"loud": service(1500), "web": critical, "job": batch}, "0,4", "1-3,5-7", "", ""},
		"exclusive":             {"6 cores 2 threads", exclusive, map[string]workload.Request{"loud": service(1500), "web": service(1000), "job": batch}, "2,8", "3-5,9-11", "1,7", ""},
		"another pool":          {"6 cores 2 threads", exclusive, map[string]workload.Request{"loud": service(1500), "web": critical, "job": batch}, "2,8", "0,6", "1,7", ""},
		"without request":       {"4 cores 2 threads", Default(), map[string]workload.Request{"loud": service(0), "web": service(3000)}, "0,4", "1-3,5-7", "", ""},
		"more than half":        {"4 cores 2 threads", Default(), map[string]workload.Request{"loud": service(5000), "web": service(1000)}, "", "", "", "6 CPUs of its own would be more than half of the 8 of pool online"},
		"the others need more":  {"4 cores 2 threads", Default(), map[string]workload.Request{"loud": service(1500), "web": service(6500)}, "", "", "", "would leave 6 of pool online, whose other containers request 6.5"},
		"alone":                 {"4 cores 2 threads", Default(), map[string]workload.Request{"loud": service(1500)}, "0,4", "", "", ""},
		"batch work":            {"4 cores 2 threads", Default(), map[string]workload.Request{"loud": batch}, "", "", "", "is no service of an online pool"},
		"with CPUs of its own":  {"4 cores 2 threads", Default(), map[string]workload.Request{"loud": {Class: workload.LSR, CPUs: 2, Milli: 2000}}, "0,4", "", "", "is no service"},
		"at home on a node":     {"2 nodes 2 cores 2 threads", Default(), map[string]workload.Request{"loud": atHome, "web": service(1000)}, "0-1,4-5", "", "", "asks for a NUMA node"},
		"beside one at home":    {"2 nodes 2 cores 2 threads", Default(), map[string]workload.Request{"loud": service(1000), "web": atHome}, "", "0-1,4-5", "", "web/c, in the same pool, asks for a NUMA node"},
		"one core for each":     {"2 cores 2 threads", Default(), map[string]workload.Request{"loud": service(500), "web": service(500)}, "0,2", "1,3", "", ""},
		"a single core":         {"1 cores 2 threads", Default(), map[string]workload.Request{"loud": service(500), "web": service(500)}, "", "", "", "more than half"},
		"without hyperthreads":  {"4 cores", Default(), map[string]workload.Request{"loud": service(500), "web": service(500)}, "0", "1-3", "", ""},
		"pools share in part":   {"2 cores", Config{Mode: Overlap, Pools: []Pool{{Name: "critical", Size: Size{Count: 1}}, {Name: "api", Size: Size{Count: 1}}, {Name: "online"}, {Name: "batch"}}}, map[string]workload.Request{"loud": service(500), "web": critical}, "", "0", "", "which shares some of its CPUs with pool critical"},
		"without any container": {"4 cores", Default(), map[string]workload.Request{"web": service(500)}, "", "", "", "it has no container"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(c.config, machine(t, c.machine))
			for _, id := range []string{"web", "loud", "job"} {
				if r, ok := c.pods[id]; ok {
					if _, err := l.Place(who(id), r, cpuset.Set{}, start); err != nil {
						t.Fatal(err)
					}
				}
			}
			before := assignments(l)
			_, err := l.Separable("pod-loud")
			if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
				t.Errorf("why not: %v, want %q", err, c.why)
			}
			l.Separate([]string{"pod-loud"})
			if divided := l.Separations()[0].CPUs; divided.IsEmpty() != (c.why != "") {
				t.Errorf("apart on %v", divided)
			}
			for id, want := range map[string]string{"loud": c.loud, "web": c.web, "job": c.job} {
				if as, ok := l.Assignment(id); ok && (c.why == "" || want != "") && as.CPUs != cpuset.MustParse(want) {
					t.Errorf("%s has CPUs %v (%s), want %s", id, as.CPUs, as.Why, want)
				}
			}
			if l.Separate(nil); assignments(l) != before {
				t.Errorf("afterwards\n%sbefore\n%s", assignments(l), before)
			}
		})
	}
}

// TestSeparatedWhy checks what explains the CPUs of a pod that is kept apart, and those of the others.
func TestSeparatedWhy(t *testing.T) {
	t.Parallel()
	l := New(Default(), machine(t, "4 cores"))
	for _, id := range []string{"web", "loud"} {
		l.Place(who(id), service(1000), cpuset.Set{}, start)
	}
	l.Separate([]string{"pod-loud"})
	for id, want := range map[string]string{"loud": "LS in pool online, apart from its other pods", "web": "LS in pool online without the CPUs of pods that are kept apart"} {
		if as, _ := l.Assignment(id); as.Why != want {
			t.Errorf("%s: %q, want %q", id, as.Why, want)
		}
	}
	if !l.Divided() {
		t.Error("all containers have all CPUs")
	}
}

// TestSeparatedStays checks that a pod that is kept apart keeps its CPUs while others come and go, loses them while they
// are needed, and has its old ones after an Undo.
func TestSeparatedStays(t *testing.T) {
	t.Parallel()
	l := New(Default(), machine(t, "8 cores"))
	place := func(id string, r workload.Request) {
		t.Helper()
		if _, err := l.Place(who(id), r, cpuset.Set{}, start); err != nil {
			t.Fatal(err)
		}
	}
	has := func(want string) {
		t.Helper()
		if got := l.Separations()[0].CPUs; got != cpuset.MustParse(want) {
			t.Errorf("apart on %v, want %s", got, want)
		}
	}
	place("loud", service(2000))
	place("web", service(2000))
	l.Separate([]string{"pod-loud"})
	has("0-1")
	place("pin", workload.Request{Class: workload.LSR, CPUs: 1, Milli: 1000, CPUSet: cpuset.Of(0)})
	has("1-2")
	l.Undo()
	has("0-1")
	place("pin", workload.Request{Class: workload.LSR, CPUs: 1, Milli: 1000, CPUSet: cpuset.Of(7)})
	has("0-1")
	version := l.Version()
	place("large", service(3500))
	if has(""); l.Version() == version {
		t.Error("others do not get the CPUs")
	}
	l.Release("large")
	if l.Separations()[0].CPUs.Size() != 2 {
		t.Errorf("apart on %v although there is room again", l.Separations()[0].CPUs)
	}
	l.Release("loud")
	has("")
	if as, _ := l.Assignment("web"); as.CPUs != cpuset.MustParse("0-6") {
		t.Errorf("after its end another one has CPUs %v", as.CPUs)
	}
}

// TestFoundApart checks that a pool whose pods an earlier process kept apart has all of its CPUs after a restart.
func TestFoundApart(t *testing.T) {
	t.Parallel()
	config := Config{Mode: Exclusive, Follow: true, Pools: []Pool{{Name: "online"}, {Name: "batch"}}}
	found := map[string]cpuset.Set{"a": cpuset.MustParse("0-1"), "b": cpuset.MustParse("2-5"), "c": cpuset.MustParse("2-5"), "job": cpuset.MustParse("6-7")}
	for _, order := range [][]string{{"a", "b", "c", "job"}, {"b", "a", "c", "job"}, {"job", "c", "b", "a"}} {
		l := New(config, machine(t, flat))
		l.DivideOnce(func() {
			for _, id := range order {
				r := service(1000)
				if id == "job" {
					r = workload.Request{Class: workload.BE}
				}
				l.Adopt(who(id), r, found[id], cpuset.Set{}, start)
			}
		})
		if got := l.Pools(); got[0].CPUs != cpuset.MustParse("0-5") || got[1].CPUs != cpuset.MustParse("6-7") {
			t.Errorf("%v: pools %v", order, got)
		}
		l.Separate([]string{"pod-a"})
		before := l.Separations()[0].CPUs
		again := l.WithoutContainers()
		again.DivideOnce(func() {
			for _, id := range order {
				h, _ := l.Holder(id)
				as, _ := l.Assignment(id)
				again.Adopt(who(id), h.Request, as.CPUs, cpuset.Set{}, start)
			}
		})
		if assignments(again) != assignments(l) || again.Separations()[0].CPUs != before || !slices.Equal(again.Sizes(), l.Sizes()) {
			t.Errorf("%v: after a reconnection\n%sbefore\n%s", order, assignments(again), assignments(l))
		}
	}
}

// TestSeparatedStaysBesideAnother checks that a pod that is kept apart keeps its CPUs while another one gets some, in
// whatever order they are named, and while the other one grows.
func TestSeparatedStaysBesideAnother(t *testing.T) {
	t.Parallel()
	l := New(Default(), machine(t, "12 cores"))
	place := func(pod, container string) {
		t.Helper()
		if _, err := l.Place(Identity{ID: pod + container, Pod: pod, Container: container}, service(1000), cpuset.Set{}, start); err != nil {
			t.Fatal(err)
		}
	}
	for _, pod := range []string{"a", "b", "web"} {
		place(pod, "c")
	}
	l.Separate([]string{"b"})
	before, _ := l.Assignment("bc")
	check := func(when string, a int) {
		t.Helper()
		as, _ := l.Assignment("ac")
		if after, _ := l.Assignment("bc"); after.CPUs != before.CPUs || as.CPUs.Size() != a || as.CPUs.Overlaps(after.CPUs) {
			t.Errorf("%s: b was on %v and is on %v, a is on %v", when, before.CPUs, after.CPUs, as.CPUs)
		}
	}
	l.Separate([]string{"a", "b"})
	check("another one is kept apart", 1)
	place("a", "d")
	check("it grows", 2)
	l.Separate([]string{"b", "a"})
	check("another order", 2)
	if l.Separate([]string{"b"}); len(l.Separations()) != 1 {
		t.Errorf("apart are %v", l.Separations())
	}
}

// TestSeparatedMemory checks that memory follows the CPUs when pods that come and go decide whether a pod can be kept
// apart.
func TestSeparatedMemory(t *testing.T) {
	t.Parallel()
	l := New(Default(), machine(t, "2 nodes 4 cores memory 8G"))
	local := service(2000)
	local.MemoryNodes.Policy = workload.MemoryLocal
	l.Place(who("loud"), local, cpuset.Set{}, start)
	l.Place(who("web"), service(1000), cpuset.Set{}, start)
	l.Separate([]string{"pod-loud"})
	has := func(want string) {
		t.Helper()
		h, _ := l.Holder("loud")
		if as, _ := l.Assignment("loud"); l.machine.NodesOf(l.orOnline(as.CPUs)) != cpuset.MustParse(want) || h.Mems != cpuset.MustParse(want) {
			t.Errorf("loud is on CPUs %v with memory nodes %v, want nodes %s", as.CPUs, h.Mems, want)
		}
	}
	has("0")
	l.Place(who("large"), service(6000), cpuset.Set{}, start)
	has("0-1")
	l.Release("large")
	has("0")
}
