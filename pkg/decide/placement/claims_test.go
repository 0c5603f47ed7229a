package placement

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func claimOf(id string, node, cpus int, class workload.Class) Claim {
	return Claim{ID: "claim/" + id, Ref: "claim default/" + id, Class: class, CPUs: cpus, Domain: claim.Domain{Kind: claim.NUMA, Number: node}}
}

// What is listed as claimable is reserved, whichever claims take it and in whatever order, and a core is
// reserved for one claim. That holds for all kinds of devices, and beside claims that were reserved while
// CPUs were offline or while the devices were of another kind.
func TestClaimable(t *testing.T) {
	t.Parallel()
	machines := []*topology.Machine{machine(t, small), machine(t, flat), machine(t, "1 packages 2 nodes 4 cores 2 threads l3 2 cores"), machine(t, "6 cores 2 threads efficiency 4")}
	rapid.Check(t, func(t *rapid.T) {
		m := machines[rapid.IntRange(0, len(machines)-1).Draw(t, "machine")]
		config := Default()
		if rapid.Bool().Draw(t, "reserved") {
			config.Reserved, config.System = cpuset.Of(0), cpuset.Of(1)
		}
		off := cpuset.Of(rapid.SliceOfN(rapid.IntRange(5, m.Online.Last()), 0, 6).Draw(t, "off")...)
		l := New(config, without(m, off))
		if rapid.Bool().Draw(t, "external") {
			l.SetExternal(cpuset.Of(2, 3))
		}
		for i := range rapid.IntRange(0, 8).Draw(t, "containers") {
			l.Place(who(fmt.Sprint(i)), drawRequest(t), cpuset.Set{}, start) // Place refuses some of them
		}
		used := map[claim.Domain]int{}
		kind := rapid.SampledFrom([]claim.DomainKind{claim.NUMA, claim.L3, claim.Core})
		claimAll(t, l, kind.Draw(t, "earlier kind"), used, rapid.IntRange(0, 3).Draw(t, "before"))
		l.SetMachine(m)
		claimAll(t, l, kind.Draw(t, "kind"), used, 1<<10)
		var taken cpuset.Set
		for _, h := range l.Claims() {
			if m.Siblings(h.CPUs) != h.CPUs || h.Short != "" || h.CPUs.Overlaps(taken) || h.CPUs.Overlaps(l.Shared()) {
				t.Fatalf("%s is not alone on whole cores:\n%s", h.Ref, describe(l))
			}
			taken = cpuset.Union(taken, h.CPUs)
		}
		for _, h := range l.Holders() {
			if !h.claim && h.CPUs.Overlaps(taken) {
				t.Fatalf("%s has CPUs of a claim:\n%s", h.Ref, describe(l))
			}
		}
	})
}

// claimAll lets claims take what is listed until nothing is left, or so many times. used counts by domain
// what claims have asked for.
func claimAll(t *rapid.T, l *Ledger, kind claim.DomainKind, used map[claim.Domain]int, most int) {
	m := l.Machine()
	promised := l.Claimable(kind)
	listed := map[claim.Domain]bool{}
	for _, d := range promised {
		if listed[d.Domain] {
			t.Fatalf("%s is listed twice in %v", d, promised)
		}
		listed[d.Domain] = true
	}
	core := m.ThreadsPerCore()
	for range most {
		var open []Domain
		for _, d := range promised {
			if kind == claim.Core && d.Claimable > 0 && used[d.Domain] == 0 || kind != claim.Core && d.Claimable-used[d.Domain] >= core {
				open = append(open, d)
			}
		}
		if len(open) == 0 {
			break
		}
		d := rapid.SampledFrom(open).Draw(t, "domain")
		n := d.Claimable
		c := Claim{Ref: fmt.Sprint("claim default/", len(l.Claims())), Class: workload.LSR, Domain: d.Domain}
		if kind != claim.Core {
			n = core * rapid.IntRange(1, (d.Claimable-used[d.Domain])/core).Draw(t, "cores")
			c.CPUs = n
		}
		c.ID = c.Ref
		cpus, err := l.Reserve(c, start)
		if err != nil || cpus.Size() != n || !cpus.SubsetOf(d.CPUs) || m.Siblings(cpus) != cpus {
			t.Fatalf("promised %+v, used %v: a claim for %d of %s has %v: %v\n%s", promised, used, n, d, cpus, err, describe(l))
		}
		used[d.Domain] += n
		again := l.Claimable(kind)
		for i := range promised {
			if again[i] != promised[i] {
				t.Fatalf("claims change what is listed from %+v to %+v", promised[i], again[i])
			}
		}
	}
	if kind == claim.Core {
		for _, d := range promised {
			c := Claim{ID: "more", Ref: "claim default/more", Class: workload.LSR, Domain: d.Domain}
			if cpus, err := l.Clone().Reserve(c, start); used[d.Domain] > 0 && err == nil {
				t.Fatalf("%s is given to a second claim (%s):\n%s", d, cpus, describe(l))
			}
		}
	}
}

// TestClaims follows a claim from its reservation over the start, the restart and the end of its
// containers to its own end.
func TestClaims(t *testing.T) {
	t.Parallel()
	l := New(Default(), machine(t, small))
	c := claimOf("a", 1, 2, workload.LSE)
	cpus, err := l.Reserve(c, start)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := l.Reserve(c, start); err != nil || again != cpus {
		t.Errorf("the second time it has %v: %v", again, err)
	}
	for _, other := range []Claim{claimOf("a", 0, 2, workload.LSE), claimOf("a", 1, 4, workload.LSE), claimOf("a", 1, 2, workload.LSR)} {
		if _, err := l.Reserve(other, start); err == nil || !strings.Contains(err.Error(), "claim default/a still has 2 CPUs") || !strings.Contains(err.Error(), "end the pods") {
			t.Errorf("it was allocated anew as %+v: %v", other, err)
		}
	}
	if l.Shared().Overlaps(cpus) {
		t.Errorf("pools have %v", l.Shared())
	}
	r := workload.Request{Class: workload.LSE, CPUs: 2, Milli: 2000, Claims: []string{c.ID}, SMT: workload.SMTFullCore}
	version := l.Version()
	for _, name := range []string{"one", "two"} { // two containers of one claim share its CPUs
		if as, err := l.Place(who(name), r, cpuset.Set{}, start); err != nil || as.CPUs != cpus || !as.Unlimited {
			t.Errorf("%s has %+v: %v", name, as, err)
		}
	}
	l.Hold("one", start)
	if stale := l.Stale(who("x"), start.Add(time.Hour), time.Minute); len(stale) != 1 || stale[0] != "two" {
		t.Errorf("stale: %v, want the container that has not started, and not the claim", stale)
	}
	l.Release("one")
	l.Release("two")
	if l.Shared().Overlaps(cpus) {
		t.Error("the claim has lost its CPUs at the end of its containers")
	}
	if l.Version() != version {
		t.Error("containers of a claim change what others have")
	}

	restarted := New(Default(), machine(t, small))
	restarted.Restore(c, cpus, start)
	if again, err := restarted.Reserve(c, start); err != nil || again != cpus {
		t.Errorf("prepared again after a restart it has %v: %v", again, err)
	}
	if !restarted.Adopt(who("one"), r, cpus, cpuset.Set{}, start) {
		t.Error("the container is not adopted after a restart")
	}
	if synced := restarted.WithoutContainers(); synced.Shared().Overlaps(cpus) {
		t.Error("the claim is lost where the containers are entered anew")
	}
	if n, err := restarted.Reconfigured(Default(), map[string]RevisedRequest{"one": {Request: r}}); err != nil || n.Shared().Overlaps(cpus) {
		t.Errorf("the claim is lost at a reload: %v", err)
	}
	restarted.SetMachine(without(restarted.Machine(), cpus))
	if as, _ := restarted.Assignment("one"); as.CPUs.Overlaps(cpus) {
		t.Errorf("it runs on %v, which are offline", as.CPUs)
	}
	restarted.SetMachine(machine(t, small))
	if as, _ := restarted.Assignment("one"); as.CPUs != cpus {
		t.Errorf("after its CPUs are back it has %v, want %v", as.CPUs, cpus)
	}
	restarted.SetMachine(without(restarted.Machine(), cpuset.Difference(restarted.Machine().Online, cpus)))
	if h, _ := restarted.Claim(c.ID); !strings.Contains(h.Short, "the shared pools would have none") {
		t.Errorf("where only its CPUs are online, the claim %q", h.Short)
	}
	if h, _ := restarted.Holder("one"); h.Short != "claim default/a has none of its 2 CPUs, since so many CPUs are offline that the shared pools would have none" {
		t.Errorf("its container says %q", h.Short)
	}
	restarted.SetMachine(machine(t, small))
	if h, _ := restarted.Claim(c.ID); h.Short != "" || h.CPUs != cpus {
		t.Errorf("after all CPUs are back the claim has %s: %q", h.CPUs, h.Short)
	}
	restarted.Unreserve(c.ID)
	if as, _ := restarted.Assignment("one"); as.Unlimited || !cpus.SubsetOf(restarted.Shared()) {
		t.Errorf("after the claim's end it has %+v, and pools have %v", as, restarted.Shared())
	}
	if _, err := restarted.Place(who("late"), r, cpuset.Set{}, start); err == nil {
		t.Error("a container has CPUs of a claim that has ended")
	}
}

// A claim that was reserved while siblings of its CPUs were offline owns them when they are back: a later
// process knows that too, a reload is no reason to refuse them, and no pin gets one.
func TestClaimOwnsReturningSiblings(t *testing.T) {
	t.Parallel()
	whole := machine(t, small) // the cores of node 0 are CPUs 0 with 8, and 1 with 9
	half := without(whole, cpuset.Of(8, 9))
	c := claimOf("a", 0, 2, workload.LSE)
	r := workload.Request{Class: workload.LSE, CPUs: 2, Milli: 2000, Claims: []string{c.ID}}
	l := New(Default(), half)
	reserved, err := l.Reserve(c, start)
	if err != nil || reserved != cpuset.Of(0, 1) {
		t.Fatalf("it has %v: %v", reserved, err)
	}
	place(t, l, "one", r)
	l.SetMachine(whole)
	n, err := l.Reconfigured(Default(), map[string]RevisedRequest{"one": {Request: r}})
	if err != nil {
		t.Fatal(err)
	}
	later := New(Default(), whole)
	later.Restore(c, reserved, start)
	place(t, later, "one", r)
	want := cpuset.Of(0, 1, 8, 9)
	for name, l := range map[string]*Ledger{"the same ledger": l, "another configuration": n, "a later process": later} {
		if as, _ := l.Assignment("one"); as.CPUs != want || l.Shared().Overlaps(want) {
			t.Errorf("%s: it has %v, and the pools have %v", name, as.CPUs, l.Shared())
		}
		if again, err := l.Reserve(c, start); err != nil || again != want {
			t.Errorf("%s: prepared again, it has %v: %v", name, again, err)
		}
		if got := l.Claimable(claim.NUMA); got[0].Claimable != 2 { // what it asked for
			t.Errorf("%s: claims can have %v", name, got)
		}
	}
	l.SetMachine(without(whole, cpuset.Of(0, 1)))
	if h, _ := l.Claim(c.ID); h.CPUs != cpuset.Of(8, 9) || h.Short != "" {
		t.Errorf("with the siblings alone it has %v: %q", h.CPUs, h.Short)
	}
}
