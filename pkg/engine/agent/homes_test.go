package agent

import (
	"testing"
	"time"
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
