package agent

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestReservedAndHeld(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		if err := n.create("db", "LSR", 2); err != nil {
			t.Fatal(err)
		}
		if got := n.container("db").State; got != placement.Reserved {
			t.Errorf("created: %s", got)
		}
		if err := n.begin("db"); err != nil {
			t.Fatal(err)
		}
		if got := n.container("db").State; got != placement.Held {
			t.Errorf("started: %s", got)
		}
	})
}

func TestRemoveByIDAlone(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		before := n.dump()
		if err := n.create("db", "LSR", 2); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the event may come twice
			if err := n.agent.RemoveContainer("db"); err != nil {
				t.Fatal(err)
			}
		}
		n.kernel.remove("/kubepods/pod-db")
		if after := n.dump(); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
	})
}

// TestShortageFrees checks a request for 5 of 8 CPUs while another container has 5: it succeeds
// only if the other's grant is no longer valid.
func TestShortageFrees(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(n *testNode)
		frees   bool
	}{
		"reserved, young":   {func(n *testNode) { n.create("old", "LSR", 5) }, false},
		"reserved, old":     {func(n *testNode) { n.create("old", "LSR", 5); n.sleep(6 * time.Minute) }, true},
		"held, however old": {func(n *testNode) { n.run("old", "LSR", 5); n.sleep(time.Hour) }, false},
		"held, ended": {func(n *testNode) {
			n.run("old", "LSR", 5)
			n.kernel.change("/kubepods/pod-old/old", func(g *group) { g.empty = true })
		}, true},
		"held, cgroup gone": {func(n *testNode) {
			n.run("old", "LSR", 5)
			n.kernel.remove("/kubepods/pod-old/old")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, setup{}, func(t *testing.T, n *testNode) {
				c.prepare(n)
				if err := n.create("new", "LSR", 5); (err == nil) != c.frees {
					t.Errorf("got %v", err)
				}
			})
		})
	}
	t.Run("replaced", func(t *testing.T) {
		inBubble(t, setup{}, func(t *testing.T, n *testNode) {
			n.create("old", "LSR", 5)
			n.sleep(time.Second)
			n.create("young", "LSR", 1)
			n.pod("new", "LSR", 5)
			spec := *n.specs["new"]
			spec.ID = "again"
			if _, _, err := n.agent.CreateContainer(context.Background(), n.podOf("old"), spec); err != nil {
				t.Errorf("its predecessor, which never started, does not make way: %v", err)
			}
		})
	})
}

func TestLateStartOfFreed(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		if err := n.create("old", "LSR", 3); err != nil {
			t.Fatal(err)
		}
		n.sleep(6 * time.Minute)
		n.run("new", "LSR", 5)
		n.expect(map[string]string{"web": "5-7"})
		if err := n.begin("old"); err == nil {
			t.Error("started without CPUs")
		}
		n.expect(map[string]string{"web": "5-7"})
	})
	t.Run("placed again", func(t *testing.T) {
		inBubble(t, setup{}, func(t *testing.T, n *testNode) {
			if err := n.create("old", "LSR", 4); err != nil {
				t.Fatal(err)
			}
			n.sleep(6 * time.Minute)
			n.run("new", "LSR", 5)
			n.end("new")
			n.run("two", "LSR", 2)
			if err := n.begin("old"); err != nil {
				t.Fatal(err)
			}
			if n.cpus("old") == n.cpus("two") || n.container("old").State != placement.Held {
				t.Errorf("%s and %s", n.cpus("old"), n.cpus("two"))
			}
		})
	})
}

// TestEndedIsFreedByThePass checks that a container's CPUs are freed even if its StopContainer
// event never comes.
func TestEndedIsFreedByThePass(t *testing.T) {
	inBubble(t, setup{}, func(_ *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.kernel.change("/kubepods/pod-db/db", func(g *group) { g.empty = true })
		n.pass()
		n.expect(map[string]string{"web": "all"})
		n.end("db")
	})
}

// TestNeverStartedIsFreedByThePass checks that CPUs are freed whose container was created and did not start in
// time, as one whose start failed in a crash of the runtime, which still lists it. A reconnection does not
// begin the time anew.
func TestNeverStartedIsFreedByThePass(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		if err := n.create("db", "LSR", 2); err != nil {
			t.Fatal(err)
		}
		n.sleep(config.Default().ReserveTimeout - time.Minute)
		n.synchronize()
		n.pass()
		n.expect(map[string]string{"web": "2-7"})
		n.runc("db")
		n.specs["db"].State = workload.Created
		n.sleep(2 * time.Minute)
		n.pass()
		n.expect(map[string]string{"web": "2-7"}) // it has a process
		n.kernel.change("/kubepods/pod-db/db", func(g *group) { g.empty = true })
		n.pass()
		n.expect(map[string]string{"web": "all"})
		if err := n.begin("db"); err != nil { // it starts after all
			t.Fatal(err)
		}
		n.expect(map[string]string{"web": "2-7", "db": "0-1"})
	})
}

// TestWithoutCgroups checks that without cgroups all settings are in the replies, once for each
// container.
func TestWithoutCgroups(t *testing.T) {
	inBubble(t, setup{noKernel: true}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.expect(map[string]string{"web": "2-7", "db": "0-1"})
		if err := n.update("db", 3); err != nil {
			t.Fatal(err)
		}
		n.expect(map[string]string{"web": "3-7", "db": "0-2"})
		if err := n.agent.RemoveContainer("db"); err != nil { // RemoveContainer has no reply
			t.Fatal(err)
		}
		n.expect(map[string]string{"web": "3-7"})
		n.run("other", "LS", 1)
		n.expect(map[string]string{"web": "all"})
	})
}
