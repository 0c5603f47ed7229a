package groups

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/kernel/ioprio"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// priorities are those of single-threaded processes, as in the kernel.
type priorities struct {
	of  map[int]ioprio.Priority
	err error // of the next changes, after which the process has its priority all the same
}

func (p *priorities) Change(given ioprio.Set, to ioprio.Priority, pids ...int) (changed int, err error) {
	for _, pid := range pids {
		if has := p.of[pid]; !has.Set || ioprio.Only(has)&given != 0 {
			p.of[pid] = to
			changed++
		}
	}
	return changed, p.err
}

func level(p workload.IOPriority) ioprio.Priority { return workload.Some(p) }

// want compares the priorities of all processes, "-" for none.
func (p *priorities) want(t *testing.T, when, want string) {
	t.Helper()
	var got string
	for pid := 100; pid < 100+len(p.of); pid++ {
		text := "-"
		if p.of[pid].Set {
			text = p.of[pid].Value.String()
		}
		got += text + " "
	}
	if got != want+" " {
		t.Errorf("%s, the processes have %s, want %s", when, got, want)
	}
}

func (n *testNode) withPriorities(pids ...int) *priorities {
	p := &priorities{of: map[int]ioprio.Priority{}}
	for _, pid := range pids {
		p.of[pid] = ioprio.Priority{}
	}
	n.io, n.kernel.pids = p, pids
	return p
}

// batch adds a running container whose I/O has a priority.
func (n *testNode) batch(name string, pid int, priority ioprio.Priority) *node.Container {
	c := n.start(name, pid)
	n.request(c, priority)
	return c
}

func (n *testNode) request(c *node.Container, priority ioprio.Priority) {
	n.Ledger.PlaceShared(c.Identity(), workload.Request{Class: workload.BE, Tuning: workload.Tuning{IO: workload.IO{Priority: priority}}}, "", time.Time{})
}

// reload joins all processes again, as after a reload of the configuration.
func (n *testNode) reload() { n.Reconfigure(n.Config, true) }

func TestPriorities(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	p := n.withPriorities(100, 101)
	p.of[101] = level(2) // its own
	c := n.batch("job", 100, level(7))
	n.Join(c)
	p.want(t, "at the start", "7 2")
	n.kernel.pids, p.of[102] = append(n.kernel.pids, 102), ioprio.Priority{}
	n.Join(c)
	p.want(t, "with one more process", "7 2 7")
	n.request(c, level(workload.IOIdle))
	n.reload()
	p.want(t, "after a change of the configuration", "idle 2 idle")
	n.request(c, ioprio.Priority{})
	n.reload()
	p.want(t, "with no priority any more", "- 2 -")
	n.request(c, level(6))
	n.reload()
	p.want(t, "with a priority again", "6 2 6")

	again := newNode(t)
	again.Journal = n.Journal // after a restart with another configuration
	again.Joiner = New(again.Node, again.cores, p, nil, "no RDT")
	again.kernel.pids = n.kernel.pids
	again.batch("job", 100, level(7))
	again.Synchronized()
	again.Pass()
	p.want(t, "after a restart", "7 2 7")
	again.LeavePriorities()
	p.want(t, "let go", "- 2 -")
	again.Config = config.Default()
	again.Config.Mode = config.Preview
	again.reload()
	p.want(t, "in preview", "- 2 -")
	if all := journaled(t, again); len(all) > 0 {
		t.Errorf("the journal still has %v", all)
	}
}

func journaled(t *testing.T, n *testNode) (all given) {
	t.Helper()
	if _, err := n.Journal.State(priorityState, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// While a change fails, the journal has every priority that a process may have.
func TestFailedPriority(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	p := n.withPriorities(100)
	c := n.batch("job", 100, level(7))
	n.Join(c)
	p.err = errors.New("the kernel refuses it")
	n.request(c, level(6))
	n.reload()
	if want := (given{c.Path: ioprio.Only(level(7)) | ioprio.Only(level(6))}); !maps.Equal(journaled(t, n), want) {
		t.Errorf("the journal has %v, want %v", journaled(t, n), want)
	}
	if len(c.Unjoined) != 1 || len(n.logged.AllEntries()) != 1 || c.Processes != nil {
		t.Errorf("failures %v, %d log entries, processes %v", c.Unjoined, len(n.logged.AllEntries()), c.Processes)
	}
	if err := RestorePriorities(n.kernel, p, n.Journal); !errors.Is(err, p.err) || len(journaled(t, n)) != 1 {
		t.Errorf("restored: %v, the journal has %v", err, journaled(t, n))
	}
	p.err = nil
	if err := RestorePriorities(n.kernel, p, n.Journal); err != nil || len(journaled(t, n)) != 0 {
		t.Errorf("restored: %v, the journal has %v", err, journaled(t, n))
	}
	p.want(t, "restored", "-")
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
		last = n.batch(fmt.Sprint("job", i), 100+i, level(7))
		n.Join(last)
	}
	if want := (given{last.Path: ioprio.Only(level(7))}); !maps.Equal(journaled(t, n), want) {
		t.Errorf("the journal has %v, want %v", journaled(t, n), want)
	}
}
