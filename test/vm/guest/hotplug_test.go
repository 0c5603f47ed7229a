package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// testHotplug takes CPUs offline that a busy LS container or pins use, and then online again.
func testHotplug(n *node) {
	t := n.t
	all := online(t, "cpu")
	ls := ask{name: "ls", class: "LS", args: []string{"first", "burn=2"}}
	lse := ask{name: "lse", class: "LSE", cpus: 2}
	lsr := ask{name: "lsr", class: "LSR", cpus: 3}
	big := ask{name: "big", class: "LSE", cpus: 8}
	pod := n.pod(ls, lse, lsr, big)
	shared := n.start(pod, ls)
	core := n.start(pod, lse)
	three := n.start(pod, lsr)
	rest := func() cpuset.Set {
		pinned := cpuset.Union(n.cpus(core), n.cpus(three))
		return cpuset.Difference(online(t, "cpu"), pinned)
	}

	t.Run("a CPU of LS", func(t *testing.T) {
		n := n.with(t)
		cpu, pins := rest().Last(), cpuset.Union(n.cpus(core), n.cpus(three))
		n.plug(cpu, false)
		n.awaitCPUs(shared, rest())
		if got, err := shared.File("cpuset.cpus"); err != nil || got != rest().String() {
			t.Errorf("cpuset.cpus of LS is %s (%v), want %s", got, err, rest())
		}
		n.plug(cpu, true)
		n.awaitCPUs(shared, rest())
		if now := cpuset.Union(n.cpus(core), n.cpus(three)); now != pins {
			t.Errorf("the pins moved from %s to %s", pins, now)
		}
	})
	t.Run("a CPU of a pin", func(t *testing.T) {
		n := n.with(t)
		for _, pin := range []*runtime.Container{three, core} {
			before := n.cpus(pin)
			n.plug(before.Last(), false)
			await(t, func() error {
				now := n.cpus(pin)
				if now.Size() != before.Size() || now.Contains(before.Last()) || pin == core && !wholeCores(now) {
					return fmt.Errorf("the pin has %s after %d of %s went: %s", now, before.Last(), before, n.statusOf(pin).Why)
				}
				return nil
			})
			n.awaitCPUs(shared, rest())
			now := n.cpus(pin)
			n.plug(before.Last(), true)
			n.awaitCPUs(shared, rest())
			if got := n.cpus(pin); got != now {
				t.Errorf("the pin moved from %s to %s when %d came back", now, got, before.Last())
			}
		}
	})
	t.Run("a CPU of a pin, and none to replace it", func(t *testing.T) {
		n := n.with(t)
		pin := n.start(pod, big)
		fill := n.pod(ask{name: "fill", class: "LSR", cpus: 1})
		n.start(fill, ask{name: "fill", class: "LSR", cpus: 1})
		before := n.cpus(pin)
		n.plug(before.Last(), false)
		await(t, func() error {
			if why := n.statusOf(pin).Why; !strings.Contains(why, "has 7 of 8 CPUs") {
				return fmt.Errorf("status says %q", why)
			}
			return nil
		})
		left := before
		left.Remove(before.Last())
		n.awaitCPUs(pin, left)
		n.plug(before.Last(), true)
		n.awaitCPUs(pin, before)
		if why := n.statusOf(pin).Why; strings.Contains(why, "has 7") {
			t.Errorf("status still says %q", why)
		}
		n.stop(pin)
		must(t, fill.Remove())
	})
	t.Run("all, after the last pin", func(t *testing.T) {
		n := n.with(t)
		last := all.Last()
		n.plug(last, false)
		n.stop(core)
		n.stop(three)
		left := all
		left.Remove(last)
		n.awaitCPUs(shared, left)
		n.plug(last, true)
		n.awaitCPUs(shared, all)
	})
	must(t, pod.Remove())
}

// plug takes a CPU off- or online and waits until the plugin knows.
func (n *node) plug(cpu int, on bool) {
	t := n.t
	t.Helper()
	file, value := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu), "1"
	if !on {
		value = "0"
		t.Cleanup(func() { _ = os.WriteFile(file, []byte("1"), 0) }) // for the next test if this one fails
	}
	must(t, os.WriteFile(file, []byte(value), 0))
	began, want := time.Now(), online(t, "cpu")
	await(t, func() error {
		if got := n.status().Machine.Online; got != want {
			return fmt.Errorf("the plugin takes CPUs %s to be online, want %s", got, want)
		}
		return nil
	})
	t.Logf("CPU %d online=%s: known and settled %.0f ms later", cpu, value, time.Since(began).Seconds()*1000)
}

// testMemoryHotplug takes a block of memory of a busy pin's node offline, and then online again.
func testMemoryHotplug(n *node) {
	t := n.t
	a := ask{name: "pin", class: "LSR", cpus: 1, args: []string{"touch=64", "first", "burn"}}
	pod := n.pod(a)
	pin := n.start(pod, a)
	before := n.cpus(pin)
	all := n.status().Machine.MemoryBytes
	block := offlineBlock(t, nodesOf(t, before).First())
	if block == "" {
		must(t, pod.Remove())
		t.Skip("SKIPPED: this kernel gives up no block of the node's memory")
	}
	await(t, func() error {
		if now := n.status().Machine.MemoryBytes; now >= all {
			return fmt.Errorf("the plugin takes the machine to have %d bytes, as before %s went", now, block)
		}
		return nil
	})
	if now := n.cpus(pin); now != before {
		t.Errorf("the pin moved from CPUs %s to %s", before, now)
	}
	n.stop(pin)
	first, err := n.start(pod, a).First()
	must(t, err)
	if first.CPUs.Size() != 1 || first.Mems != nodesOf(t, first.CPUs) {
		t.Errorf("a pin without that memory sees CPUs %s and nodes %s", first.CPUs, first.Mems)
	}
	must(t, os.WriteFile(block, []byte("1"), 0))
	await(t, func() error {
		if now := n.status().Machine.MemoryBytes; now != all {
			return fmt.Errorf("the plugin takes the machine to have %d bytes, want %d", now, all)
		}
		return nil
	})
	must(t, pod.Remove())
}

// offlineBlock takes the first possible block of a node's memory offline and returns its file, or
// "" if there is none.
func offlineBlock(t *testing.T, node int) string {
	t.Helper()
	blocks, err := filepath.Glob(nodeFile(node, "memory*/online"))
	must(t, err)
	for _, file := range blocks {
		if os.WriteFile(file, []byte("0"), 0) == nil {
			t.Cleanup(func() { _ = os.WriteFile(file, []byte("1"), 0) }) // for the next test if this one fails
			return file
		}
	}
	return ""
}
