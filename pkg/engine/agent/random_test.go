package agent

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// bubbles checks a property with each input in a synctest bubble of its own.
func bubbles(t *testing.T, property func(*rapid.T)) {
	rapid.Check(t, func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(*testing.T) {
			defer func() { failure = recover() }()
			property(rt)
		})
		// rapid distinguishes failures by the place that raised them.
		switch kind := fmt.Sprintf("%T", failure); kind {
		case "<nil>":
		case "rapid.invalidData":
			panic(failure)
		default:
			panic(failure)
		}
	})
}

// running reports whether the container was started.
func (n *testNode) running(name string) bool { return n.specs[name].State == workload.Running }

// loop runs a function in the agent's event loop.
func (n *testNode) loop(do func()) {
	n.agent.events.Do("test", func() error { do(); return nil })
}

// noOverlap compares the kernel's sets of running containers with the pins.
func (n *testNode) noOverlap(t *rapid.T) {
	containers := n.status().Containers
	n.kernel.mu.Lock()
	defer n.kernel.mu.Unlock()
	for _, pin := range containers {
		if !pin.Class.Pinned() || pin.State != placement.Held || pin.Pool != "" {
			continue
		}
		for name, s := range n.specs {
			if g := n.kernel.groups[s.CgroupsPath]; name != pin.ID && g != nil && g.cpus.Overlaps(pin.CPUs) {
				t.Fatalf("%s runs on %s, which has CPUs of %s's %s", name, g.cpus, pin.ID, pin.CPUs)
			} else if g != nil && g.cpus.IsEmpty() {
				t.Fatalf("%s has no CPUs", name)
			}
		}
	}
}

// TestRandomEvents runs random events on a node. After each, no running container's cpuset in the
// kernel has a CPU of another started pin; when all containers are gone, nothing of them is left.
// The runtime's updates take effect late, and are answered before the next event, as are the
// repairs: until then CPUs may be shared for a moment.
func TestRandomEvents(t *testing.T) {
	t.Parallel()
	divisions := []placement.Config{
		placement.Default(),
		{Pools: []placement.Pool{{Name: "critical", Size: placement.Size{Count: 2}}, {Name: "online"}, {Name: "batch", Size: placement.Size{Count: 2}}}},
		{Mode: placement.Exclusive, Pools: []placement.Pool{{Name: "critical", Size: placement.Size{Count: 1}}, {Name: "online"}, {Name: "batch", Size: placement.Size{Count: 2}}}},
	}
	bubbles(t, func(t *rapid.T) {
		division := divisions[rapid.IntRange(0, len(divisions)-1).Draw(t, "division")]
		n := newNode(t, setup{config: func(c *config.Config) {
			withPools(division)(c)
			c.RecordUpdates.Enabled = false // the test sends the updates
		}})
		defer n.stop()
		n.connect("")
		n.synchronize()
		names := func(t *rapid.T, state func(string) bool) string {
			all := slices.Sorted(maps.Keys(n.specs))
			all = slices.DeleteFunc(all, func(name string) bool { return !state(name) })
			if len(all) == 0 {
				t.Skip("nobody")
			}
			return rapid.SampledFrom(all).Draw(t, "name")
		}
		anyone := func(string) bool { return true }
		created := func(name string) bool { return !n.running(name) }
		made := 0
		var seen reader
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { n.noOverlap(t); seen.read(t, n.agent) },
			"create": func(t *rapid.T) {
				made++
				class := rapid.SampledFrom([]string{"LSR", "LSE", "LS", "BE"}).Draw(t, "class")
				cpus := rapid.IntRange(1, 4).Draw(t, "cpus")
				name := fmt.Sprintf("p%d/c%d", made/2, made)
				n.pod(name, class, cpus)
				n.agent.events.Do("catch up", func() error { n.agent.cpusets.Apply(""); return nil }) // tries at once what a pass would try later
				before := n.dump()
				if err := n.ask(name, class, cpus); err == nil {
					if rapid.Bool().Draw(t, "made") { // otherwise the runtime has failed to create it, and reports that to nobody
						n.agent.PostCreateContainer(name)
					}
				} else {
					if after := n.dump(); after != before {
						t.Fatalf("refused (%v), and yet: before\n%s\nafter\n%s", err, before, after)
					}
				}
			},
			"refused by the kernel": func(t *rapid.T) {
				victim := n.specs[names(t, n.running)].CgroupsPath
				made++
				n.kernel.refusing(func(c knobs.Change) error {
					if c.Object.Path == victim {
						return fmt.Errorf("busy")
					}
					return nil
				})
				n.create(fmt.Sprintf("p%d/c%d", made/2, made), "LSR", 3)
				for range rapid.IntRange(0, 4).Draw(t, "passes") {
					n.pass()
				}
				n.kernel.refusing(nil)
				n.pass()
			},
			"start":  func(t *rapid.T) { n.begin(names(t, created)) },
			"end":    func(t *rapid.T) { n.end(names(t, anyone)) },
			"resize": func(t *rapid.T) { n.update(names(t, n.running), rapid.IntRange(1, 4).Draw(t, "cpus")) },
			"another writer": func(t *rapid.T) {
				name := names(t, n.running)
				n.kernel.change(n.specs[name].CgroupsPath, func(g *group) { g.cpus = n.kernel.online })
				n.pass()
			},
			"unplug": func(t *rapid.T) {
				off := cpuset.Of(rapid.SliceOfN(rapid.IntRange(1, 7), 0, 2).Draw(t, "off")...)
				n.plug(cpuset.Difference(cpuset.Range(0, 7), off))
			},
			"sizes": func(t *rapid.T) {
				sizes := rapid.SliceOfN(rapid.IntRange(0, 5), 0, len(division.Pools)).Draw(t, "sizes")
				n.loop(func() { n.agent.Ledger.SetSizes(sizes) })
				n.pass()
			},
			"late update": func(t *rapid.T) {
				name := names(t, n.running)
				c := n.container(name)
				cpus := c.CPUs
				if cpus.IsEmpty() {
					cpus = n.kernel.online
				}
				n.runtime.hold()
				n.loop(func() { n.agent.record.Send(n.agent.Containers[name], node.Settings{CPUs: cpus}) })
				made++
				n.create(fmt.Sprintf("p%d/c%d", made/2, made), "LSR", 2)
				n.runtime.answer()
				n.sleep(0)
			},
			"synchronize": func(t *rapid.T) {
				n.pass()
				n.synchronize()
				first := n.dump()
				n.kernel.took()
				n.synchronize()
				if got := n.kernel.took(); len(got) > 0 {
					t.Fatalf("the second Synchronize wrote %v; before\n%s\nafter\n%s", got, first, n.dump())
				}
			},
			"pass": func(_ *rapid.T) { n.pass() },
		})
		n.plug(cpuset.Range(0, 7))
		for _, name := range slices.Sorted(maps.Keys(n.specs)) {
			if n.container(name).Class.Pinned() || !n.running(name) {
				n.end(name)
			}
		}
		n.pass()
		for name := range n.specs {
			n.loop(func() {
				c := n.agent.Containers[name]
				want, _ := n.agent.Ledger.Assignment(name)
				if c.Started && c.Touched && want.CPUs.IsEmpty() && n.cpus(name) != "all" {
					t.Fatalf("%s is on %s with no pin left", name, n.cpus(name))
				}
			})
		}
		for _, name := range slices.Sorted(maps.Keys(n.specs)) {
			n.end(name)
		}
		if s := n.status(); len(s.Containers) > 0 || !s.Machine.Pinned.IsEmpty() || s.Counters.Panics > 0 {
			t.Fatalf("left: %v, %d panics; log:\n%s", s.Containers, s.Counters.Panics, n.log.text.String())
		}
		n.loop(func() {
			if len(n.agent.Containers)+len(n.agent.Order)+n.agent.cpusets.Lifted() > 0 {
				t.Fatalf("left: %d containers, %d in order, %d pods", len(n.agent.Containers), len(n.agent.Order), n.agent.cpusets.Lifted())
			}
		})
		for path, g := range n.kernel.groups {
			if g.quota != n.originals[path] {
				t.Fatalf("%s has quota %s, had %s", path, g.quota, n.originals[path])
			}
		}
	})
}
