package agent

import (
	"testing"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// The status says by NUMA node what Place would grant there, also without resource claims.
func TestNUMANodes(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		check := func(when string, want ...int) {
			t.Helper()
			nodes := n.status().Machine.NUMANodes
			if len(nodes) != 2 || nodes[1].CPUs != cpuset.Range(4, 7) || nodes[1].ID != 1 || len(nodes[0].Distances) != 2 {
				t.Fatalf("%s: the NUMA nodes are %+v", when, nodes)
			}
			for i, cpus := range want {
				if nodes[i].PinnableCPUs != cpus {
					t.Errorf("%s: NUMA node %d has %d for pins, want %d", when, i, nodes[i].PinnableCPUs, cpus)
				}
			}
		}
		check("nothing runs", 4, 4)
		n.run("db/main", "LSR", 3)
		check("a pin", 1, 4)
		n.run("web/c", "", 4)
		check("a pin and a service", 1, 1)
		n.stop()
		n.launch(setup{})
		if nodes := n.status().Machine.NUMANodes; len(nodes) != 0 {
			t.Errorf("before the containers are known, the NUMA nodes are %+v", nodes)
		}
	})
}

func TestNUMANodesInPreview(t *testing.T) {
	inBubble(t, setup{config: func(c *config.Config) { c.Mode = config.Preview }}, func(t *testing.T, n *testNode) {
		if nodes := n.status().Machine.NUMANodes; len(nodes) != 2 || nodes[0].PinnableCPUs != 0 {
			t.Errorf("in preview the NUMA nodes are %+v", nodes)
		}
	})
}
