// Package eventloop runs events one after the other in one goroutine, which therefore owns what
// they touch without locks. Callers wait for an event, or post it; what may take long runs in
// goroutines that the loop waits for at its end.
package eventloop

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// ErrClosed answers events that come while the loop ends.
var ErrClosed = errors.New("sluice is shutting down")

// Hooks are called in the loop.
type Hooks struct {
	Before   func()                                 // each event
	After    func()                                 // each event that has not panicked
	Panicked func(name string, p any, stack []byte) // when an event has
}

// Loop is a loop of events.
type Loop struct {
	Hooks
	events   chan func()
	closed   chan struct{}
	children sync.WaitGroup // goroutines that Stop waits for
	stopping bool           // nothing is begun any more
	moves    uint64

	mu     sync.Mutex
	posted []posted
	news   chan struct{} // has room for one
}

type posted struct {
	name  string
	event func()
}

// New makes a loop, which Run runs.
func New(h Hooks) *Loop {
	return &Loop{Hooks: h, events: make(chan func()), closed: make(chan struct{}), news: make(chan struct{}, 1)}
}

// Run runs events until the context ends, and pass whenever the ticker asks for it.
func (l *Loop) Run(ctx context.Context, ticker <-chan time.Time, pass func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-l.events:
			event()
		case <-l.news:
			l.RunPosted()
		case <-ticker:
			pass()
		}
	}
}

// Stop takes no more events and waits for what was spawned, at most for so long; then it runs
// what has been posted. It reports whether all that was spawned has ended. It is called where
// Run was, after it.
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

// Spawn runs what may take long in a goroutine that Stop waits for. It is called in the loop.
func (l *Loop) Spawn(work func()) {
	if !l.stopping {
		l.children.Go(work)
	}
}

// Do runs an event and waits for it. A panic fails that event alone.
func (l *Loop) Do(name string, event func() error) error {
	return l.Query(name, func() error {
		l.moves++
		return event()
	})
}

// Query is Do for an event that changes nothing.
func (l *Loop) Query(name string, event func() error) (err error) {
	done := make(chan struct{})
	run := func() {
		defer close(done)
		err = l.run(name, event)
	}
	if !l.Submit(run) {
		return ErrClosed
	}
	<-done
	return err
}

// Submit hands a function to the loop as it is, without hooks, and reports whether the loop has
// taken it. It does not wait for its end, and allocates nothing.
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
	case l.news <- struct{}{}:
	default:
	}
}

// RunPosted runs the events that were posted. It is called in the loop.
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

// Moves counts the events that may have changed something. It is called in the loop.
func (l *Loop) Moves() uint64 { return l.moves }

// Moved counts a change outside of events. It is called in the loop.
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
