package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

func TestPinEvacuatesBeforeItIsCreated(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("batch", "BE", 0)
		n.expect(map[string]string{"web": "all", "batch": "all"})
		if got := n.kernel.took(); len(got) != 0 {
			t.Errorf("LS and BE got settings without a pin: %v", got)
		}
		if err := n.create("db", "LSR", 2); err != nil {
			t.Fatal(err)
		}
		n.expect(map[string]string{"web": "2-7", "batch": "2-7"})
		if err := n.begin("db"); err != nil {
			t.Fatal(err)
		}
		n.expect(map[string]string{"db": "0-1"})
		if !n.container("db").Unlimited || n.quota("/kubepods/pod-db/db") != "unlimited" {
			t.Error("the pin keeps its quota")
		}
		n.end("db")
		n.expect(map[string]string{"web": "all", "batch": "all"})
	})
}

// TestEvacuationFailure checks that a pin whose CPUs other containers can't leave changes nothing,
// not even in pools that had to move for it.
func TestEvacuationFailure(t *testing.T) {
	pools := placement.Config{Pools: []placement.Pool{{Name: "critical", Size: placement.Size{Count: 2}}, {Name: "online"}, {Name: "batch"}}}
	inBubble(t, setup{config: withPools(pools)}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("batch", "BE", 0)
		n.run("one", "LSR", 2)
		n.run("two", "LSR", 2)
		n.end("one")
		before := n.dump()
		for _, failing := range []string{"web", "batch"} {
			n.kernel.refusing(refuseCPUs(failing))
			err := n.create("db", "LSR", 4)
			n.kernel.refusing(nil)
			if err == nil || !strings.Contains(err.Error(), failing) || !strings.Contains(err.Error(), "can't be cleared") {
				t.Errorf("got %v, want a refusal that names %s", err, failing)
			}
			delete(n.kernel.groups, "/kubepods/pod-db")
			if after := n.dump(); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		}
		n.run("db", "LSR", 2)
	})
}

// TestEvacuationOnABusyKernel checks that a pin waits for a container whose move the kernel makes
// late, and for at most half a second for one that it doesn't make.
func TestEvacuationOnABusyKernel(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		late := func(c knobs.Change) error {
			if c.Knob != knobs.CPUs || !strings.HasSuffix(c.Object.Path, "web") {
				return nil
			}
			time.AfterFunc(200*time.Millisecond, func() {
				n.kernel.refusing(nil)
				if err := n.kernel.Apply([]knobs.Change{c}); err != nil {
					t.Error(err)
				}
			})
			return cgroupfs.ErrBusy
		}
		n.kernel.refusing(late)
		n.run("db", "LSR", 2)
		n.expect(map[string]string{"web": "2-7", "db": "0-1"})
		n.end("db")

		never := func(c knobs.Change) error {
			if strings.HasSuffix(c.Object.Path, "web") {
				return cgroupfs.ErrBusy
			}
			return nil
		}
		n.kernel.refusing(never)
		began := time.Now()
		if err := n.create("db", "LSR", 2); !errors.Is(err, cgroupfs.ErrBusy) || time.Since(began) > time.Second {
			t.Errorf("%v after %v, want a refusal within a second", err, time.Since(began))
		}
	})
}

// TestHalfFailedMove checks that if one setting of a container is written and another refused, the
// rollback starts from what the kernel shows.
func TestHalfFailedMove(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.pod("web", "LS", 1)
		n.pods["web"].Annotations["memory-nodes.sluice.dev"] = "local"
		n.run("web", "LS", 1)
		n.run("api", "LS", 1)
		before := n.dump()
		for name, fail := range map[string]func(){"error": func() {}, "panic": func() { panic("boom") }} {
			n.kernel.refusing(func(c knobs.Change) error {
				if c.Knob == knobs.Mems || strings.HasSuffix(c.Object.Path, "api") {
					fail()
					return errors.New("no")
				}
				return nil
			})
			err := n.create("db", "LSR", 4)
			n.kernel.refusing(nil)
			if err == nil {
				t.Fatalf("%s: placed", name)
			}
			n.kernel.remove("/kubepods/pod-db")
			if name == "panic" { // the pass finds out which writes were made
				n.pass()
			}
			if after := n.dump(); after != before {
				t.Errorf("%s: before:\n%s\nafter:\n%s", name, before, after)
			}
		}
	})
}

// TestOwnContainer checks that the runtime moves the plugin's own container off a pin's CPUs where
// the kernel lets only processes outside of the plugin's cgroup namespace do so. That is no error.
func TestOwnContainer(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("sluice", "LS", 0)
		n.run("web", "LS", 1)
		n.kernel.refusing(func(c knobs.Change) error {
			if strings.HasSuffix(c.Object.Path, "sluice") && c.Knob == knobs.CPUs {
				return cgroupfs.ErrNamespace
			}
			return nil
		})
		n.run("one", "LSR", 2)
		n.expect(map[string]string{"one": "0-1", "web": "2-7", "sluice": "2-7"})
		n.run("two", "LSR", 2)
		n.expect(map[string]string{"two": "2-3", "web": "4-7", "sluice": "4-7"})
		n.end("one")
		n.end("two")
		n.sleep(time.Minute)
		n.expect(map[string]string{"web": "all", "sluice": "all"})
		if st := n.status(); st.Counters.WriteErrors > 0 || st.Counters.Refused > 0 || n.log.count("Kernel refused a setting") > 0 {
			t.Errorf("it counts as an error: %+v", st.Counters)
		}
	})
}

// TestUnrelatedFailure checks that a container which can't be given more CPUs does not prevent a
// pin.
func TestUnrelatedFailure(t *testing.T) {
	inBubble(t, setup{}, func(_ *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("one", "LSR", 2)
		n.kernel.refusing(refuseCPUs("web"))
		n.end("one")
		n.expect(map[string]string{"web": "2-7"})
		n.run("two", "LSR", 2)
		n.expect(map[string]string{"web": "2-7", "two": "0-1"})
	})
}

func TestStartReasserts(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		if err := n.create("web", "LS", 1); err != nil {
			t.Fatal(err)
		}
		n.run("db", "LSR", 2)
		if err := n.begin("web"); err != nil {
			t.Fatal(err)
		}
		n.expect(map[string]string{"web": "2-7", "db": "0-1"})
	})
}

// TestStartOfUnknown checks that a container whose creation the plugin missed gets all of its
// settings at its start.
func TestStartOfUnknown(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.pod("db", "LSR", 2)
		n.pod("web", "LS", 1)
		for _, name := range []string{"db", "web"} {
			if err := n.begin(name); err != nil {
				t.Fatal(err)
			}
		}
		n.expect(map[string]string{"db": "0-1", "web": "2-7"})
	})
}

// TestStartFails checks starts for which the kernel refuses the container's settings.
func TestStartFails(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		if err := n.create("db", "LSR", 2); err != nil {
			t.Fatal(err)
		}
		n.kernel.refusing(refuseCPUs("db"))
		if err := n.begin("db"); err == nil {
			t.Error("started without its CPUs")
		}
		n.kernel.refusing(nil)
		n.expect(map[string]string{"web": "all"})
	})
}

func TestVerifiedAtStart(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		if err := n.create("db", "LSR", 2); err != nil {
			t.Fatal(err)
		}
		back := func(g *group) { g.cpus = n.kernel.online }
		n.kernel.change("/kubepods/pod-web/web", back)
		if err := n.begin("db"); err != nil {
			t.Fatal(err)
		}
		n.expect(map[string]string{"web": "2-7"})
		if got := n.container("web").Drift; got != 1 {
			t.Errorf("drift counted %d times", got)
		}
		if err := n.create("two", "LSR", 2); err != nil {
			t.Fatal(err)
		}
		n.kernel.change("/kubepods/pod-web/web", back)
		n.kernel.refusing(refuseCPUs("web"))
		if err := n.begin("two"); err == nil || !strings.Contains(err.Error(), "does not leave") {
			t.Errorf("got %v", err)
		}
	})
}

func TestRefusals(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 3)
		n.run("one", "LSR", 2)
		before := n.dump()
		for name, cpus := range map[string]int{"too much beside LS": 4, "more than there is": 9} {
			if err := n.create("big", "LSR", cpus); err == nil {
				t.Errorf("%s: placed", name)
			}
			n.kernel.remove("/kubepods/pod-big")
			delete(n.pods, "big")
		}
		if after := n.dump(); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		if got := n.status().Counters.Refused; got != 2 {
			t.Errorf("%d refusals counted", got)
		}
	})
}

// TestPanic checks that a panic fails only its own request and leaves the state as it was.
func TestPanic(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("one", "LSR", 1)
		n.pass()
		before := n.dump()
		boom := func(knobs.Change) error { panic("boom") }
		n.kernel.refusing(boom)
		err := n.create("db", "LSR", 2)
		resize := n.update("one", 3)
		n.kernel.refusing(nil)
		for _, err := range []error{err, resize} {
			if err == nil || !strings.Contains(err.Error(), "boom") {
				t.Errorf("got %v", err)
			}
		}
		n.kernel.remove("/kubepods/pod-db")
		n.pass()
		if after := n.dump(); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		if got := n.status().Counters.Panics; got < 2 {
			t.Errorf("%d panics counted", got)
		}
	})
}

// TestRefusalIsToldOnce checks that a setting which the kernel refuses is tried again at growing
// intervals, and logged only when the refusals begin or begin again.
func TestRefusalIsToldOnce(t *testing.T) {
	inBubble(t, setup{config: func(c *config.Config) { c.RecordUpdates.Enabled = false }}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		fail := func() int {
			n.kernel.refusing(func(knobs.Change) error { return errors.New("busy") })
			n.create("db", "LSR", 2)
			n.sleep(time.Minute)
			n.kernel.refusing(nil)
			return n.log.count("Kernel refused")
		}
		once := fail()
		if once != 1 {
			t.Errorf("told %d times in a minute", once)
		}
		n.run("other", "LSR", 2)
		if again := fail(); again <= once {
			t.Error("not told when it began anew")
		}
	})
}
