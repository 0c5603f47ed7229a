package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/eventloop"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func TestResize(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		for _, step := range []struct {
			cpus    int
			db, web string
		}{{3, "0-2", "3-7"}, {1, "0", "1-7"}, {4, "0-3", "4-7"}} {
			if err := n.update("db", step.cpus); err != nil {
				t.Fatal(err)
			}
			n.expect(map[string]string{"db": step.db, "web": step.web})
			if got := n.specs["db"].Resources; got.CPUs != step.db || got.Quota != -1 {
				t.Errorf("the record has CPUs %s and quota %d", got.CPUs, got.Quota)
			}
		}
	})
}

// TestResizeFails checks that a resize which Sluice or the kernel refuses leaves ledger and kernel
// as they were.
func TestResizeFails(t *testing.T) {
	refuse := func(names ...string) func(knobs.Change) error {
		return func(c knobs.Change) error {
			for _, name := range names {
				if err := refuseCPUs(name)(c); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		cpus   int
		refuse func(knobs.Change) error
	}{
		"no such CPUs":            {cpus: 9},
		"the due of LS":           {cpus: 8},
		"LS does not leave":       {cpus: 5, refuse: refuse("web")},
		"the pin does not grow":   {cpus: 3, refuse: refuse("db")},
		"the pin does not shrink": {cpus: 1, refuse: refuse("db")},
	} {
		t.Run(name, func(t *testing.T) {
			pools := placement.Config{Pools: []placement.Pool{{Name: "critical", Size: placement.Size{Count: 2}}, {Name: "online"}, {Name: "batch"}}}
			inBubble(t, setup{config: withPools(pools)}, func(t *testing.T, n *testNode) {
				n.run("web", "LS", 1)
				n.run("db", "LSR", 2)
				n.pass()
				before := n.dump()
				n.kernel.refusing(c.refuse)
				if err := n.update("db", c.cpus); err == nil {
					t.Error("resized")
				}
				n.kernel.refusing(nil)
				if after := n.dump(); after != before {
					t.Errorf("before:\n%s\nafter:\n%s", before, after)
				}
				if err := n.update("db", 3); err != nil {
					t.Errorf("then a good one: %v", err)
				}
			})
		})
	}
}

// TestShrinkNobodyTakes checks that a pin can shrink even if nobody can take the CPUs that it
// leaves.
func TestShrinkNobodyTakes(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.kernel.refusing(refuseCPUs("web"))
		if err := n.update("db", 1); err != nil {
			t.Error(err)
		}
		n.expect(map[string]string{"db": "0", "web": "2-7"})
	})
}

// TestUpdateOfSharing checks that the answer has the container's own CPUs, whatever the kubelet
// requested.
func TestUpdateOfSharing(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		if err := n.update("web", 2); err != nil {
			t.Fatal(err)
		}
		if got := n.specs["web"].Resources.CPUs; got != "2-7" {
			t.Errorf("the record has %q", got)
		}
		if got := n.container("web").Requested; got != 2000 {
			t.Errorf("requests %d", got)
		}
		n.kernel.change("/kubepods/pod-web/web", func(g *group) { g.cpus = n.kernel.online })
		if err := n.agent.PostUpdateContainer("web"); err != nil {
			t.Fatal(err)
		}
		n.expect(map[string]string{"web": "2-7"})
	})
}

// TestUpdateOfUnknown checks that a running container which the plugin missed is entered, and
// keeps its CPUs.
func TestUpdateOfUnknown(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.pod("db", "LSR", 2)
		n.runc("db")
		if err := n.update("db", 2); err != nil {
			t.Fatal(err)
		}
		n.expect(map[string]string{"db": "0-1", "web": "2-7"})
		if c := n.container("db"); c.State != placement.Held {
			t.Errorf("%s", c.State)
		}
		n.kernel.change("/kubepods/pod-db/db", func(g *group) { g.cpus = n.kernel.online })
		n.pass()
		n.expect(map[string]string{"db": "0-1"})
	})
}

// TestQuotaAfterResize checks that a pin which loses its CPUs has the quota of its last size.
func TestQuotaAfterResize(t *testing.T) {
	inBubble(t, setup{machine: "4 cores"}, func(t *testing.T, n *testNode) {
		n.run("other", "LSR", 1)
		n.run("db", "LSR", 1)
		if err := n.update("db", 2); err != nil {
			t.Fatal(err)
		}
		n.plug(cpuset.Of(0, 3))
		if got := n.quota("/kubepods/pod-db/db"); got != "2 CPUs" {
			t.Errorf("quota is %s", got)
		}
	})
}

func TestDrift(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		for _, other := range []func(*group){
			func(g *group) { g.cpus = n.kernel.online },
			func(g *group) { g.mems = n.kernel.nodes },
			func(g *group) { g.quota = quotaOf(n.specs["web"].Resources) },
		} {
			n.sleep(0)
			before := n.kernel.String()
			drift := n.container("db").Drift
			n.kernel.change("/kubepods/pod-db/db", other)
			n.pass()
			if after := n.kernel.String(); after != before {
				t.Errorf("not repaired: before\n%s\nafter\n%s", before, after)
			}
			n.pass()
			if got := n.container("db").Drift; got != drift+1 {
				t.Errorf("counted %d times", got-drift)
			}
		}
		n.kernel.change("/kubepods/pod-web/web", func(g *group) { g.cpus = n.kernel.online })
		n.kernel.refusing(refuseCPUs("web"))
		n.pass()
		n.pass()
		if got := n.container("web").Drift; got != 1 {
			t.Errorf("a difference that can't be repaired is counted %d times", got)
		}
		if got := n.status().Counters.Drift; got != 4 {
			t.Errorf("counted %d in all", got)
		}
	})
}

// TestLeaving checks that the end of the plugin changes nothing.
func TestLeaving(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.pass()
		n.kernel.took()
		n.stop()
		if got := n.kernel.took(); len(got) > 0 {
			t.Errorf("wrote %s", strings.Join(got, ", "))
		}
		if _, _, err := n.agent.CreateContainer(context.Background(), n.podOf("web"), *n.specs["web"]); !errors.Is(err, eventloop.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}

// A container below a cgroup that somebody has limited has all CPUs that it can have, and that is
// no drift.
func TestLimitedAboveIsNoDrift(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.pod("web", "LS", 1)
		n.kernel.change("/kubepods/pod-web", func(g *group) { g.cpus = cpuset.MustParse("2-7") })
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.expect(map[string]string{"db": "0-1", "web": "2-7"})
		n.end("db")
		n.sleep(10 * time.Second)
		if got := n.status().Counters.Drift; got > 0 {
			t.Errorf("%d changes by others are counted", got)
		}
	})
}
