package agent

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/controlloop"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
)

// Sampler looks at what the node and its containers do; see pkg/engine/sampler.
type Sampler interface {
	// Sample fills a snapshot, and says how long to wait from its start to the next. The
	// error tells of each kind of failure once.
	Sample(now time.Time, targets []observe.Target, into *observe.Snapshot) (next time.Duration, err error)
	// Failures counts the reads that failed, by kind.
	Failures() []status.Failure
}

// loopOptions are what the control loop needs of the host.
func (a *Agent) loopOptions() controlloop.Options {
	o := controlloop.Options{Failsafe: a.options.Failsafe, Evictor: a.options.Evictor, StateDir: a.options.StateDir}
	if a.options.Sampler != nil {
		o.Failures = a.options.Sampler.Failures
	}
	return o
}

// Tick steps the controllers with what was observed: the fast ones at each call, the
// others when control.interval has passed. It returns what to observe next, nil if that
// has changed: see Targets.
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
		a.events.Moved()
		a.Reconciler.BeginEvent()
		a.loop.Tick(t.seen)
		var next []observe.Target
		if !a.loop.IsStale() {
			next = a.loop.View.Targets
		}
		t.done <- next
	}
}

// Targets lists what is to be observed. The list is never changed: a new one takes
// its place.
func (a *Agent) Targets() (targets []observe.Target) {
	a.events.Do("targets", func() error { //nolint:errcheck // only a closed agent fails it
		if a.loop.IsStale() {
			a.loop.Refresh()
		}
		targets = a.loop.View.Targets
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
