package guest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// testFirstInstruction runs pins of all shapes beside LS, BE and SYSTEM containers, and checks
// what each sees at its first instruction.
func testFirstInstruction(n *node) {
	t := n.t
	all := online(t, "cpu")
	sharedAsks := []ask{{name: "ls", class: "LS"}, {name: "be", class: "BE"}, {name: "system", class: "SYSTEM"}}
	shared := n.pod(sharedAsks...)
	var before []*runtime.Container
	for _, a := range sharedAsks {
		before = append(before, n.start(shared, a))
		sees(t, before[len(before)-1], all)
	}
	tests := []struct {
		ask
		nodes int
		cores int // number of cores that the CPUs are on; 0 for any
	}{
		{ask{name: "lse-2", class: "LSE", cpus: 2}, 1, 1},
		{ask{name: "lse-4", class: "LSE", cpus: 4}, 1, 2},
		{ask{name: "lse-6-prefer", class: "LSE", cpus: 6, keys: []string{"numa", "prefer"}}, 2, 3},
		{ask{name: "lsr-1", class: "LSR", cpus: 1}, 1, 1},
		{ask{name: "lsr-2", class: "LSR", cpus: 2}, 1, 0},
		{ask{name: "lsr-4-single", class: "LSR", cpus: 4, keys: []string{"numa", "single"}}, 1, 2},
		{ask{name: "lsr-2-full-core", class: "LSR", cpus: 2, keys: []string{"smt", "full-core"}}, 1, 1},
		{ask{name: "lsr-2-one-per-core", class: "LSR", cpus: 2, keys: []string{"smt", "one-per-core"}}, 1, 2},
		{ask{name: "lsr-4-spread", class: "LSR", cpus: 4, keys: []string{"numa", "spread"}}, 4, 4},
		{ask{name: "lsr-3", class: "LSR", cpus: 3}, 1, 2},
	}
	var asks []ask
	for _, test := range tests {
		asks = append(asks, test.ask)
	}
	pins := n.pod(asks...)
	rest := all // the CPUs that no pin has
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := n.with(t)
			pin := n.start(pins, test.ask)
			first, err := pin.First()
			must(t, err)
			nodes := nodesOf(t, first.CPUs)
			if first.CPUs.Size() != test.cpus || first.NumCPU != test.cpus || nodes.Size() != test.nodes {
				t.Errorf("it sees CPUs %s (%d) on nodes %s, want %d on %d nodes", first.CPUs, first.NumCPU, nodes, test.cpus, test.nodes)
			}
			if first.Mems != nodes {
				t.Errorf("CPUs %s have memory of nodes %s, want %s", first.CPUs, first.Mems, nodes)
			}
			if got := coresOf(first.CPUs); test.cores > 0 && got != test.cores {
				t.Errorf("CPUs %s are on %d cores, want %d", first.CPUs, got, test.cores)
			}
			if quota := first.Files["cpu.max"]; !strings.HasPrefix(quota, "max ") {
				t.Errorf("cpu.max is %q, want no quota", quota)
			}
			rest = cpuset.Difference(all, first.CPUs)
			for _, c := range before {
				if allowed, _, err := c.Allowed(); err != nil || allowed != rest {
					t.Errorf("a running neighbour may use CPUs %s (%v), want %s", allowed, err, rest)
				}
			}
			if i < len(tests)-1 {
				n.stop(pin)
				rest = all
			}
		})
	}
	for _, a := range sharedAsks {
		sees(t, n.start(shared, a), rest) // a replacement, beside the last pin
	}
	must(t, pins.Remove())
	for _, c := range before {
		n.awaitCPUs(c, all)
	}
	must(t, shared.Remove())
}

// testPages checks that the memory of a pin, and of a service that is at home on a node, is on the
// nodes of its CPUs, and that a guarantee beyond one node adds the nearest node.
func testPages(n *node) {
	touch := []string{"touch=64", "first", "sleep"}
	tests := []struct {
		ask
		nodes int
	}{
		{ask{name: "within-its-node", class: "LSR", cpus: 2, args: touch}, 1},
		{ask{name: "beyond-its-node", class: "LSR", cpus: 2, args: touch, memory: 1200 * mib}, 2},
		{ask{name: "at-home", class: "LS", cpus: 1, keys: []string{"numa", "single"}, args: touch}, 1},
	}
	pod := n.pod(tests[0].ask, tests[1].ask, tests[2].ask)
	for _, test := range tests {
		n.t.Run(test.name, func(t *testing.T) {
			n := n.with(t)
			pin := n.start(pod, test.ask)
			first, err := pin.First()
			must(t, err)
			own := nodesOf(t, first.CPUs)
			if own.Size() != 1 || !own.SubsetOf(first.Mems) || first.Mems.Size() != test.nodes {
				t.Fatalf("CPUs %s of node %s have memory of nodes %s, want %d with that one", first.CPUs, own, first.Mems, test.nodes)
			}
			for node := range first.Mems.All() {
				if d := distance(t, own.First(), node); d > 12 {
					t.Errorf("CPUs of node %s have memory of node %d, %d away", own, node, d)
				}
			}
			for node, bytes := range pagesOf(t, pin) {
				switch {
				case node == own.First() && bytes < 64*mib:
					t.Errorf("node %d has %d bytes of the container, want the 64 MiB that it touched", node, bytes)
				case node != own.First() && bytes > 0:
					t.Errorf("node %d has %d bytes of the container, which runs on node %s", node, bytes, own)
				}
			}
		})
	}
	must(n.t, pod.Remove())
}

func distance(t *testing.T, from, to int) int {
	t.Helper()
	d, err := strconv.Atoi(strings.Fields(read(t, nodeFile(from, "distance")))[to])
	must(t, err)
	return d
}

// pagesOf returns the container's anonymous memory by node, from memory.numa_stat.
func pagesOf(t *testing.T, c *runtime.Container) map[int]int64 {
	t.Helper()
	text, err := c.File("memory.numa_stat")
	must(t, err)
	pages := make(map[int]int64)
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if fields[0] != "anon" {
			continue
		}
		for _, field := range fields[1:] {
			var node int
			var bytes int64
			_, err := fmt.Sscanf(field, "N%d=%d", &node, &bytes)
			must(t, err)
			pages[node] = bytes
		}
	}
	return pages
}

func sees(t *testing.T, c *runtime.Container, cpus cpuset.Set) {
	t.Helper()
	first, err := c.First()
	must(t, err)
	if mems := online(t, "node"); first.CPUs != cpus || first.Mems != mems {
		t.Errorf("the first instruction sees CPUs %s and nodes %s, want %s and %s", first.CPUs, first.Mems, cpus, mems)
	}
}
