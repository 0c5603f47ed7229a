package agent

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
)

// Readers share a snapshot until something happens. A snapshot that is read after an event
// includes it.
func TestSnapshotIsShared(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		synctest.Wait() // waits for the events that the connection has posted
		first, second := n.status(), n.status()
		if first != second {
			t.Error("two readers at once have a snapshot each")
		}
		n.run("a", "LSE", 2)
		now := n.status()
		if len(now.Containers) != 1 || len(second.Containers) > 0 {
			t.Errorf("after a start there are %d containers; in the snapshot before it %d", len(now.Containers), len(second.Containers))
		}
		time.Sleep(statusCacheTime)
		if n.status() == now {
			t.Error("an old snapshot is given out")
		}
	})
}

func TestErrorsByKnob(t *testing.T) {
	t.Parallel()
	n := newNode(t, setup{})
	defer n.stop()
	busy := &cgroupfs.ChangeError{Change: knobs.Change{Knob: knobs.Quota}, Err: fmt.Errorf("write cpu.max: %w", syscall.EBUSY)}
	n.agent.events.Query("errors", func() error {
		n.agent.Reconciler.CountError(busy, "other")
		n.agent.Reconciler.CountError(busy, "other")
		n.agent.Reconciler.CountError(fmt.Errorf("no reason"), "memory.reclaim")
		n.agent.shown.draft = nil
		return nil
	})
	s := n.status()
	if got := fmt.Sprint(s.Errors); got != "[{cpu.quota EBUSY 2} {memory.reclaim other 1}]" || s.Counters.WriteErrors != 3 {
		t.Errorf("%s, %d in all", got, s.Counters.WriteErrors)
	}
}

func TestFeaturesAndBuild(t *testing.T) {
	t.Parallel()
	n := newNode(t, setup{noKernel: true})
	defer n.stop()
	s := n.status()
	states := map[string]status.Feature{}
	for _, f := range s.Features {
		states[f.Name] = f
		if f.State != "supported" && f.Why == "" {
			t.Errorf("%s is %s, and nobody says why", f.Name, f.State)
		}
	}
	for k := range knobs.Knobs {
		if f := states[k.String()]; f.State != "inconclusive" {
			t.Errorf("%s without cgroups: %+v", k, f)
		}
	}
	for _, name := range []string{"memory.reclaim", "resctrl", "core scheduling", "node watermarks", "newidle balance"} {
		if states[name].State != "unsupported" {
			t.Errorf("%s: %+v", name, states[name])
		}
	}
	if s.StartedAt.IsZero() || s.Config.LoadedAt.IsZero() {
		t.Errorf("started %v, loaded %v", s.StartedAt, s.Config.LoadedAt)
	}
}

// logText holds what the agent has logged.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logText) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), words)
}
