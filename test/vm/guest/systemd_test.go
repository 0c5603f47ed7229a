package guest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/knobs"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestSystemd runs the plugin where real systemd makes the cgroups: pods are its slices,
// containers its scopes, and it writes to both.
func TestSystemd(t *testing.T) {
	if first := read(t, "/proc/1/comm"); first != "systemd" {
		t.Fatalf("the guest's first process is %s, not systemd", first)
	}
	rt := start(t, runtime.Options{Systemd: true})
	b := &knobs.Bed{RT: rt}
	t.Run("restore", func(t *testing.T) { knobs.Restore(t, b) })
	t.Run("reload", func(t *testing.T) { knobs.Reload(t, b) })
	withSluice(t, b, []sluiceTest{
		{"scopes", testScopes},
		{"knobs at the first instruction", func(n *node) {
			knobs.First(n.t, b, "LSR", "BE with requests", "burst of two", "memory.min and low of two", "io weight", "Koordinator batch")
		}},
		{"resize", func(n *node) { knobs.Resize(n.t, b) }},
	})
}

// testScopes checks that a pin in a slice and a scope takes its CPUs from others and returns them,
// while systemd reads its units again.
func testScopes(n *node) {
	t := n.t
	all := online(t, "cpu")
	var shared []*runtime.Container
	asks := []ask{{name: "ls", class: "LS"}, {name: "be", class: "BE"}}
	others := n.pod(asks...)
	for _, a := range asks {
		c := n.start(others, a)
		first, err := c.First()
		must(t, err)
		if want := "cri-containerd-" + c.ID + ".scope"; filepath.Base(c.Cgroup) != want || !strings.Contains(others.Cgroup, ".slice/") {
			t.Errorf("the container's cgroup is %s", c.Cgroup)
		}
		if first.CPUs != all || n.cpus(c) != all {
			t.Errorf("%s sees CPUs %s, want %s", a.name, first.CPUs, all)
		}
		shared = append(shared, c)
	}
	lse := ask{name: "lse", class: "LSE", cpus: 2}
	pins := n.pod(lse)
	pin := n.start(pins, lse)
	first, err := pin.First()
	must(t, err)
	if first.CPUs.Size() != 2 || !wholeCores(first.CPUs) || first.CPUs != n.cpus(pin) {
		t.Errorf("the pin sees CPUs %s and has %s", first.CPUs, n.cpus(pin))
	}
	rest := cpuset.Difference(all, first.CPUs)
	evacuated := func(when string) {
		for _, c := range shared {
			if got := n.cpus(c); got != rest {
				t.Errorf("%s, a neighbour has CPUs %s, want %s", when, got, rest)
			}
		}
	}
	evacuated("beside a pin")
	must(t, n.rt.DaemonReload())
	for _, c := range append(shared, pin) {
		want := rest
		if c == pin {
			want = first.CPUs
		}
		n.awaitCPUs(c, want)
	}
	late := n.start(others, asks[0])
	if got := n.cpus(late); got != rest {
		t.Errorf("one that starts beside the pin has CPUs %s, want %s", got, rest)
	}
	evacuated("after a reload and another start")
	n.stop(late)
	must(t, pins.Remove())
	for _, c := range shared {
		n.awaitCPUs(c, all)
	}
	must(t, others.Remove())
}
