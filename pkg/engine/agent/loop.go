package agent

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/controlloop"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
)

// Sampler reads the counters of the node and its containers; see pkg/engine/sampler.
type Sampler interface {
	// Sample fills a snapshot, and returns how long to wait from its start to the next sample.
	// The list of targets is never changed later; another may replace it.
	// The error reports each kind of failure once.
	Sample(now time.Time, targets []observe.Target, into *observe.Snapshot) (next time.Duration, err error)
	// Failures counts the reads that failed, by kind.
	Failures() []status.Failure
}

// loopOptions lists the host's facilities that the control loop needs.
func (a *Agent) loopOptions() controlloop.Options {
	o := controlloop.Options{
		Failsafe: a.options.Failsafe, StateDir: a.options.StateDir, FleetSwitch: a.options.FleetSwitch, LearnedUsage: a.options.LearnedUsage,
		Evictor: a.options.Evictor, LastResort: a.options.LastResort, EvictorProblem: a.options.EvictorProblem, APIPods: a.options.APIPods,
		Notices: a.options.Notices, Latencies: a.options.Latencies, OnHostNetwork: a.options.OnHostNetwork,
		Shaper: a.options.Shaper,
	}
	if a.options.Sampler != nil {
		o.Failures = a.options.Sampler.Failures
	}
	return o
}

// Tick steps the controllers with a snapshot: the fast ones at each call, the others when
// control.interval has passed. It returns the new list of targets to observe, or nil if the
// list has not changed; see Targets.
func (a *Agent) Tick(s *observe.Snapshot) []observe.Target {
	t := &a.ticks
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen = s
	if !a.events.Submit(t.run) {
		return nil
	}
	return <-t.done
}

// ticks is a tick event that is allocated once, since ten events a second must not produce
// garbage.
type ticks struct {
	mu   sync.Mutex // held during a tick
	seen *observe.Snapshot
	run  func()
	done chan []observe.Target
}

func (a *Agent) prepareTicks() {
	t := &a.ticks
	t.done = make(chan []observe.Target)
	t.run = func() {
		a.events.Moved()
		a.Reconciler.BeginEvent()
		a.loop.Tick(t.seen)
		var next []observe.Target
		if !a.loop.IsStale() {
			next = a.loop.View.Targets()
		}
		t.done <- next
	}
}

// Targets lists the containers to observe. The agent never changes a list that it has returned;
// a new list replaces it.
func (a *Agent) Targets() (targets []observe.Target) {
	a.events.Do("targets", func() error { //nolint:errcheck // fails only if the agent has ended
		if a.loop.IsStale() {
			a.loop.Refresh()
		}
		targets = a.loop.View.Targets()
		return nil
	})
	return targets
}

// sample takes samples, at the sampler's interval and whenever Options.Wake asks for one, and
// steps the controllers with them.
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

// sampleOnce samples the targets, which it asks the agent for if there are none, and steps the
// controllers once. It returns how long to wait and the targets for the next sample. Once the
// context has ended it steps no controller: the sampler's files may have been closed during the
// sample.
func (a *Agent) sampleOnce(ctx context.Context, s *observe.Snapshot, targets []observe.Target) (wait time.Duration, next []observe.Target) {
	defer func() {
		if p := recover(); p != nil {
			wait, next = time.Second, nil
			a.Post("sampling", func() { a.loop.Panicked("looking at the node", p) })
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
		a.Log.WithError(err).Warn("Some of what the control loop samples can't be read; each kind of failure is logged once")
	}
	return wait, a.Tick(s)
}
