package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// runtimesThatRunRefused runs a test with CRI-O, which is known to run refused containers, and
// with a runtime that is only found out by its behaviour.
func runtimesThatRunRefused(t *testing.T, s setup, test func(t *testing.T, n *testNode)) {
	for _, name := range []string{"cri-o", "another"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, s, func(t *testing.T, n *testNode) {
				n.runsRefused = true
				n.agent.Connected(n.runtime, status.Runtime{Name: name}, "its NRI is too old")
				n.synchronize()
				test(t, n)
			})
		})
	}
}

// TestRefusedStartRuns checks that a container which runs although its start was refused shares
// CPUs, that nobody gets these as its own before the container has left them, and that the status
// has a warning. The container gets its own CPUs as soon as others leave them.
func TestRefusedStartRuns(t *testing.T) {
	runtimesThatRunRefused(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		if err := n.create("db", "LSR", 2); err != nil {
			t.Fatal(err)
		}
		n.kernel.change("/kubepods/pod-web/web", func(g *group) { g.cpus = n.kernel.online })
		n.kernel.refusing(refuseCPUs("web"))
		if err := n.begin("db"); err == nil || !strings.Contains(err.Error(), "does not leave") {
			t.Fatalf("started: %v", err)
		}
		if err := n.create("next", "LSR", 2); err == nil {
			t.Error("next was given CPUs that others are on")
		}
		n.sleep(2 * refusalTime)
		db := n.container("db")
		if len(db.Warnings) != 1 || !strings.Contains(db.Warnings[0], "its start was refused, and the runtime runs it all the same") || db.Pool == "" {
			t.Errorf("db is told of as %q in pool %q", db.Warnings, db.Pool)
		}
		if got := n.quota(n.specs["db"].CgroupsPath); got != "2 CPUs" {
			t.Errorf("the quota of db is %s, want its own", got)
		}
		if got := n.status().Counters.RanRefused; got != 1 {
			t.Errorf("counted %d times", got)
		}
		n.kernel.refusing(nil)
		n.run("next", "LSR", 2)
		n.apart("next", "db", "web")
		n.pass()
		n.apart("next", "db", "web")
		n.apart("db", "web")
		if got := n.quota(n.specs["db"].CgroupsPath); got != "unlimited" {
			t.Errorf("the quota of db is %s, and it has CPUs of its own", got)
		}
		n.end("db")
		n.end("next")
		n.expect(map[string]string{"web": "all"})
	})
}

// apart fails the test if the kernel's sets of others have CPUs of the pin.
func (n *testNode) apart(pin string, others ...string) {
	n.t.Helper()
	cpus, err := cpuset.Parse(n.cpus(pin))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, name := range others {
		text := n.cpus(name)
		if text == "all" {
			text = n.kernel.online.String()
		}
		if has, err := cpuset.Parse(text); err != nil || has.Overlaps(cpus) {
			n.t.Errorf("%s is on %s, and %s on %s", pin, cpus, name, text)
		}
	}
}

// TestRefusedStartWithoutGrant checks two pins that were created while the plugin was away, of
// which only one can have CPUs of its own.
func TestRefusedStartWithoutGrant(t *testing.T) {
	runtimesThatRunRefused(t, setup{machine: "4 cores"}, func(t *testing.T, n *testNode) {
		n.pod("one", "LSR", 2)
		n.pod("two", "LSR", 2)
		if err := n.begin("one"); err != nil {
			t.Fatal(err)
		}
		if err := n.begin("two"); err == nil {
			t.Fatal("started without CPUs of its own")
		}
		if n.status().Runtime.Name == "cri-o" { // at once, because the container is about to run
			n.expect(map[string]string{"one": "0-1", "two": "2-3"})
		}
		n.sleep(2 * refusalTime)
		n.expect(map[string]string{"one": "0-1", "two": "2-3"})
		if got := n.container("two").Warnings; len(got) != 1 || !strings.Contains(got[0], "its start was refused") {
			t.Errorf("two is told of as %q", got)
		}
	})
}

// TestRefusedStartStops checks that nothing is left of a container which containerd ended because
// its start was refused.
func TestRefusedStartStops(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.agent.Connected(n.runtime, status.Runtime{Name: "containerd"}, "")
		n.run("web", "LS", 1)
		if err := n.create("db", "LSR", 2); err != nil {
			t.Fatal(err)
		}
		n.kernel.refusing(refuseCPUs("db"))
		if err := n.begin("db"); err == nil {
			t.Fatal("started without its CPUs")
		}
		n.kernel.refusing(nil)
		n.expect(map[string]string{"web": "all"})
		n.sleep(2 * refusalTime)
		if s := n.status(); len(s.Containers) != 1 || s.Counters.RanRefused != 0 {
			t.Errorf("%d containers, %d ran", len(s.Containers), s.Counters.RanRefused)
		}
	})
}

// TestFailedCreateIsFreed checks that CPUs are freed if the runtime failed to create their
// container, which no event reports. A container that was created keeps its CPUs, started or not.
func TestFailedCreateIsFreed(t *testing.T) {
	for _, made := range []bool{false, true} {
		t.Run(fmt.Sprintf("made %t", made), func(t *testing.T) {
			inBubble(t, setup{machine: "4 cores"}, func(t *testing.T, n *testNode) {
				if err := n.ask("failed", "LSR", 2); err != nil {
					t.Fatal(err)
				}
				if made {
					if err := n.agent.PostCreateContainer("failed"); err != nil {
						t.Fatal(err)
					}
				}
				if err := n.create("db", "LSR", 2); err == nil {
					t.Error("the CPUs of a container that is being made were given away")
				}
				n.sleep(makeTime)
				if err := n.create("db", "LSR", 2); (err == nil) == made {
					t.Errorf("create of another: %v", err)
				}
			})
		})
	}
}

// TestRefusedKeepsFailedCreate checks that the grant of a container that was never created goes
// only to a request that succeeds. A request that is refused, or fails in the kernel, leaves the
// grant as it was.
func TestRefusedKeepsFailedCreate(t *testing.T) {
	for name, request := range map[string]func(n *testNode, cpus int) error{
		"create": func(n *testNode, cpus int) error { return n.create("db", "LSR", cpus) },
		"resize": func(n *testNode, cpus int) error { return n.update("small", cpus) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, setup{machine: "8 cores"}, func(t *testing.T, n *testNode) {
				n.run("web", "LS", 1)
				n.run("small", "LSR", 1)
				n.pod("db", "LSR", 6) // the kubelet makes the pod's cgroup even if the container is never created
				delete(n.specs, "db")
				if err := n.ask("failed", "LSR", 4); err != nil {
					t.Fatal(err)
				}
				n.sleep(makeTime)
				before := n.dump()
				refused := func(why string, cpus int) {
					t.Helper()
					if err := request(n, cpus); err == nil {
						t.Errorf("%s: not refused", why)
					}
					if after := n.dump(); after != before {
						t.Errorf("%s: before\n%s\nafter\n%s", why, before, after)
					}
				}
				refused("more than there is", 8)
				n.kernel.refusing(refuseCPUs("web"))
				refused("by the kernel", 6)
				n.kernel.refusing(nil)
				if err := request(n, 6); err != nil {
					t.Fatal(err)
				}
				for _, c := range n.status().Containers {
					if c.ID == "failed" {
						t.Errorf("failed has %s still", c.CPUs)
					}
				}
			})
		})
	}
}
