package guest

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// testPartition makes a cpuset partition of the cgroup above the pods, without the CPUs of the
// first core, as an administrator might. Pins then lie in it, the others share the rest of it, and
// after its end they have all CPUs again.
func testPartition(n *node) {
	t := n.t
	all := online(t, "cpu")
	outside := cpuset.Of(0, 1)
	ls, lsr := ask{name: "ls", class: "LS"}, ask{name: "lsr", class: "LSR", cpus: 2, keys: []string{"cpuset", "4-5"}}
	shared := n.pod(ls)
	c := n.start(shared, ls)
	base, _, _ := strings.Cut(strings.TrimPrefix(shared.Cgroup, "/"), "/")
	write := func(file, text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join("/sys/fs/cgroup", base, file), []byte(text), 0))
	}
	write("cpuset.cpus", cpuset.Difference(all, outside).String())
	write("cpuset.cpus.partition", "root")
	defer func() {
		write("cpuset.cpus.partition", "member")
		write("cpuset.cpus", all.String())
		n.awaitCPUs(c, all)
		must(t, shared.Remove())
	}()
	state, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", base, "cpuset.cpus.partition"))
	must(t, err)
	if got := strings.TrimSpace(string(state)); got != "root" {
		t.Fatalf("this kernel makes no partition: %q", got)
	}
	n.awaitCPUs(c, cpuset.Difference(all, outside))

	pins := n.pod(lsr)
	pin := n.start(pins, lsr)
	first, err := pin.First()
	must(t, err)
	if own := cpuset.Of(4, 5); first.CPUs != own {
		t.Errorf("the pin sees CPUs %s, want %s", first.CPUs, own)
	}
	n.awaitCPUs(c, cpuset.Difference(cpuset.Difference(all, outside), cpuset.Of(4, 5)))
	must(t, pins.Remove())
	n.awaitCPUs(c, cpuset.Difference(all, outside))
	before := n.status().Counters.Drift
	time.Sleep(3 * time.Second) // several passes
	if drift := n.status().Counters.Drift - before; drift > 0 {
		t.Errorf("the partition counts as %d changes by others", drift)
	}
}
