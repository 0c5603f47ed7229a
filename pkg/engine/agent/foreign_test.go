package agent

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestStatusTellsTheKubeletsCPUs checks that the status shows the kernel's CPUs, not those of
// Sluice's ledger, if the kubelet's static CPU manager sets cpusets.
func TestStatusTellsTheKubeletsCPUs(t *testing.T) {
	inBubble(t, setup{host: host(static)}, func(t *testing.T, n *testNode) {
		n.run("guaranteed", "LS", 2)
		for _, cpus := range []string{"1-2", "5"} {
			set, err := cpuset.Parse(cpus)
			if err != nil {
				t.Fatal(err)
			}
			n.kernel.change("/kubepods/pod-guaranteed/guaranteed", func(g *group) { g.cpus = set })
			n.pass()
			if c := n.container("guaranteed"); c.CPUs.String() != cpus || !strings.Contains(c.Why, "kubelet's static CPU manager") || c.Controlled {
				t.Errorf("it is said to have CPUs %s: %s; the kernel has %s", c.CPUs, c.Why, cpus)
			}
		}
	})
}

// TestMachinesMemory checks that the status has one amount of memory, the latest of the kernel. It
// includes the pool of huge pages, which the loop doesn't count.
func TestMachinesMemory(t *testing.T) {
	onBothLoops(t, knobSetup{config: "control: {mode: on}\n"}, func(t *testing.T, h *loopNode) {
		for _, total := range []int64{8 << 30, 7 << 30} {
			h.memory = observe.NodeMemory{Total: total / 4, HugePages: total - total/4, Available: total / 8, Free: total / 8}
			h.tick()
			if s, err := h.agent.Status(); err != nil || s.Machine.MemoryBytes != total {
				t.Errorf("the machine has %d bytes, %d in the status; %v", total, s.Machine.MemoryBytes, err)
			}
		}
	})
}

// TestMemoryBeforeTheFirstLook checks that containers which already run are compared with the
// memory in /proc/meminfo, which the kubelet uses for their scores. A hypervisor may have added
// memory that is in no file of a NUMA node.
func TestMemoryBeforeTheFirstLook(t *testing.T) {
	files := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 1048576 kB\n")}}
	inBubble(t, setup{host: host(files)}, func(t *testing.T, n *testNode) {
		if got := n.status().Machine.MemoryBytes; got != 1<<30 {
			t.Errorf("the machine has 1 GiB, %d bytes in the status", got)
		}
	})
}

// TestReconnections checks the count of connections after the first.
func TestReconnections(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		before := n.status().Counters.Reconnects
		n.agent.Disconnected()
		if got := n.status().Counters.Reconnects - before; got != 0 {
			t.Errorf("a lost connection counts %d", got)
		}
		n.agent.Connected(n.runtime, status.Runtime{}, "")
		if got := n.status().Counters.Reconnects - before; got != 1 {
			t.Errorf("the next connection counts %d", got)
		}
	})
}
