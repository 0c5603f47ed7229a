package agent

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Sampler looks at what the node and its containers do; see pkg/engine/sampler.
type Sampler interface {
	// Sample fills a snapshot, and says how long to wait from its start to the next. The
	// error tells of each kind of failure once.
	Sample(now time.Time, targets []observe.Target, into *observe.Snapshot) (next time.Duration, err error)
	// Failures counts the reads that failed, by kind.
	Failures() []status.Failure
}

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

// loop is what the controllers see, want and have decided.
type loop struct {
	controllers colocation.Controllers
	made        bool // the controllers
	failed      string
	panic       string // told last

	view    colocation.NodeView
	sized   uint64    // ledger version of the view's pools
	looked  uint64    // ledger version of the view
	changes uint64    // of the inventory, when the view was made
	due     time.Time // of the controllers that step each control.interval

	inherited bool // from an earlier run
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

func newLoop() loop {
	return loop{
		shareOf: notShared,
	}
}

// Tick steps the controllers with what was observed: the fast ones at each call, the
// others when control.interval has passed. It returns what to observe next, nil if that
// has changed: see Targets.
func (a *Agent) Tick(s *observe.Snapshot) []observe.Target {
	t := &a.ticks
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen = s
	select {
	case a.events <- t.run:
		return <-t.done
	case <-a.closed:
		return nil
	}
}

// ticks is an event that is made once: ten a second are to allocate nothing.
type ticks struct {
	mu   sync.Mutex // one at a time
	seen *observe.Snapshot
	run  func()
	done chan []observe.Target
}

func (a *Agent) prepareTicks() {
	t := &a.ticks
	t.done = make(chan []observe.Target)
	t.run = func() {
		a.tick(t.seen)
		var next []observe.Target
		if !a.isStale() {
			next = a.loop.view.Targets
		}
		t.done <- next
	}
}

// Targets lists what is to be observed. The list is never changed: a new one takes
// its place.
func (a *Agent) Targets() (targets []observe.Target) {
	a.do("targets", func() error { //nolint:errcheck // only a closed agent fails it
		if a.isStale() {
			a.look()
		}
		targets = a.loop.view.Targets
		return nil
	})
	return targets
}

// sample looks at the node as often as the sampler asks for, and when something wakes
// it, and steps the controllers.
func (a *Agent) sample(ctx context.Context) {
	var s observe.Snapshot
	var targets []observe.Target
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.options.Wake:
		case <-next.C:
		}
		began := time.Now()
		var wait time.Duration
		wait, targets = a.sampleOnce(ctx, &s, targets)
		next.Reset(max(wait/10, wait-time.Since(began)))
	}
}

// sampleOnce looks at targets, or asks for them, and steps once. It says how long to wait,
// and what to look at then. Once the context has ended it decides nothing: the sampler's
// files may have been closed under the look.
func (a *Agent) sampleOnce(ctx context.Context, s *observe.Snapshot, targets []observe.Target) (wait time.Duration, next []observe.Target) {
	defer func() {
		if p := recover(); p != nil {
			wait, next = time.Second, nil
			a.post("sampling", func() { a.panicked("looking at the node", p) })
		}
	}()
	if targets == nil {
		targets = a.Targets()
	}
	wait, err := a.options.Sampler.Sample(a.Now(), targets, s)
	if ctx.Err() != nil {
		return wait, nil
	}
	if err != nil {
		a.Log.WithError(err).Warn("Not all that the loop looks at can be read; told once")
	}
	return wait, a.Tick(s)
}

// panicked counts a panic, and tells of those that differ from the one before.
func (a *Agent) panicked(where string, p any) {
	a.Counters.Panics++
	if text := fmt.Sprint(where, p); text != a.loop.panic {
		a.loop.panic = text
		a.Log.Errorf("panic in %s, told once: %v\n%s", where, p, debug.Stack())
	}
}

func (a *Agent) tick(s *observe.Snapshot) {
	a.moves++
	a.Reconciler.BeginEvent()
	defer func() {
		if p := recover(); p != nil {
			a.panicked("the control loop", p)
		}
	}()
	if a.options.Failsafe != nil {
		a.options.Failsafe.Beat()
	}
	if !a.Synced || !a.begin() {
		return
	}
	l, interval := &a.loop, a.Config.Control.Interval
	all := !s.Now.Before(l.due) || s.Now.Before(l.due.Add(-2*interval)) // the clock went back
	if all {
		// Half a tick less: one that comes a little early would be left out.
		l.due = s.Now.Add(interval - a.Config.Control.FastInterval/2)
	}
	carried := (all || s.Now.Sub(l.view.Now) > interval) && a.afterFailsafe() // it may have stalled
	if a.isStale() || l.looked != a.Ledger.Version() {
		a.look()
	}
	if all {
		l.allPodsLimit = a.limitOfAllPods()
	}
	l.view.Observe(s, l.allPodsLimit)
	a.MachineMemory = cmp.Or(l.view.MachineMemory, a.MachineMemory)
	if carried { // the CPUs were busy with others than their pools
		l.view.ForgetPoolLoad()
	}
	if all {
		l.view.Stays = a.stays()
		l.view.Isolated = l.view.Stays == ""
	}
	a.step(all)
	a.decisions.EndResting(s.Now)
	if all {
		a.refreshFailsafePlan()
	}
}

// begin makes the controllers at the first tick.
func (a *Agent) begin() bool {
	l := &a.loop
	if l.made {
		return true
	}
	made, err := colocation.NewControllers(a.loopSettings(a.Config), a.learned())
	if err != nil {
		if err.Error() != l.failed {
			l.failed = err.Error()
			a.Log.WithError(err).Error("No control loop")
		}
		return false
	}
	l.controllers, l.made = made, true
	a.Changed()
	return true
}
