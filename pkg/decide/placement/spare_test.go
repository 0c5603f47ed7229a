package placement

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

func apart(t interface{ Fatal(...any) }) *Ledger {
	m, err := synth.Machine("2 packages 16 cores 2 threads")
	if err != nil {
		t.Fatal(err)
	}
	config := Default()
	config.Mode, config.Follow = Exclusive, true
	return New(config, m)
}

func shares(class workload.Class, pool string) workload.Request {
	return workload.Request{Class: class, Pool: pool, Milli: 1000}
}

// TestSpareCPUs checks whose CPUs batch work has, and which a pool gives away first.
func TestSpareCPUs(t *testing.T) {
	t.Parallel()
	l := apart(t)
	for i, r := range []workload.Request{shares(workload.LS, "critical"), shares(workload.LS, "online"), shares(workload.BE, "")} {
		if _, err := l.Place(Identity{ID: fmt.Sprint(i)}, r, cpuset.Set{}, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	l.SetSizes([]int{16, 24, 24})
	l.SetSpare([]int{0, 8, 0})
	online, batch := l.Pools()[1], l.Pools()[2]
	if has, _ := l.Assignment("2"); online.Spare.Size() != 8 || has.CPUs != cpuset.Union(batch.CPUs, online.Spare) || has.Why != "BE in pool batch and on spare CPUs of other pools" {
		t.Errorf("batch work has %s (%s), its pool %s, and %s are spare", has.CPUs, has.Why, batch.CPUs, online.Spare)
	}
	if has, _ := l.Assignment("1"); has.CPUs != online.CPUs {
		t.Errorf("a service has %s, and its pool %s", has.CPUs, online.CPUs)
	}
	version := l.Version()
	l.SetSpare([]int{0, 8, 0})
	if l.Version() != version {
		t.Error("the same numbers made another division")
	}
	l.SetSizes([]int{16, 20, 28})
	if gone := cpuset.Difference(online.CPUs, l.Pools()[1].CPUs); !gone.SubsetOf(online.Spare) {
		t.Errorf("the pool gave %s away, and %s were spare", gone, online.Spare)
	}
	l.SetSizes(nil)
	if !l.Lent().IsEmpty() {
		t.Errorf("%s are lent without sizes", l.Lent())
	}
}

// TestSpareApart checks that batch work runs on none of the CPUs of a pod that is kept apart, and on as many spare ones
// as before.
func TestSpareApart(t *testing.T) {
	t.Parallel()
	l := apart(t)
	l.Place(who("web"), shares(workload.LS, "online"), cpuset.Set{}, start)
	l.Place(who("loud"), shares(workload.LS, "online"), cpuset.Set{}, start)
	l.SetSizes([]int{16, 24, 24})
	l.SetSpare([]int{0, 8, 0})
	check := func(when string, spare int) {
		t.Helper()
		if online, own := l.Pools()[1], l.Separations()[0].CPUs; own.IsEmpty() || own.Overlaps(l.Lent()) || online.Spare != l.Lent() || online.Spare.Size() != spare {
			t.Errorf("%s: apart on %s, spare are %s, lent %s", when, own, online.Spare, l.Lent())
		}
	}
	l.Separate([]string{"pod-loud"})
	check("apart", 8)
	l.SetSpare([]int{0, 24, 0})
	check("all are spare", 22)
	l.Place(Identity{ID: "more", Pod: "pod-loud"}, shares(workload.LS, "online"), cpuset.Set{}, start)
	l.Place(Identity{ID: "more yet", Pod: "pod-loud"}, shares(workload.LS, "online"), cpuset.Set{}, start)
	check("it grows", 20)
	l.SetSizes([]int{16, 20, 28})
	check("the pool shrinks", 16)
	if l.Separate(nil); l.Lent().Size() != 20 {
		t.Errorf("%s are lent afterwards", l.Lent())
	}
}

// TestSpareStays checks random divisions: spare CPUs are a pool's own, in whole cores and as many as
// wanted, and change no more than the numbers require.
func TestSpareStays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := apart(t)
		cores := func(name string) int { return 2 * rapid.IntRange(1, 10).Draw(t, name) }
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if sizes := []int{cores("critical"), cores("online")}; rapid.Bool().Draw(t, "sizes") {
				l.SetSizes([]int{sizes[0], sizes[1], 64 - sizes[0] - sizes[1]})
				continue
			}
			before := l.Pools()
			counts := []int{cores("spare") - 2, cores("spare") - 2, 0}
			l.SetSpare(counts)
			for i, p := range l.Pools() {
				if l.Sizes() == nil {
					counts[i] = 0
				}
				want := min(counts[i], p.CPUs.Size())
				if !p.Spare.SubsetOf(p.CPUs) || p.Spare.Size() != want || l.machine.Siblings(p.Spare) != p.Spare {
					t.Fatalf("of pool %s with CPUs %s, %s are spare, want %d", p.Name, p.CPUs, p.Spare, want)
				}
				if kept := cpuset.IntersectSize(before[i].Spare, p.Spare); kept < min(before[i].Spare.Size(), want) {
					t.Fatalf("of pool %s, %s were spare, %s are, and %d are wanted", p.Name, before[i].Spare, p.Spare, want)
				}
			}
		}
	})
}

// TestAdoptSpare checks that pools keep their CPUs over a restart, in whatever order their
// containers and batch work are found.
func TestAdoptSpare(t *testing.T) {
	t.Parallel()
	critical, online := cpuset.Range(0, 15), cpuset.Range(16, 31)
	found := map[string]struct {
		request workload.Request
		cpus    cpuset.Set
	}{
		"critical": {shares(workload.LS, "critical"), critical},
		"online":   {shares(workload.LS, "online"), online},
		"batch":    {shares(workload.BE, ""), cpuset.Range(24, 63)},
	}
	for _, order := range [][]string{{"batch", "critical", "online"}, {"critical", "online", "batch"}, {"online", "batch", "critical"}} {
		l := apart(t)
		l.DivideOnce(func() {
			for _, id := range order {
				f := found[id]
				l.Adopt(Identity{ID: id}, f.request, f.cpus, cpuset.Set{}, time.Time{})
			}
		})
		if p := l.Pools(); p[0].CPUs != critical || p[1].CPUs != online || p[2].CPUs != cpuset.Range(32, 63) {
			t.Errorf("in order %v, the pools have %v", order, p)
		}
	}
}

// checkSpare checks that spare CPUs are whole cores of their pool and that exactly these are lent.
func checkSpare(t interface {
	Helper()
	Fatalf(string, ...any)
}, l *Ledger) {
	t.Helper()
	var all cpuset.Set
	for _, p := range l.Pools() {
		if !p.Spare.SubsetOf(p.CPUs) {
			t.Fatalf("pool %s has %s, and %s of it are spare", p.Name, p.CPUs, p.Spare)
		}
		if beside := cpuset.Difference(l.machine.Siblings(p.Spare), p.Spare); !beside.IsEmpty() {
			t.Fatalf("%s of pool %s with CPUs %s are spare without their siblings %s; pins have %s", p.Spare, p.Name, p.CPUs, beside, l.Pinned())
		}
		all = cpuset.Union(all, p.Spare)
	}
	if l.Lent() != all {
		t.Fatalf("%s are lent, and %s are spare", l.Lent(), all)
	}
}

// TestSpareBesideAPin checks that batch work leaves the sibling of a pin's CPU, for which other cores
// of the pool become spare.
func TestSpareBesideAPin(t *testing.T) {
	t.Parallel()
	l := apart(t)
	l.SetSizes([]int{16, 24, 24})
	l.SetSpare([]int{0, 8, 0})
	spare := l.Pools()[1].Spare
	pin := workload.Request{Class: workload.LSR, CPUs: 1, CPUSet: cpuset.Of(spare.First())}
	if _, err := l.Place(Identity{ID: "pin"}, pin, cpuset.Set{}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	now := l.Pools()[1].Spare
	if checkSpare(t, l); now.Size() != 8 || cpuset.IntersectSize(now, spare) != 6 {
		t.Errorf("with a pin on %s, spare are %s, and %s were", pin.CPUSet, now, spare)
	}
}

// TestSpareHistory runs random operations on pools that lend CPUs, and checks after each that batch
// work has no CPU of a pin. What is taken back leaves no trace, and a reload keeps what is spare.
func TestSpareHistory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := apart(t)
		m, now, pins := l.Machine(), time.Time{}, 0
		l.SetSizes([]int{16, 24, 24})
		cores := func(name string) int { return 2 * rapid.IntRange(0, 12).Draw(t, name) }
		pin := func() (string, error) {
			pins, now = pins+1, now.Add(time.Second)
			id := fmt.Sprint(pins)
			r := workload.Request{Class: workload.LSR, CPUs: rapid.IntRange(1, 12).Draw(t, "cpus")}
			_, err := l.Place(Identity{ID: id}, r, cpuset.Set{}, now)
			return id, err
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				checkSpare(t, l)
				checkPools(t, l)
				if l.Lent().Overlaps(l.Pinned()) {
					t.Fatalf("%s are lent, and pins have %s", l.Lent(), l.Pinned())
				}
			},
			"sizes": func(*rapid.T) { l.SetSizes([]int{2 + cores("critical"), 2 + cores("online"), 2}) },
			"spare": func(*rapid.T) { l.SetSpare([]int{cores("critical"), cores("online"), 0}) },
			"pin":   func(*rapid.T) { pin() }, // a refusal changes nothing
			"end":   func(t *rapid.T) { l.Release(fmt.Sprint(rapid.IntRange(0, pins).Draw(t, "id"))) },
			"undo": func(t *rapid.T) {
				before := describe(l)
				if _, err := pin(); err != nil {
					return
				}
				if l.Undo(); describe(l) != before {
					t.Fatalf("before\n%s\nafter\n%s", before, describe(l))
				}
			},
			"hotplug": func(t *rapid.T) {
				gone := cpuset.Of(rapid.SliceOfN(rapid.IntRange(1, m.Online.Last()), 0, 8).Draw(t, "gone")...)
				l.SetMachine(without(m, gone))
				for _, id := range l.ShortPins() {
					before := fmt.Sprint(l.Pools())
					if l.Mend(id, cpuset.Set{}) && rapid.Bool().Draw(t, "fails") {
						if l.Undo(); fmt.Sprint(l.Pools()) != before {
							t.Fatalf("pools %s were %s", l.Pools(), before)
						}
					}
					if l.Lent().Overlaps(l.Pinned()) {
						t.Fatalf("%s are lent, and pins have or leave %s", l.Lent(), l.Pinned())
					}
					l.EndMove(id)
				}
			},
			"resize": func(t *rapid.T) {
				h, known := l.Holder(fmt.Sprint(rapid.IntRange(0, pins).Draw(t, "id")))
				if !known {
					return
				}
				r, before := h.Request, describe(l)
				r.CPUs = rapid.IntRange(1, 12).Draw(t, "cpus")
				if _, err := l.Resize(h.ID, r, cpuset.Set{}); err != nil || rapid.Bool().Draw(t, "stays") {
					return
				}
				if l.Undo(); describe(l) != before {
					t.Fatalf("before\n%s\nafter\n%s", before, describe(l))
				}
			},
			"claim": func(t *rapid.T) {
				l.Reserve(claimOf("c", rapid.IntRange(0, 1).Draw(t, "node"), 2*rapid.IntRange(1, 6).Draw(t, "cores"), workload.LSE), now)
			},
			"claim ends": func(*rapid.T) { l.Unreserve("claim/c") },
			"small": func(*rapid.T) { // less than a core for each pool is left
				l.SetMachine(without(m, cpuset.Range(rapid.IntRange(1, 5).Draw(t, "first"), m.Online.Last())))
			},
			"reload": func(t *rapid.T) {
				revised := map[string]RevisedRequest{}
				for _, h := range l.Holders() {
					revised[h.ID] = RevisedRequest{Request: h.Request}
				}
				n, err := l.Reconfigured(l.config, revised)
				if err != nil {
					return
				}
				if len(l.Holders()) == 0 && describe(n) != describe(l) {
					t.Fatalf("before\n%s\nafter\n%s", describe(l), describe(n))
				}
				l = n
			},
		})
	})
}

// TestSpareResynchronized checks that random pools and what is spare of them stay when the runtime or a
// new process of the plugin finds the containers, in whatever order.
func TestSpareResynchronized(t *testing.T) {
	t.Parallel()
	requests := map[string]workload.Request{
		"critical": shares(workload.LS, "critical"), "online": shares(workload.LS, "online"), "another": shares(workload.LS, "online"),
		"batch": shares(workload.BE, ""), "more": shares(workload.BE, ""),
	}
	rapid.Check(t, func(t *rapid.T) {
		l := apart(t)
		for _, id := range []string{"critical", "online", "another", "batch", "more"} {
			if _, err := l.Place(Identity{ID: id}, requests[id], cpuset.Set{}, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		cores := func(name string, least int) int { return 2 * rapid.IntRange(least, 10).Draw(t, name) }
		critical, online := cores("critical", 1), cores("online", 1)
		l.SetSizes([]int{critical, online, 64 - critical - online})
		l.SetSpare([]int{min(critical, cores("spare", 0)), min(online, cores("spare", 0)), 0})
		pin := workload.Request{Class: workload.LSR, CPUs: rapid.IntRange(1, 8).Draw(t, "pin")}
		pins, err := l.Place(Identity{ID: "pin"}, pin, cpuset.Set{}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		order := rapid.Permutation([]string{"critical", "online", "another", "batch", "more"}).Draw(t, "order")
		n, how := l.WithoutContainers(), "anew"
		if rapid.Bool().Draw(t, "restart") {
			n, how = apart(t), "after a restart"
		}
		n.DivideOnce(func() {
			if !n.Adopt(Identity{ID: "pin"}, pin, pins.CPUs, cpuset.Set{}, time.Time{}) {
				t.Fatal("the pin is not adopted")
			}
			for _, id := range order {
				has, _ := l.Assignment(id)
				n.Adopt(Identity{ID: id}, requests[id], has.CPUs, cpuset.Set{}, time.Time{})
			}
		})
		if before, after := fmt.Sprint(l.Pools()), fmt.Sprint(n.Pools()); after != before {
			t.Fatalf("found %s in order %v, the pools had %s, have %s", how, order, before, after)
		}
	})
}
