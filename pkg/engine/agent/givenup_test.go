package agent

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// expiring is the context of a call that the runtime gives up on while its event runs: the
// event's beginning finds it alive, and everything later finds it ended.
type expiring struct {
	context.Context //nolint:containedctx // it is a context itself
	begun           bool
}

func whileItRuns() context.Context { return &expiring{Context: context.Background()} }

func (e *expiring) Err() error {
	if !e.begun {
		e.begun = true
		return nil
	}
	return context.DeadlineExceeded
}

// beforeItBegins is the context of a call that the runtime has given up on already.
func beforeItBegins() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A creation or a resize whose answer the runtime doesn't read leaves nothing behind: neither
// in the ledger nor in the kernel. The runtime can repeat it.
func TestGivenUp(t *testing.T) {
	create := func(ctx context.Context, n *testNode) error {
		_, _, err := n.agent.CreateContainer(ctx, n.podOf("new"), *n.specs["new"])
		return err
	}
	resize := func(ctx context.Context, n *testNode) error {
		change := workload.Resources{Quota: 400_000, Period: 100_000, Shares: 4096}
		_, err := n.agent.UpdateContainer(ctx, n.podOf("db"), *n.specs["db"], change)
		return err
	}
	shrink := func(ctx context.Context, n *testNode) error {
		change := workload.Resources{Quota: 100_000, Period: 100_000, Shares: 1024}
		_, err := n.agent.UpdateContainer(ctx, n.podOf("db"), *n.specs["db"], change)
		return err
	}
	for name, test := range map[string]struct {
		call func(context.Context, *testNode) error
		ctx  func() context.Context
	}{
		"a creation":                    {create, whileItRuns},
		"a creation that has not begun": {create, beforeItBegins},
		"a larger resize":               {resize, whileItRuns},
		"a smaller resize":              {shrink, whileItRuns},
		"a resize that has not begun":   {resize, beforeItBegins},
		"a synchronization not begun":   {func(ctx context.Context, n *testNode) error { _, err := n.agent.Synchronize(ctx, nil, nil); return err }, beforeItBegins},
		"a pod's resize that has not begun": {func(ctx context.Context, n *testNode) error {
			return n.agent.UpdatePod(ctx, "sandbox-db", workload.Resources{Shares: 99})
		}, beforeItBegins},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, setup{}, func(t *testing.T, n *testNode) {
				n.run("web", "LS", 1)
				n.run("db", "LSR", 2)
				n.pod("new", "LSR", 2)
				before, pinned := n.dump(), n.agent.Ledger.Pinned()
				want := map[string]string{"web": n.cpus("web"), "db": n.cpus("db")}
				if err := test.call(test.ctx(), n); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
					t.Errorf("the call returns %v", err)
				}
				n.expect(want)
				if after := n.dump(); after != before {
					t.Errorf("before:\n%s\nafter:\n%s", before, after)
				}
				if now := n.agent.Ledger.Pinned(); now != pinned {
					t.Errorf("%s pinned, want %s", now, pinned)
				}
				if c := n.status().Counters; c.Refused != 0 || c.ResizesRefused != 0 || c.Resized != 0 {
					t.Errorf("it counts as decided: %+v", c)
				}
				if err := test.call(context.Background(), n); err != nil {
					t.Errorf("repeated: %v", err)
				}
			})
		})
	}
}

// A start whose answer the runtime doesn't read may have started the container: it keeps its
// CPUs until its cgroup is empty.
func TestStartGivenUp(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		if err := n.create("db", "LSR", 2); err != nil {
			t.Fatal(err)
		}
		n.runc("db")
		if err := n.agent.StartContainer(beforeItBegins(), n.podOf("db"), *n.specs["db"]); err == nil || n.agent.Containers["db"].Started {
			t.Fatalf("it has begun, and returns %v", err)
		}
		if err := n.agent.StartContainer(whileItRuns(), n.podOf("db"), *n.specs["db"]); err == nil {
			t.Error("no error tells that nobody has read the answer")
		}
		n.pass()
		n.expect(map[string]string{"db": "0-1"})
		n.kernel.change(n.specs["db"].CgroupsPath, func(g *group) { g.empty = true })
		n.pass()
		if pinned := n.agent.Ledger.Pinned(); !pinned.IsEmpty() {
			t.Errorf("%s are still pinned", pinned)
		}
	})
}

// The end of a container counts even if nobody waits for the answer. The updates that the answer
// had for other containers come again with the next one.
func TestStopGivenUp(t *testing.T) {
	inBubble(t, setup{noKernel: true}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		if got := n.specs["web"].Resources.CPUs; got != "2-7" {
			t.Fatalf("web has %s", got)
		}
		if _, err := n.agent.StopContainer(beforeItBegins(), "db"); err == nil {
			t.Error("no error tells that nobody has read the answer")
		}
		if pinned := n.agent.Ledger.Pinned(); !pinned.IsEmpty() {
			t.Errorf("%s are still pinned", pinned)
		}
		updates, err := n.agent.StopContainer(context.Background(), "nobody")
		if err != nil || len(updates) != 1 || updates[0].ContainerID != "web" || updates[0].CPUs.String() != "0-7" {
			t.Errorf("the next answer has %+v, %v", updates, err)
		}
	})
}
