package groups

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// priorities has the processes that are in the idle class. All are of one container.
type priorities struct {
	kernel *kernel
	idle   map[int]bool
	err    error // of the next changes, which the processes get all the same
}

func (p *priorities) Idle(string) (changed int, err error)    { return p.set(true) }
func (p *priorities) Restore(string) (changed int, err error) { return p.set(false) }

func (p *priorities) set(idle bool) (changed int, err error) {
	for _, pid := range p.kernel.pids {
		if p.idle[pid] != idle {
			changed++
		}
		p.idle[pid] = idle
	}
	return changed, p.err
}

func (p *priorities) want(t *testing.T, when string, want ...int) {
	t.Helper()
	var got []int
	for pid, idle := range p.idle {
		if idle {
			got = append(got, pid)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s, %v are idle, want %v", when, got, want)
	}
}

func (n *testNode) withPriorities(pids ...int) *priorities {
	p := &priorities{kernel: n.kernel, idle: map[int]bool{}}
	n.io, n.kernel.pids = p, pids
	return p
}

// batch adds a running container whose I/O has a priority.
func (n *testNode) batch(name string, pid int, priority workload.IOPriority) *node.Container {
	c := n.start(name, pid)
	n.request(c, priority)
	return c
}

func (n *testNode) request(c *node.Container, priority workload.IOPriority) {
	n.Ledger.PlaceShared(c.Identity(), workload.Request{Class: workload.BE, Tuning: workload.Tuning{IO: workload.IO{Priority: priority}}}, "", time.Time{})
}

// reload joins all processes again, as after a reload of the configuration.
func (n *testNode) reload() { n.Reconfigure(n.Config, true) }

func TestPriorities(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	p := n.withPriorities(100, 101)
	c := n.batch("job", 100, workload.IOIdle)
	n.Join(c)
	p.want(t, "at the start", 100, 101)
	n.kernel.pids = append(n.kernel.pids, 102)
	n.Join(c)
	p.want(t, "with one more process", 100, 101, 102)
	n.request(c, workload.IONormal)
	n.kernel.pids = append(n.kernel.pids, 103)
	n.Join(c)
	p.want(t, "no longer asked for when one more process comes")
	n.kernel.pids = n.kernel.pids[:3]
	n.request(c, workload.IOIdle)
	n.reload()
	for _, priority := range []workload.IOPriority{workload.IONormal, workload.IOUnset} {
		n.request(c, priority)
		n.reload()
		p.want(t, "no longer asked for")
		n.request(c, workload.IOIdle)
		n.reload()
		p.want(t, "asked for again", 100, 101, 102)
	}

	again := newNode(t)
	again.Journal = n.Journal // after a restart with another configuration
	again.Joiner = New(again.Node, again.cores, p, nil, "no RDT")
	again.kernel.pids = n.kernel.pids
	c = again.batch("job", 100, workload.IONormal)
	again.Synchronized()
	again.Pass()
	p.want(t, "after a restart")
	again.request(c, workload.IOIdle)
	again.reload()
	p.want(t, "after a reload", 100, 101, 102)
	again.LeavePriorities()
	p.want(t, "let go")
	again.Config = config.Default()
	again.Config.Mode = config.Preview
	again.reload()
	p.want(t, "in preview")
	if all := journaled(t, again); len(all) > 0 {
		t.Errorf("the journal still has %v", all)
	}
}

func journaled(t *testing.T, n *testNode) (paths []string) {
	t.Helper()
	if _, err := n.Journal.State(idleState, &paths); err != nil {
		t.Fatal(err)
	}
	return paths
}

// The journal has a container's cgroup until its processes are certain not to be idle.
func TestFailedPriority(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	p := n.withPriorities(100)
	c := n.batch("job", 100, workload.IOIdle)
	p.err = errors.New("the kernel refuses it")
	n.Join(c)
	if len(c.Unjoined) != 1 || len(n.logged.AllEntries()) != 1 || c.Processes != nil {
		t.Errorf("failures %v, %d log entries, processes %v", c.Unjoined, len(n.logged.AllEntries()), c.Processes)
	}
	n.request(c, workload.IONormal)
	n.reload()
	if err := RestorePriorities(p, n.Journal); !errors.Is(err, p.err) || !slices.Equal(journaled(t, n), []string{c.Path}) {
		t.Errorf("restored: %v, the journal has %v", err, journaled(t, n))
	}
	p.err = nil
	if err := RestorePriorities(p, n.Journal); err != nil || len(journaled(t, n)) > 0 {
		t.Errorf("restored: %v, the journal has %v", err, journaled(t, n))
	}
	p.want(t, "restored")
}

// Containers that are gone leave the journal.
func TestJournalOfPriorities(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.withPriorities()
	var last *node.Container
	for i := range 20 {
		if last != nil {
			n.Forget(last.ID)
		}
		last = n.batch(fmt.Sprint("job", i), 100+i, workload.IOIdle)
		n.Join(last)
	}
	if got := journaled(t, n); !slices.Equal(got, []string{last.Path}) {
		t.Errorf("the journal has %v, want %s alone", got, last.Path)
	}
}
