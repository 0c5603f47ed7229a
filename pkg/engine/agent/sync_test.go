package agent

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// restart ends the plugin and starts it again.
func (n *testNode) restart(s setup) {
	n.stop()
	n.kernel.took()
	n.launch(s)
	n.connect("")
	n.synchronize()
}

func TestRestartMovesNobody(t *testing.T) {
	for name, s := range map[string]setup{
		"default pools": {},
		"one node":      {machine: "8 cores"},
		"sized pools": {config: withPools(placement.Config{Pools: []placement.Pool{
			{Name: "critical", Size: placement.Size{Count: 2}}, {Name: "online"}, {Name: "batch", Size: placement.Size{Count: 2}},
		}})},
	} {
		for _, keeps := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				s := s
				s.originals = filepath.Join(t.TempDir(), "originals")
				inBubble(t, s, func(t *testing.T, n *testNode) {
					n.run("web", "LS", 1)
					n.run("free", "", 0)
					n.run("batch", "BE", 0)
					n.run("one", "LSR", 2)
					n.run("two", "LSR", 1)
					n.end("one")
					n.run("three", "LSE", 1)
					n.pass()
					before := n.dump()
					if !keeps {
						os.Remove(s.originals)
					}
					n.restart(s)
					if after := n.dump(); after != before {
						t.Errorf("before:\n%s\nafter:\n%s", before, after)
					}
					if got := n.kernel.took(); got != nil {
						t.Errorf("the restart wrote %v", got)
					}
					n.synchronize()
					n.sleep(time.Minute)
					if got := n.kernel.took(); got != nil {
						t.Errorf("the second Synchronize wrote %v", got)
					}
					// Containers found at the start are supervised like those created later.
					n.kernel.change("/kubepods/pod-two/two", func(g *group) { g.cpus = n.kernel.online })
					n.kernel.change("/kubepods/pod-web/web", func(g *group) { g.cpus = n.kernel.online })
					n.pass()
					if after := n.dump(); after != before {
						t.Errorf("drift of a found pin is not repaired: before:\n%s\nafter:\n%s", before, after)
					}
					for _, pin := range []string{"two", "three"} {
						n.end(pin)
					}
					if s.config == nil {
						n.expect(map[string]string{"free": "all"})
					}
				})
			})
		}
	}
}

// TestUnlimitedShares checks that a container without a limit of its own does not count as one
// whose quota Sluice has lifted.
func TestUnlimitedShares(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.pod("free", "", 0)
		n.runc("free")
		n.synchronize()
		n.sleep(time.Minute)
		if writes, sent := n.kernel.took(), n.runtime.sent(); writes != nil || sent != nil {
			t.Errorf("wrote %v, sent %v", writes, sent)
		}
	})
}

func TestCreatedWhileAway(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("one", "LSR", 2)
		n.stop()
		n.pod("two", "LSR", 2)
		n.runc("two")
		n.pod("late", "LSR", 1) // created but not started
		n.pod("ls", "LS", 1)
		n.runc("ls")
		n.pod("odd", "LSR", 1)
		n.pods["odd"].Annotations["cpus.sluice.dev"] = "many"
		n.runc("odd")
		n.pod("huge", "LSR", 100)
		n.runc("huge")
		n.restart(setup{})
		n.expect(map[string]string{"one": "0-1", "web": "5-7", "ls": "5-7", "odd": "5-7", "huge": "5-7"})
		pins := []string{n.cpus("two"), n.container("late").CPUs.String()}
		slices.Sort(pins)
		if pins[0] != "2-3" && pins[0] != "2" || n.container("late").State != placement.Reserved {
			t.Errorf("pins are on %v, late is %s", pins, n.container("late").State)
		}
		if err := n.begin("late"); err != nil {
			t.Error(err)
		}
		if got := n.container("odd"); len(got.Warnings) == 0 || got.Requested != 1000 {
			t.Errorf("odd: %+v", got)
		}
	})
}

// TestRunningBeforeReserved checks a container that never started and whose grant was freed. Its
// spec still has its old CPUs, but it does not get them back from the pin that runs there now, nor
// does it start without CPUs of its own.
func TestRunningBeforeReserved(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		if err := n.create("stale", "LSE", 2); err != nil {
			t.Fatal(err)
		}
		n.sleep(config.Default().ReserveTimeout + time.Minute)
		n.run("big", "LSE", 7)
		before := n.cpus("big")
		n.synchronize()
		n.expect(map[string]string{"big": before})
		if err := n.begin("stale"); err == nil {
			t.Errorf("an LSE container without CPUs of its own was started, on %s", n.cpus("stale"))
		}
		n.expect(map[string]string{"big": before})
	})
}

// TestSharedIsNotOwn checks that a pin which has to share is not taken for the holder of the
// shared set, although that has as many CPUs as the pin requests.
func TestSharedIsNotOwn(t *testing.T) {
	pools := placement.Config{Pools: []placement.Pool{{Name: "critical", Size: placement.Size{Count: 1}}, {Name: "online"}, {Name: "batch"}}}
	s := setup{machine: "4 cores", config: withPools(pools)}
	inBubble(t, s, func(_ *testing.T, n *testNode) {
		n.run("web", "LS", 2)
		n.run("one", "LSR", 1)
		n.pod("db", "LSR", 2)
		n.runc("db")
		for range 2 {
			n.restart(s)
			n.expect(map[string]string{"one": "1", "web": "2-3", "db": "2-3"})
		}
	})
}

// TestDegradedKeepsItsCPUs checks that a restart takes no CPUs from a pin that already lacks some.
func TestDegradedKeepsItsCPUs(t *testing.T) {
	inBubble(t, setup{machine: "4 cores"}, func(_ *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 3)
		n.plug(cpuset.Of(0, 1, 3))
		n.restart(setup{})
		n.expect(map[string]string{"db": "0-1", "web": "3"})
		n.plug(cpuset.Range(0, 3))
		n.expect(map[string]string{"db": "0-2"})
	})
}

// TestBeforeSynchronize checks that nothing is restored before the runtime has listed its
// containers.
func TestBeforeSynchronize(t *testing.T) {
	s := setup{originals: filepath.Join(t.TempDir(), "originals")}
	inBubble(t, s, func(t *testing.T, n *testNode) {
		n.run("db", "LSR", 2)
		n.sleep(5 * time.Second)
		before := n.kernel.String()
		saved := readJournal(t, s.originals).All()
		n.stop()
		n.launch(s)
		n.sleep(time.Minute)
		if after := n.kernel.String(); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		if now := readJournal(t, s.originals).All(); len(saved) == 0 || !slices.Equal(now, saved) {
			t.Errorf("the originals were %v, are %v", saved, now)
		}
	})
}

// TestReconnectKeepsOriginals checks that originals survive the end of a connection, also without
// a journal file.
func TestReconnectKeepsOriginals(t *testing.T) {
	inBubble(t, setup{machine: "4 cores"}, func(t *testing.T, n *testNode) {
		n.run("other", "LSR", 1)
		n.run("db", "LSR", 2)
		n.agent.Disconnected()
		n.connect("")
		n.synchronize()
		n.plug(cpuset.Of(0, 3))
		if got := n.quota("/kubepods/pod-db/db"); got != "2 CPUs" {
			t.Errorf("quota is %s", got)
		}
	})
}

func TestSynchronizePanics(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.pod("two", "LSR", 1)
		n.runc("two")
		was := n.dump()
		n.kernel.refusing(func(knobs.Change) error { panic("boom") })
		pods, specs := n.all()
		if _, err := n.agent.Synchronize(context.Background(), pods, specs); err == nil {
			t.Error("no error")
		}
		n.kernel.refusing(nil)
		if now := n.dump(); now != was {
			t.Errorf("before:\n%s\nafter:\n%s", was, now)
		}
	})
}

func TestPreviewWritesNothing(t *testing.T) {
	inBubble(t, setup{config: func(c *config.Config) { c.Mode = config.Preview }}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.run("huge", "LSR", 100) // such a request would be refused now
		if got := n.container("db").CPUs.String(); got != "0-1" {
			t.Errorf("decided %s", got)
		}
		if err := n.update("db", 50); err != nil {
			t.Errorf("preview refused a resize: %v", err)
		}
		n.plug(cpuset.Range(0, 6))
		n.sleep(time.Minute)
		n.synchronize()
		n.end("db")
		if got := n.kernel.took(); got != nil {
			t.Errorf("wrote %v", got)
		}
		if got := n.specs["web"].Resources.CPUs; got != "" {
			t.Errorf("told the runtime %s", got)
		}
	})
}

// A pod's memory request is inferred from its OOM score, which Sluice may have set.
func TestFoundOOMScore(t *testing.T) {
	t.Parallel()
	score, err := annotation.Give("oom-score", "100")
	if err != nil {
		t.Fatal(err)
	}
	s := setup{config: func(c *config.Config) { c.Classes.LS = annotation.Set{"oom-score": score} }}
	for kubelets, known := range map[int]bool{900: true, 100: false} {
		n := newNode(t, s)
		n.connect("")
		n.pod("web", "LS", 1)
		n.pods["web"].CgroupParent = "/kubepods/burstable/pod-web"
		n.specs["web"].OOMScoreAdj, n.specs["web"].State = kubelets, workload.Running
		n.synchronize()
		err := n.agent.events.Do("test", func() error {
			if h, ok := n.agent.Ledger.Holder(n.specs["web"].ID); !ok || (h.Request.Memory > 0) != known {
				t.Errorf("score %d: %v, memory request %d", kubelets, ok, h.Request.Memory)
			}
			return nil
		})
		if n.stop(); err != nil {
			t.Error(err)
		}
	}
}

// After Synchronize, nothing is left of containers that ended before it.
func TestSynchronizeForgetsWhatEnded(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.agent.Disconnected()
		n.kernel.remove(n.specs["db"].CgroupsPath)
		delete(n.specs, "db")
		n.connect("")
		n.synchronize()
		synctest.Wait()
		if len(n.agent.ByPath) != 1 || len(n.agent.Sandboxes) != 1 || len(n.agent.Containers) != 1 {
			t.Errorf("kept: %d cgroups, %d pods, %d containers", len(n.agent.ByPath), len(n.agent.Sandboxes), len(n.agent.Containers))
		}
	})
}

// A panic in Synchronize leaves the inventory as it was: the same containers by ID, by cgroup and
// by pod.
func TestPanicLeavesTheInventory(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.pass()
		a := n.agent
		before := a.beforeSync()
		byPath, sandboxes := maps.Clone(a.ByPath), maps.Clone(a.Sandboxes)
		n.kernel.refusing(func(knobs.Change) error { panic("a bug") })
		n.kernel.change(n.specs["web"].CgroupsPath, func(g *group) { g.cpus = n.kernel.online })
		pods, specs := n.all()
		if _, err := a.Synchronize(context.Background(), pods, specs); err == nil {
			t.Fatal("nothing has failed")
		}
		n.kernel.refusing(nil)
		after := a.beforeSync()
		if after.ledger != before.ledger || !slices.Equal(after.inventory.Order, before.inventory.Order) || after.synced != before.synced {
			t.Errorf("before %+v, after %+v", before, after)
		}
		if !maps.Equal(a.ByPath, byPath) || !maps.Equal(a.Sandboxes, sandboxes) {
			t.Errorf("cgroups %v, pods %v", a.ByPath, a.Sandboxes)
		}
		n.pass()
		n.expect(map[string]string{"web": "2-7", "db": "0-1"})
	})
}

// An update that was due on an earlier connection is sent on the next one only after the runtime
// has listed its containers.
func TestNoUpdateBeforeSynchronize(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.agent.Disconnected()
		n.connect("")
		n.sleep(time.Minute)
		if sent := n.runtime.sent(); len(sent) > 0 {
			t.Errorf("sent %v", sent)
		}
		n.synchronize()
		n.sleep(time.Minute)
		if len(n.runtime.sent()) == 0 {
			t.Error("nothing is sent after it")
		}
	})
}
