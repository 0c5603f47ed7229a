package placement

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

const (
	small = "2 packages 2 nodes 2 cores 2 threads memory 8G" // 16 CPUs, 4 nodes
	flat  = "8 cores"
)

func machine(t testing.TB, text string) *topology.Machine {
	t.Helper()
	m, err := synth.Machine(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func who(name string) Identity {
	return Identity{ID: name, Pod: "pod-" + name, Container: "c", Ref: "default/" + name + "/c"}
}

// TestInvariants runs random operations on a ledger and checks the invariants of the design after
// each: pins are disjoint, allocatable and whole; pools keep the CPUs that they are due; no set is
// empty; guarantees of memory are counted; a refusal changes nothing.
func TestInvariants(t *testing.T) {
	t.Parallel()
	machines := []*topology.Machine{machine(t, small), machine(t, flat), machine(t, "1 packages 2 nodes 4 cores 2 threads l3 2 cores")}
	configs := []Config{
		Default(),
		{Reserved: cpuset.Of(0), Pools: Default().Pools},
		{System: cpuset.Of(0, 1), Pools: []Pool{{Name: "critical", Size: Size{Count: 2}}, {Name: "online"}, {Name: "batch", Size: Size{Percent: 25}}}},
		{Mode: Exclusive, Pools: []Pool{{Name: "critical", Size: Size{Percent: 25}}, {Name: "online"}, {Name: "batch", Size: Size{Count: 2}}}},
		{Mode: Exclusive, Pools: []Pool{{Name: "online", Size: Size{Set: cpuset.Of(2, 3)}}, {Name: "batch", Size: Size{Count: 2}}}},
		{Pools: []Pool{{Name: "online"}}},
	}
	rapid.Check(t, func(t *rapid.T) {
		config := configs[rapid.IntRange(0, len(configs)-1).Draw(t, "config")]
		m := machines[rapid.IntRange(0, len(machines)-1).Draw(t, "machine")]
		l := New(config, m)
		now := start
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { checkInvariants(t, l) },
			"place": func(t *rapid.T) {
				now = now.Add(time.Second)
				id := fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "id"))
				if _, known := l.Holder(id); known {
					return
				}
				before := describe(l)
				if _, err := l.Place(who(id), drawRequest(t), cpuset.Set{}, now); err != nil && describe(l) != before {
					t.Fatalf("a refused placement changed the ledger: %v", err)
				}
			},
			"without": func(t *rapid.T) {
				ids := rapid.SliceOfN(rapid.StringMatching("[0-9]"), 1, 3).Draw(t, "ids")
				before, version := describe(l), l.Version()
				_, err := l.Without(ids, func() (Assignment, error) {
					return l.Place(who("new"), drawRequest(t), cpuset.Set{}, now)
				})
				if err == nil {
					checkInvariants(t, l)
					for _, id := range ids {
						if _, known := l.Holder(id); known {
							t.Fatalf("%s has its grant still", id)
						}
					}
					if l.Undo(); l.Version() == version {
						t.Fatal("Undo restores the version of another layout")
					}
				}
				if after := describe(l); after != before {
					t.Fatalf("error %v: before\n%s\nafter\n%s", err, before, after)
				}
			},
			"reserve": func(t *rapid.T) {
				id, before := fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "claim")), describe(l)
				class := rapid.SampledFrom([]workload.Class{workload.LSE, workload.LSR}).Draw(t, "class")
				node := rapid.SampledFrom(m.Nodes).Draw(t, "node").ID
				if _, err := l.Reserve(claimOf(id, node, rapid.IntRange(1, 6).Draw(t, "n"), class), now); err != nil && describe(l) != before {
					t.Fatalf("a refused reservation changed the ledger: %v", err)
				}
			},
			"unreserve": func(t *rapid.T) { l.Unreserve("claim/" + fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "claim"))) },
			"use": func(t *rapid.T) {
				r := workload.Request{Class: workload.LSR, Milli: 4000}
				for _, h := range l.Claims() {
					if rapid.Bool().Draw(t, "use") {
						r.Claims, r.CPUs = append(r.Claims, h.ID), r.CPUs+h.Request.CPUs
					}
				}
				id := fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "id"))
				if _, known := l.Holder(id); !known && len(r.Claims) > 0 {
					l.Place(who(id), r, cpuset.Set{}, now) // refused if all CPUs are offline
				}
			},
			"hold":    func(t *rapid.T) { l.Hold(fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "id")), now) },
			"release": func(t *rapid.T) { l.Release(fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "id"))) },
			"resize": func(t *rapid.T) {
				id := fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "id"))
				h, known := l.Holder(id)
				if !known {
					return
				}
				r, old, before := h.Request, h.CPUs, describe(l)
				r.CPUs = rapid.IntRange(1, 6).Draw(t, "n")
				r.Milli = workload.MilliCPU(r.CPUs) * 1000
				as, err := l.Resize(id, r, cpuset.Set{})
				switch {
				case err != nil && describe(l) != before:
					t.Fatalf("a refused resize changed the ledger: %v", err)
				case err == nil && r.Class.Pinned() && !old.SubsetOf(as.CPUs) && !as.CPUs.SubsetOf(old):
					t.Fatalf("resize moved %v to %v", old, as.CPUs)
				}
			},
			"sizes": func(t *rapid.T) {
				sizes := rapid.SliceOfN(rapid.IntRange(0, 12), 0, len(config.Pools)).Draw(t, "sizes")
				before, apart, version := l.Pools(), l.Separations(), l.Version()
				l.SetSizes(sizes)
				if (l.Version() != version) != (!slices.Equal(l.Pools(), before) || !slices.Equal(l.Separations(), apart)) {
					t.Fatalf("version %d after %d: pools were %v, are %v", l.Version(), version, before, l.Pools())
				}
				twin := l.Clone()
				if twin.SetSizes(nil); !slices.Equal(l.Sizes(), l.WithoutContainers().Sizes()) {
					t.Fatal("sizes don't outlive Clone and WithoutContainers")
				}
			},
			"keep memory": func(t *rapid.T) {
				nodes := cpuset.Of(rapid.SliceOfN(rapid.IntRange(0, len(m.Nodes)-1), 0, 2).Draw(t, "nodes")...)
				l.KeepMemory(fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "id")), nodes)
			},
			"reconfigure": func(*rapid.T) {
				revised := map[string]RevisedRequest{}
				for _, h := range l.Holders() {
					revised[h.ID] = RevisedRequest{Request: h.Request}
				}
				if n, err := l.Reconfigured(config, revised); err == nil {
					l = n
				}
			},
			"lend": func(t *rapid.T) {
				l.Lend(cpuset.Of(rapid.SliceOfN(rapid.IntRange(0, m.Online.Last()), 0, 8).Draw(t, "lent")...))
			},
			"separate": func(t *rapid.T) {
				var pods []string
				for _, id := range rapid.SliceOfNDistinct(rapid.IntRange(0, 13), 0, 3, rapid.ID).Draw(t, "apart") {
					pods = append(pods, who(fmt.Sprint(id)).Pod)
				}
				before, version := assignments(l), l.Version()
				l.Separate(pods)
				if after := assignments(l); after != before && l.Version() == version {
					t.Fatalf("the version is that of other assignments: before\n%s\nafter\n%s", before, after)
				}
				if version = l.Version(); len(pods) > 0 {
					if l.Separate(pods); l.Version() != version {
						t.Fatal("keeping the same pods apart changes something")
					}
				}
			},
			"hotplug": func(t *rapid.T) {
				gone := cpuset.Of(rapid.SliceOfN(rapid.IntRange(1, m.Online.Last()), 0, 3).Draw(t, "gone")...)
				l.SetMachine(without(m, gone))
				for _, id := range l.ShortPins() {
					l.Mend(id, cpuset.Set{})
					l.EndMove(id)
				}
			},
		})
	})
}

// TestMend removes CPUs from the machine and checks that a pin's other CPUs stay if they can. The
// machine's cores are 0 and 8, 1 and 9, and so on.
func TestMend(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		request workload.Request
		has     cpuset.Set // its CPUs before
		gone    cpuset.Set
		taken   cpuset.Set // CPUs of another pin
		want    cpuset.Set
	}{
		"what is left stays":                {workload.Request{Class: workload.LSR, CPUs: 3}, cpuset.Of(0, 1, 8), cpuset.Of(1), cpuset.Set{}, cpuset.Of(0, 8, 9)},
		"half a core moves to a whole one":  {workload.Request{Class: workload.LSE, CPUs: 2}, cpuset.Of(0, 8), cpuset.Of(8), cpuset.Set{}, cpuset.Of(1, 9)},
		"half a core stays without another": {workload.Request{Class: workload.LSE, CPUs: 2}, cpuset.Of(0, 8), cpuset.Of(8), cpuset.MustParse("1-6,9-14"), cpuset.Of(0)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine(t, small)
			l := New(Default(), m)
			if !l.Adopt(who("pin"), test.request, test.has, cpuset.Set{}, start) {
				t.Fatal("the pin is not adopted")
			}
			if n := test.taken.Size(); n > 0 && !l.Adopt(who("other"), workload.Request{Class: workload.LSR, CPUs: n}, test.taken, cpuset.Set{}, start) {
				t.Fatal("the other pin is not adopted")
			}
			l.SetMachine(without(m, test.gone))
			whole := l.Mend("pin", cpuset.Set{})
			if h, _ := l.Holder("pin"); whole && l.Shared().Overlaps(cpuset.Difference(cpuset.Intersect(test.has, l.machine.Online), h.CPUs)) {
				t.Errorf("shared CPUs %s have some that the pin has not left yet", l.Shared())
			}
			l.EndMove("pin")
			if h, _ := l.Holder("pin"); l.Shared().Overlaps(h.CPUs) || !cpuset.Difference(l.allocatable(), l.Pinned()).SubsetOf(l.Shared()) {
				t.Errorf("after the move %s are shared, the pin has %s", l.Shared(), h.CPUs)
			}
			if h, _ := l.Holder("pin"); h.CPUs != test.want || whole != (h.CPUs.Size() == test.request.CPUs) || whole != (h.Short == "") {
				t.Errorf("mended: %v, on CPUs %s (%q), want %s", whole, h.CPUs, h.Short, test.want)
			}
		})
	}
}

func drawRequest(t *rapid.T) workload.Request {
	r := workload.Request{
		Class:  rapid.SampledFrom([]workload.Class{workload.LSE, workload.LSR, workload.LS, workload.BE, workload.System}).Draw(t, "class"),
		Memory: rapid.Int64Range(0, 12<<30).Draw(t, "memory"),
	}
	r.MemoryNodes.Policy = rapid.SampledFrom([]workload.MemoryPolicy{workload.MemoryDefault, workload.MemoryLocal, workload.MemoryAny}).Draw(t, "memory nodes")
	r.CPUs = rapid.IntRange(1, 6).Draw(t, "n")
	r.Milli = workload.MilliCPU(r.CPUs) * 500
	if r.Class.Pinned() {
		r.Milli *= 2
		r.NUMA = rapid.SampledFrom([]workload.NUMAPolicy{workload.NUMAPrefer, workload.NUMASingle, workload.NUMASpread}).Draw(t, "numa")
		r.SMT = rapid.SampledFrom([]workload.SMTPolicy{workload.SMTDefault, workload.SMTAny, workload.SMTFullCore, workload.SMTOnePerCore}).Draw(t, "smt")
		r.Exclusive = rapid.SampledFrom([]workload.ExclusiveLevel{workload.NotExclusive, workload.ExclusiveCore, workload.ExclusiveNode}).Draw(t, "exclusive")
		r.ExclusiveGroup = rapid.SampledFrom([]string{"", "a"}).Draw(t, "group")
	} else {
		r.NUMA = rapid.SampledFrom([]workload.NUMAPolicy{workload.NUMADefault, workload.NUMAPrefer, workload.NUMASingle}).Draw(t, "numa")
	}
	return r
}

// without returns the machine with some CPUs offline.
func without(m *topology.Machine, gone cpuset.Set) *topology.Machine {
	left := *m
	left.Online = cpuset.Difference(m.Online, gone)
	left.CPUs = nil
	for _, c := range m.CPUs {
		if !gone.Contains(c.ID) {
			left.CPUs = append(left.CPUs, c)
		}
	}
	left.Cores = nil
	for _, c := range m.Cores {
		if c.CPUs = cpuset.Difference(c.CPUs, gone); !c.CPUs.IsEmpty() {
			left.Cores = append(left.Cores, c)
		}
	}
	left.L3s = nil
	for _, c := range m.L3s {
		if c.CPUs = cpuset.Difference(c.CPUs, gone); !c.CPUs.IsEmpty() {
			left.L3s = append(left.L3s, c)
		}
	}
	domains := func(in []topology.Domain) (out []topology.Domain) {
		for _, d := range in {
			if d.CPUs = cpuset.Difference(d.CPUs, gone); !d.CPUs.IsEmpty() {
				out = append(out, d)
			}
		}
		return out
	}
	left.Dies, left.Packages = domains(m.Dies), domains(m.Packages)
	left.Nodes = nil
	for _, n := range m.Nodes {
		n.CPUs = cpuset.Difference(n.CPUs, gone)
		left.Nodes = append(left.Nodes, n)
	}
	return topology.New(left)
}

// checkPromises compares what is counted as guaranteed on each memory node with what the holders have there.
func checkPromises(t *rapid.T, l *Ledger) {
	want := make([]int64, len(l.machine.Nodes))
	for _, h := range l.Holders() {
		for i := range want {
			if node := l.machine.Nodes[i]; h.Mems.Contains(node.ID) && node.MemoryBytes > 0 {
				want[i] += int64(float64(h.Request.Memory) * float64(node.MemoryBytes) / float64(l.machine.Memory(h.Mems)))
			}
		}
	}
	if !slices.Equal(l.promised, want) {
		t.Fatalf("%v is counted as guaranteed by node, and it is %v", l.promised, want)
	}
}

func checkInvariants(t *rapid.T, l *Ledger) {
	checkPromises(t, l)
	var pins cpuset.Set
	for _, h := range l.Holders() {
		if len(h.Request.Claims) > 0 {
			if cpus, _, err := l.claimed(&h.Request); h.CPUs != cpus || err != nil && h.Short == "" {
				t.Fatalf("%s has %v, its claims %v: %v", h.ID, h.CPUs, cpus, err)
			}
			continue
		}
		if h.CPUs.Overlaps(pins) {
			t.Fatalf("CPUs %v of %s are pinned twice", cpuset.Intersect(h.CPUs, pins), h.ID)
		}
		pins = cpuset.Union(pins, h.CPUs)
	}
	for _, h := range l.Holders() {
		if h.Request.SMT == workload.SMTOnePerCore && len(h.Request.Claims) == 0 && cpuset.Difference(l.machine.Siblings(h.CPUs), h.CPUs).Overlaps(pins) {
			t.Fatalf("%s has %v, one per core, and pins are on their siblings: %v", h.ID, h.CPUs, pins)
		}
	}
	if !pins.SubsetOf(l.allocatable()) {
		t.Fatalf("pins %v beyond what can be allocated, %v", pins, l.allocatable())
	}
	if l.Shared().IsEmpty() {
		t.Fatal("nothing is left to the shared pools")
	}
	if l.Shared() != cpuset.Difference(l.allocatable(), pins) {
		t.Fatalf("shared %v and pins %v do not make up %v", l.Shared(), pins, l.allocatable())
	}
	checkPools(t, l)
	checkSeparations(t, l)
	lendable := cpuset.Set{}
	for _, h := range l.Holders() {
		if h.Request.Class == workload.LSR && h.State == Held && l.config.Mode == Overlap && !h.claim && len(h.Request.Claims) == 0 {
			lendable = cpuset.Union(lendable, h.CPUs)
		}
	}
	if !l.Lent().SubsetOf(lendable) {
		t.Fatalf("%v is lent, and idle LSR pins have %v", l.Lent(), lendable)
	}
	for _, h := range l.Holders() {
		checkHome(t, l, h)
		as, _ := l.Assignment(h.ID)
		own, theirs := l.Shared(), pins // CPUs that all containers may have, and CPUs of pins
		if h.Request.Class == workload.BE {
			own, theirs = cpuset.Union(own, l.Lent()), cpuset.Difference(pins, l.Lent())
		}
		if as.CPUs.IsEmpty() && own != l.machine.Online {
			t.Fatalf("%s has all CPUs though some are not for it", h.ID)
		}
		if h.CPUs.IsEmpty() && as.CPUs.Overlaps(theirs) {
			t.Fatalf("%s shares pinned CPUs %v", h.ID, cpuset.Intersect(as.CPUs, pins))
		}
		if !h.Mems.IsEmpty() && h.Request.MemoryNodes.Policy == workload.MemoryDefault && h.Mems != l.machine.MemoryNodes() && l.machine.Memory(h.Mems) < h.Request.Memory {
			t.Fatalf("%s: nodes %v can't hold its guarantee", h.ID, h.Mems)
		}
	}
}

// checkHome checks that a container which is at home on a NUMA node runs there, as long as the pool has
// enough CPUs there, and that no other has a home.
func checkHome(t *rapid.T, l *Ledger, h *Holder) {
	if h.Home.IsEmpty() {
		return
	}
	as, _ := l.Assignment(h.ID)
	pool := l.pools[l.pool(&h.Request)]
	own := cpuset.Intersect(pool, l.nodeCPUs(h.Home))
	switch enough := workload.MilliCPU(own.Size())*1000 >= h.Request.Milli; {
	case !l.wantsHome(h) || h.Home.Size() != 1 || own.IsEmpty():
		t.Fatalf("%+v is at home on node %v, where its pool has CPUs %v", *h, h.Home, own)
	case enough && !l.orOnline(as.CPUs).SubsetOf(l.nodeCPUs(h.Home)):
		t.Fatalf("%s has CPUs %v, and its home has %v of its pool", h.ID, as.CPUs, own)
	case !enough && !pool.SubsetOf(l.orOnline(as.CPUs)):
		t.Fatalf("%s has CPUs %v, and its home has only %v of its pool %v", h.ID, as.CPUs, own, pool)
	}
}

func checkPools(t *rapid.T, l *Ledger) {
	partition := len(l.pools)
	if l.config.Mode == Overlap {
		partition--
	}
	for i, pool := range l.pools {
		if pool.IsEmpty() || !pool.SubsetOf(l.Shared()) {
			t.Fatalf("pool %d is %v, shared is %v", i, pool, l.Shared())
		}
		for j := range min(i, partition) {
			other := l.pools[j]
			sized := l.follows() || l.config.Pools[i].Size != Size{} && l.config.Pools[j].Size != Size{}
			if i < partition && sized && other.Overlaps(pool) && other != l.Shared() && pool != l.Shared() {
				t.Fatalf("pools %d and %d overlap: %v and %v", i, j, pool, other)
			}
		}
	}
}

func describe(l *Ledger) string {
	text := fmt.Sprint(l.Pools(), l.Shared(), l.Separations())
	for _, h := range l.Holders() {
		text += fmt.Sprintf("%+v", *h)
	}
	return text
}
