package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

// plug takes all CPUs but these offline.
func (n *testNode) plug(online cpuset.Set) {
	n.t.Helper()
	text := n.text
	if off := cpuset.Difference(cpuset.Union(n.machine.Online, n.machine.Offline), online); !off.IsEmpty() {
		text += " offline " + off.String()
	}
	m, err := synth.Machine(text)
	if err != nil {
		n.t.Fatal(err)
	}
	n.kernel.unplug(online)
	n.machine = m
	n.agent.SetMachine(m)
}

func TestUnplugUnderPin(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.plug(cpuset.Of(0, 2, 3, 4, 5, 6, 7))
		n.expect(map[string]string{"db": "0,2", "web": "3-7"})
		if c := n.container("db"); strings.Contains(c.Why, "of 2") {
			t.Errorf("whole again, and still: %s", c.Why)
		}
		n.plug(cpuset.Range(0, 7))
		n.expect(map[string]string{"db": "0,2", "web": "1,3-7"})
		n.end("db")
		n.expect(map[string]string{"web": "all"})
	})
}

func TestPinDegradedAndWholeAgain(t *testing.T) {
	inBubble(t, setup{machine: "4 cores"}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 3)
		n.plug(cpuset.Of(0, 1, 3))
		n.expect(map[string]string{"db": "0-1", "web": "3"})
		if c := n.container("db"); !strings.Contains(c.Why, "2 of 3 CPUs") {
			t.Errorf("no reason in %q", c.Why)
		}
		n.plug(cpuset.Range(0, 3))
		n.expect(map[string]string{"db": "0-2", "web": "3"})
		if c := n.container("db"); strings.Contains(c.Why, "2 of 3") {
			t.Errorf("whole again, and still: %s", c.Why)
		}
	})
}

// TestMendWaitsForEvacuation checks that a pin which lost CPUs gets none that another container
// still uses.
func TestMendWaitsForEvacuation(t *testing.T) {
	inBubble(t, setup{machine: "4 cores"}, func(_ *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.plug(cpuset.Of(0, 3))
		n.expect(map[string]string{"db": "0", "web": "3"})
		n.kernel.refusing(refuseCPUs("web"))
		n.kernel.change("/kubepods/pod-web/web", func(g *group) { g.cpus = cpuset.Of(1, 2, 3) })
		n.plug(cpuset.Of(0, 1, 2, 3))
		n.expect(map[string]string{"db": "0"})
		n.kernel.refusing(nil)
		n.sleep(2 * time.Second)
		n.expect(map[string]string{"db": "0-1", "web": "2-3"})
	})
}

// TestMovingPinLeavesFirst checks that an LSE pin moves when it loses half of a core, and that
// others get the rest of that core only after the pin has left it.
func TestMovingPinLeavesFirst(t *testing.T) {
	inBubble(t, setup{machine: "4 cores 2 threads"}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSE", 2)
		n.expect(map[string]string{"db": "0,4", "web": "1-3,5-7"})
		n.kernel.took()
		n.plug(cpuset.MustParse("0-3,5-7")) // without CPU 4
		n.expect(map[string]string{"db": "1,5", "web": "0,2-3,6-7"})
		writes := n.kernel.took()
		moved := slices.Index(writes, "/kubepods/pod-db/db cpuset.cpus=1,5")
		taken := slices.Index(writes, "/kubepods/pod-web/web cpuset.cpus=0,2-3,6-7")
		if moved < 0 || taken < moved {
			t.Errorf("wrote %v", writes)
		}
	})
}

// TestUnplugAllOfAPin checks a pin whose last CPU goes offline: on cgroup v1 the kernel moves its
// processes to another cpuset, on v2 they stay.
func TestUnplugAllOfAPin(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.run(ask{name: "web/c", milli: 1000}, ask{name: "db/c", milli: 1000, annotations: map[string]string{"class.sluice.dev": "LSR"}})
		before := h.container("db/c").CPUs
		online := cpuset.Difference(h.o.Machine.Online, before)
		h.Plug(online)
		m, err := synth.Machine(twoNodes + " offline " + before.String())
		if err != nil {
			t.Fatal(err)
		}
		h.agent.SetMachine(m)
		for when := range 3 {
			db := h.container("db/c")
			if db.CPUs.Size() != 1 || db.CPUs.Overlaps(before) || db.State != placement.Held {
				t.Errorf("pass %d: db has CPUs %q, state %q", when, db.CPUs, db.State)
			}
			if got := h.container("web/c").CPUs; got.Overlaps(db.CPUs) {
				t.Errorf("pass %d: web is on %s, db on %s", when, got, db.CPUs)
			}
			if moved, err := h.spy.Rejoin(h.specs["db/c"].CgroupsPath); moved != 0 || err != nil {
				t.Errorf("pass %d: %d processes of db were not in its cpuset, %v", when, moved, err)
			}
			h.pass()
		}
	})
}

// TestPodAfterHotplug: cgroup v1 gives CPUs that came back to no set. The first pod of a class can be
// made on them all the same, also after a restart and where it came while the plugin was away.
func TestPodAfterHotplug(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		pin := ask{name: "db/c", milli: 1000, annotations: map[string]string{"class.sluice.dev": "LSR"}}
		h.run(ask{name: "web/c", milli: 1000}, pin)
		for _, text := range []string{" offline 4-5", ""} {
			m, err := synth.Machine(twoNodes + text)
			if err != nil {
				t.Fatal(err)
			}
			h.Plug(m.Online)
			h.agent.SetMachine(m)
		}
		has := func(name string) {
			t.Helper()
			if cpus := h.get(h.specs[name].CgroupsPath, "cpuset.cpus.effective", "cpuset.cpus"); !cpuset.MustParse("4-5").SubsetOf(cpuset.MustParse(cpus)) {
				t.Errorf("%s is on %s, without the CPUs that came back", name, cpus)
			}
		}
		h.run(ask{name: "job/c", qos: "besteffort"})
		has("job/c")
		h.restart("")
		h.make(h.record(ask{name: "late/c", qos: "burstable", milli: 100}))
		h.synchronize()
		has("late/c")
	})
}

// TestUnplugAllOfAPinForGood checks a pin whose last CPU goes offline while services request all others:
// it shares these until its CPU is back.
func TestUnplugAllOfAPinForGood(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.run(ask{name: "db/c", milli: 1000, annotations: map[string]string{"class.sluice.dev": "LSE"}})
		lost := h.container("db/c").CPUs
		rest := cpuset.Difference(h.o.Machine.Online, lost)
		h.run(ask{name: "web/c", milli: 1000 * rest.Size()})
		plug := func(online cpuset.Set, text string) {
			h.Plug(online)
			m, err := synth.Machine(text)
			if err != nil {
				t.Fatal(err)
			}
			h.agent.SetMachine(m)
		}
		plug(rest, twoNodes+" offline "+lost.String())
		for when := range 3 {
			set, err := h.spy.Read(h.specs["db/c"].CgroupsPath, knobs.CPUs)
			if db := h.container("db/c"); err != nil || !h.V2 && cpuset.Set(set.(knobs.CPUSet)) != rest || !strings.Contains(db.Why, "0 of 1 CPUs") {
				t.Errorf("pass %d: db is on %v, %v; %s", when, set, err, db.Why)
			}
			if moved, err := h.spy.Rejoin(h.specs["db/c"].CgroupsPath); moved != 0 || err != nil {
				t.Errorf("pass %d: %d processes of db were not in its cpuset, %v", when, moved, err)
			}
			h.pass()
		}
		plug(h.o.Machine.Online, twoNodes)
		h.pass()
		if db, web := h.container("db/c").CPUs, h.container("web/c").CPUs; db.Size() != 1 || web.Overlaps(db) {
			t.Errorf("db is on %s, web on %s", db, web)
		}
	})
}
