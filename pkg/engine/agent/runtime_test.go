package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func TestRecordsFollow(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("batch", "BE", 0)
		n.sleep(10 * time.Second)
		if got := n.runtime.sent(); got != nil {
			t.Errorf("sent %v before there was anything to tell", got)
		}
		n.run("db", "LSR", 2)
		n.sleep(1900 * time.Millisecond)
		if got := n.runtime.sent(); got != nil {
			t.Errorf("sent %v in a busy moment", got)
		}
		n.create("other", "LS", 1)
		n.sleep(1900 * time.Millisecond)
		if got := n.runtime.sent(); got != nil {
			t.Errorf("sent %v in a busy moment", got)
		}
		n.sleep(200 * time.Millisecond)
		if got, want := n.runtime.sent(), []string{"web 2-7", "batch 2-7"}; !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
		n.end("db")
		n.sleep(3 * time.Second)
		if got, want := n.runtime.sent()[2:], []string{"web 0-7", "batch 0-7"}; !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
	})
}

func TestOneUpdateAtATime(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.runtime.hold()
		n.run("web", "LS", 1)
		n.run("batch", "BE", 0)
		n.run("db", "LSR", 2)
		n.sleep(time.Minute)
		if got := n.runtime.sent(); len(got) != 1 {
			t.Errorf("%v are under way at once", got)
		}
		n.runtime.answer()
		n.sleep(time.Second)
		if got := n.runtime.sent(); len(got) != 2 {
			t.Errorf("sent %v", got)
		}
	})
}

// TestLateUpdate checks an update with CPUs that a pin has been given since: it takes effect after
// other containers have left them.
func TestLateUpdate(t *testing.T) {
	// late brings the node to the point at which an update of web to CPUs 1-7 is pending.
	late := func(n *testNode) {
		n.runtime.hold()
		n.run("web", "LS", 1)
		n.run("one", "LSR", 1)
		n.sleep(3 * time.Second)
	}
	t.Run("repaired when acknowledged", func(t *testing.T) {
		inBubble(t, setup{config: func(c *config.Config) { c.DriftInterval = time.Hour }}, func(t *testing.T, n *testNode) {
			late(n)
			if err := n.create("db", "LSR", 2); err != nil {
				t.Fatal(err)
			}
			n.expect(map[string]string{"web": "3-7"})
			n.runtime.answer()
			n.sleep(0)
			n.expect(map[string]string{"web": "3-7"})
			if got := n.container("web").Drift; got != 1 {
				t.Errorf("drift counted %d times", got)
			}
			if err := n.begin("db"); err != nil {
				t.Fatal(err)
			}
			n.expect(map[string]string{"web": "3-7", "db": "1-2"})
		})
	})
	t.Run("stops the start of a pin on its CPUs", func(t *testing.T) {
		inBubble(t, setup{}, func(t *testing.T, n *testNode) {
			late(n)
			if err := n.create("db", "LSR", 2); err != nil {
				t.Fatal(err)
			}
			if err := n.begin("db"); err == nil || !strings.Contains(err.Error(), "on its way") {
				t.Errorf("got %v", err)
			}
			n.runtime.answer()
			n.sleep(0)
			n.expect(map[string]string{"web": "1-7"})
		})
	})
	t.Run("its CPUs are no pin's to grow into", func(t *testing.T) {
		inBubble(t, setup{}, func(t *testing.T, n *testNode) {
			late(n)
			before := n.dump()
			if err := n.update("one", 2); err == nil {
				t.Error("grew")
			}
			if after := n.dump(); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			n.runtime.answer()
			n.sleep(0)
			if err := n.update("one", 2); err != nil {
				t.Error(err)
			}
		})
	})
}

// An update that the runtime refuses is sent three times, and again only when it has changed.
func TestFailedUpdates(t *testing.T) {
	const maxAttempts = 3
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.runtime.err = errors.New("no such container")
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.sleep(time.Minute)
		if got := n.runtime.sent(); len(got) != maxAttempts {
			t.Errorf("%d attempts", len(got))
		}
		if got := n.status().Counters.RecordUpdateFailures; got != maxAttempts {
			t.Errorf("%d failures counted", got)
		}
		n.runtime.err = nil
		n.run("two", "LSR", 1)
		n.sleep(time.Minute)
		if got := n.specs["web"].Resources.CPUs; got != "3-7" {
			t.Errorf("the next desire is not recorded: the record has %q", got)
		}
	})
}

func TestNoUpdates(t *testing.T) {
	for name, s := range map[string]struct {
		setup
		connect func(*testNode)
	}{
		"old NRI":    {connect: func(n *testNode) { n.connect("NRI is old") }},
		"no runtime": {connect: func(n *testNode) { n.agent.Disconnected() }},
		"config":     {setup: setup{config: func(c *config.Config) { c.RecordUpdates.Enabled = false }}},
		"preview":    {setup: setup{config: func(c *config.Config) { c.Mode = config.Preview }}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, s.setup, func(t *testing.T, n *testNode) {
				if s.connect != nil {
					s.connect(n)
				}
				n.run("web", "LS", 1)
				n.run("db", "LSR", 2)
				n.sleep(time.Minute)
				if got := n.runtime.sent(); got != nil {
					t.Errorf("sent %v", got)
				}
			})
		})
	}
}

func TestDisconnectInFlight(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.runtime.hold()
		n.run("web", "LS", 1)
		n.run("one", "LSR", 1)
		n.sleep(3 * time.Second)
		n.agent.Disconnected()
		n.connect("")
		n.synchronize()
		n.run("db", "LSR", 2)
		n.runtime.answer() // the old update takes effect now
		n.pass()
		n.expect(map[string]string{"web": "3-7", "db": "1-2"})
		n.sleep(5 * time.Second)
		if got := n.specs["web"].Resources.CPUs; got != "3-7" {
			t.Errorf("the record has %q", got)
		}
	})
}

// TestNoUpdateOverQuota checks that a pin which lost its CPUs is sent no update, because the
// runtime's record has no limit for it and the runtime would write that.
func TestNoUpdateOverQuota(t *testing.T) {
	inBubble(t, setup{machine: "4 cores"}, func(t *testing.T, n *testNode) {
		n.run("db", "LSR", 2)
		n.run("two", "LSR", 1)
		n.plug(cpuset.Of(3))
		n.sleep(time.Minute)
		for _, u := range n.runtime.sent() {
			if strings.HasPrefix(u, "two") || strings.HasPrefix(u, "db") {
				t.Errorf("sent %s", u)
			}
		}
		if got := n.quota("/kubepods/pod-db/db"); got != "2 CPUs" {
			t.Errorf("a pin without CPUs has quota %s", got)
		}
	})
}
