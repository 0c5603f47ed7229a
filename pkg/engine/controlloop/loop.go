// Package controlloop runs the node's control loop: it makes the view of the node that the
// controllers decide by (pkg/decide/control, pkg/decide/colocation), steps them, and carries out
// what they want, in this order: sizes of pools and lent CPUs, quotas and weights, memory, cache,
// an eviction. It also tells which batch work may start, keeps the failsafe's plan, which holds
// when this process is gone, up to date, and gives back what a reload no longer wants.
package controlloop

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/cpusets"
	"github.com/sluice-dev/sluice/pkg/engine/decisionlog"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/engine/groups"
	"github.com/sluice-dev/sluice/pkg/engine/memorylimit"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/podsettings"
	"github.com/sluice-dev/sluice/pkg/engine/runtimerecord"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Failsafe gives services back what they request when this process is gone; see
// pkg/engine/failsafe. None of its methods waits.
type Failsafe interface {
	// Keep replaces what is to be done then. The channel is closed when that was written,
	// or couldn't be; nil: it is.
	Keep(changes []knobs.Change) (written <-chan struct{})
	// Beat is a sign of life.
	Beat()
	// Acted tells what was done, once.
	Acted() (failsafe.Acted, bool)
}

// Options are what the loop needs of the host.
type Options struct {
	Failsafe Failsafe // nil without one
	Evictor  Evictor  // nil: evictions are reported alone
	StateDir string   // of the batch switch; "" without one
	// Failures counts the samples that failed, by kind; nil where nothing is sampled.
	Failures func() []status.Failure
}

// Parts are the parts of the engine that carry out what the controllers want.
type Parts struct {
	CPUSets   *cpusets.Writer
	Settings  *podsettings.Settings
	Groups    *groups.Joiner
	Record    *runtimerecord.Recorder
	Decisions *decisionlog.Log
}

// Loop steps the controllers and carries out what they want. The agent's loop of events owns it.
type Loop struct {
	*node.Node
	Parts
	Options // a reload may replace them between two steps
	Memory  *memorylimit.Limiter
	life    context.Context //nolint:containedctx // of the agent: an eviction ends with it

	Controllers colocation.Controllers
	made        bool // the controllers
	failed      string
	panic       string // last logged

	// View is what the controllers see of the node.
	View    colocation.NodeView
	sized   node.LedgerState // of the view's pools
	viewed  node.LedgerState // of the view
	changes uint64           // of the inventory, when the view was made
	due     time.Time        // of the controllers that step each control.interval

	// Inherited says that the loop has taken over what an earlier run had set.
	Inherited bool
	safe      failsafePlan

	allPodsLimit knobs.Bytes // of memory; 0 none

	divider  colocation.BudgetDivider
	shareOf  workload.MilliCPU // the budget that was divided last
	released uint64            // see podsettings.Settings.Released, when that was
	sizes    []int             // last given to the ledger

	poolSizes   control.PoolSizes
	short       []control.Shortage
	budget      control.Budget
	refusal     control.Refusal
	ruleRefuses string

	switched      control.Switch
	switchProblem string

	disturbed []control.Disturbance
	advice    []control.Advice
	offer     control.Offer
	free      []int
	given     workload.MilliCPU
	evicted   int
	keptAt    time.Time
}

// New makes a loop that has seen nothing yet. An eviction that is under way ends with the
// context.
func New(ctx context.Context, n *node.Node, parts Parts, memory memorylimit.Host, o Options) *Loop {
	l := &Loop{Node: n, Parts: parts, Options: o, life: ctx, shareOf: notShared}
	l.Memory = memorylimit.New(n, memory, &l.View, parts.Settings.IsResizing)
	return l
}

// Tick steps the controllers with what was observed: the fast ones at each call, all of them
// when control.interval has passed.
func (l *Loop) Tick(s *observe.Snapshot) {
	defer func() {
		if p := recover(); p != nil {
			l.Panicked("the control loop", p)
		}
	}()
	if l.Failsafe != nil {
		l.Failsafe.Beat()
	}
	if !l.Synced || !l.begin() {
		return
	}
	interval := l.Config.Control.Interval
	all := !s.Now.Before(l.due) || s.Now.Before(l.due.Add(-2*interval)) // the clock went back
	if all {
		// Half a tick less: one that comes a little early would be left out.
		l.due = s.Now.Add(interval - l.Config.Control.FastInterval/2)
	}
	carried := (all || s.Now.Sub(l.View.Now) > interval) && l.afterFailsafe() // it may have stalled
	if l.IsStale() || l.viewed != l.LedgerState() {
		l.Refresh()
	}
	if all {
		l.allPodsLimit = l.limitOfAllPods()
	}
	l.View.Observe(s, l.allPodsLimit)
	l.MachineMemory = cmp.Or(l.View.MachineMemory, l.MachineMemory)
	if carried { // the CPUs were busy with others than their pools
		l.View.ForgetPoolLoad()
	}
	if all {
		l.View.Stays = l.stays()
		l.View.Isolated = l.View.Stays == ""
	}
	l.step(all)
	l.Decisions.EndResting(s.Now)
	if all {
		l.refreshFailsafePlan()
	}
}

// begin makes the controllers at the first tick.
func (l *Loop) begin() bool {
	if l.made {
		return true
	}
	made, err := colocation.NewControllers(l.loopSettings(l.Config), l.learned())
	if err != nil {
		if err.Error() != l.failed {
			l.failed = err.Error()
			l.Log.WithError(err).Error("No control loop")
		}
		return false
	}
	l.Controllers, l.made = made, true
	l.Changed()
	return true
}

// IsStale reports whether what runs has changed since the controllers' view was made.
func (l *Loop) IsStale() bool { return l.changes != l.Changes }

// Update makes the controllers' view of what exists anew where that has changed, once they step.
func (l *Loop) Update() {
	if l.made && l.IsStale() {
		l.Refresh()
	}
}

// Refresh makes the controllers' view of what exists anew.
func (l *Loop) Refresh() {
	l.changes, l.viewed, l.sized, l.shareOf = l.Changes, l.LedgerState(), l.LedgerState(), notShared
	l.View.SetInventory(l.Settings.Collect())
}

// measurePools enters the CPUs that the pools have now.
func (l *Loop) measurePools() {
	l.sized = l.LedgerState()
	l.View.SetPoolCPUs(l.Ledger.Pools())
}

// limitOfAllPods is the memory that all pods together may hold; 0 for no limit.
func (l *Loop) limitOfAllPods() knobs.Bytes {
	dir := l.AllPods()
	if dir == "" || l.Kernel == nil {
		return 0
	}
	limit, err := l.Kernel.Read(dir, knobs.MemoryMax)
	if err != nil {
		return 0
	}
	return max(0, limit.(knobs.Bytes))
}

// Panicked counts a panic, and logs it unless it is the one that was logged last.
func (l *Loop) Panicked(where string, p any) {
	l.Counters.Panics++
	if text := fmt.Sprint(where, p); text != l.panic {
		l.panic = text
		l.Log.Errorf("panic in %s, logged once: %v\n%s", where, p, debug.Stack())
	}
}
