// Package eventloop runs events one after the other in one goroutine, so that what they use
// needs no locks. Callers wait for an event or post it. Slow work runs in goroutines that the
// loop waits for when it ends.
package eventloop

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// ErrClosed is the result of an event that comes while the loop ends.
var ErrClosed = errors.New("sluice is shutting down")

// Hooks are functions that the loop's goroutine calls.
type Hooks struct {
	Before   func()                                 // called before each event
	After    func()                                 // called after each event that has not panicked
	Panicked func(name string, p any, stack []byte) // called after an event that has panicked
}

// Loop is a loop of events.
type Loop struct {
	Hooks
	events   chan func()
	closed   chan struct{}
	children sync.WaitGroup // goroutines that Stop waits for
	stopping bool           // nothing further may begin
	moves    uint64

	mu     sync.Mutex
	posted []posted
	wake   chan struct{} // has capacity for one value
}

type posted struct {
	name  string
	event func()
}

// New makes a loop, which Run runs.
func New(h Hooks) *Loop {
	return &Loop{Hooks: h, events: make(chan func()), closed: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// Run runs events until the context ends, and pass whenever the ticker asks for it.
func (l *Loop) Run(ctx context.Context, ticker <-chan time.Time, pass func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-l.events:
			event()
		case <-l.wake:
			l.RunPosted()
		case <-ticker:
			pass()
		}
	}
}

// Stop refuses further events, waits up to patience for the goroutines of Spawn, and then runs
// the events that they have posted. It reports whether all of these goroutines have ended. The
// goroutine of Run calls it after Run.
func (l *Loop) Stop(patience time.Duration) (ended bool) {
	l.stopping = true
	close(l.closed)
	all := make(chan struct{})
	go func() { l.children.Wait(); close(all) }()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-all:
		ended = true
	case <-timeout.C:
	}
	l.RunPosted()
	return ended
}

// Spawn runs slow work in a goroutine that Stop waits for. The loop's goroutine calls it.
func (l *Loop) Spawn(work func()) {
	if !l.stopping {
		l.children.Go(work)
	}
}

// Do runs an event and waits for it. A panic fails that event alone.
func (l *Loop) Do(name string, event func() error) error {
	return l.DoWithin(context.Background(), name, event)
}

// DoWithin is Do for an event that must not begin once the context has ended, since nobody
// waits for its result any more. If it has begun, DoWithin waits for its end.
func (l *Loop) DoWithin(ctx context.Context, name string, event func() error) error {
	return l.wait(ctx, name, func() error {
		l.moves++
		return event()
	})
}

// Query is Do for an event that changes nothing.
func (l *Loop) Query(name string, event func() error) error {
	return l.wait(context.Background(), name, event)
}

func (l *Loop) wait(ctx context.Context, name string, event func() error) (err error) {
	done := make(chan struct{})
	run := func() {
		defer close(done)
		if err = ctx.Err(); err == nil {
			err = l.run(name, event)
		} else {
			err = notBegun(name, err)
		}
	}
	select {
	case l.events <- run:
	case <-l.closed:
		return ErrClosed
	case <-ctx.Done():
		return notBegun(name, ctx.Err())
	}
	<-done
	return err
}

func notBegun(name string, why error) error {
	return fmt.Errorf("sluice has not begun %s, because the caller gave up before earlier events had ended: %w", name, why)
}

// Submit runs a function in the loop without hooks, and reports whether the loop has accepted
// it. It does not wait for the function's end, and allocates nothing.
func (l *Loop) Submit(run func()) bool {
	select {
	case l.events <- run:
		return true
	case <-l.closed:
		return false
	}
}

// Post runs an event without waiting for it. Events that are posted one after the other run in
// that order.
func (l *Loop) Post(name string, event func()) {
	l.mu.Lock()
	l.posted = append(l.posted, posted{name, event})
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// RunPosted runs the events that were posted. The loop's goroutine calls it.
func (l *Loop) RunPosted() {
	l.mu.Lock()
	events := l.posted
	l.posted = nil
	l.mu.Unlock()
	for _, p := range events {
		l.moves++
		l.run(p.name, func() error { p.event(); return nil }) //nolint:errcheck // the event has no result
	}
}

// Moves counts the events that may have changed something. The loop's goroutine calls it.
func (l *Loop) Moves() uint64 { return l.moves }

// Moved counts a change outside of events. The loop's goroutine calls it.
func (l *Loop) Moved() { l.moves++ }

func (l *Loop) run(name string, event func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			l.Panicked(name, p, debug.Stack())
			err = fmt.Errorf("sluice failed on %s (a bug; the stack is in its log): %v", name, p)
		}
	}()
	l.Before()
	err = event()
	l.After()
	return err
}
