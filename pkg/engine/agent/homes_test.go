package agent

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// A service that needs one NUMA node starts beside others that have ended, or never started, without an event.
func TestEndedIsNotAtHome(t *testing.T) {
	for name, leave := range map[string]func(n *testNode, id string){
		"ended": func(n *testNode, id string) {
			n.run(id, "LS", 3)
			n.kernel.change("/kubepods/pod-"+id+"/"+id, func(g *group) { g.empty = true })
		},
		"never started": func(n *testNode, id string) {
			if err := n.ask(id, "LS", 3); err != nil {
				n.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, setup{}, func(t *testing.T, n *testNode) {
				for _, id := range []string{"one", "two", "new"} {
					n.pod(id, "LS", 3)
					n.pods[id].Annotations["numa.sluice.dev"] = "single"
				}
				leave(n, "one")
				leave(n, "two")
				n.sleep(6 * time.Second)
				if err := n.create("new", "LS", 3); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// After a restart, a service loses no memory node that it had got since it was created.
func TestRestartKeepsMemoryOfAHome(t *testing.T) {
	s := setup{originals: filepath.Join(t.TempDir(), "originals")}
	inBubble(t, s, func(t *testing.T, n *testNode) {
		n.pod("web", "LS", 1)
		n.pods["web"].Annotations["numa.sluice.dev"] = "single"
		n.run("web", "LS", 1)
		n.kernel.change("/kubepods/pod-web/web", func(g *group) { g.mems = cpuset.Range(0, 1) }) // it had another home
		n.restart(s)
		n.pass()
		if mems := n.container("web").Mems; !mems.IsEmpty() && mems != cpuset.Range(0, 1) {
			t.Errorf("it has memory of %v", mems)
		}
	})
}
