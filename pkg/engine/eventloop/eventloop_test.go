package eventloop

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// start runs a Loop until the test ends it.
func start(t *testing.T, h Hooks) (l *Loop, stop func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l = New(h)
	ended := make(chan bool)
	go func() {
		l.Run(ctx, nil, nil)
		ended <- l.Stop(time.Minute)
	}()
	return l, func() bool { cancel(); return <-ended }
}

func quiet() Hooks {
	return Hooks{Before: func() {}, After: func() {}, Panicked: func(string, any, []byte) {}}
}

func TestPostedEventsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	l, stop := start(t, quiet())
	var got []int
	for i := range 100 {
		l.Post("n", func() { got = append(got, i) })
	}
	if !stop() {
		t.Error("something still runs")
	}
	if !slices.IsSorted(got) || len(got) != 100 {
		t.Errorf("%v", got)
	}
}

// A panic fails only its own event, and the hook after events is skipped.
func TestPanic(t *testing.T) {
	t.Parallel()
	h := quiet()
	var panicked string
	var after int
	h.Panicked = func(name string, _ any, stack []byte) {
		if len(stack) > 0 {
			panicked = name
		}
	}
	h.After = func() { after++ }
	l, stop := start(t, h)
	if err := l.Do("bad", func() error { panic("a bug") }); err == nil || !strings.Contains(err.Error(), "bad") || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("%v", err)
	}
	problem := errors.New("no")
	if err := l.Do("refused", func() error { return problem }); !errors.Is(err, problem) {
		t.Errorf("%v", err)
	}
	stop()
	if panicked != "bad" || after != 1 {
		t.Errorf("panicked in %q, %d calls after events", panicked, after)
	}
}

// Stop waits for spawned goroutines and runs the events that they have posted. It refuses later
// events.
func TestStop(t *testing.T) {
	t.Parallel()
	l, stop := start(t, quiet())
	release, told := make(chan struct{}), false
	if err := l.Do("begin", func() error {
		l.Spawn(func() {
			<-release
			l.Post("told", func() { told = true })
		})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	close(release)
	if !stop() || !told {
		t.Errorf("the posted event has run: %v", told)
	}
	if err := l.Do("late", func() error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	if l.Moves() != 2 {
		t.Errorf("%d events may have changed something", l.Moves())
	}
}

// An event does not begin once its caller has given up, whether that happens before the loop
// has accepted it or after.
func TestDoWithin(t *testing.T) {
	t.Parallel()
	l, stop := start(t, quiet())
	release, busy := make(chan struct{}), make(chan struct{})
	go l.Do("busy", func() error { close(busy); <-release; return nil })
	<-busy
	ctx, cancel := context.WithCancel(t.Context())
	result, ran := make(chan error, 1), false
	go func() { result <- l.DoWithin(ctx, "late", func() error { ran = true; return nil }) }()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "late") {
		t.Errorf("%v", err)
	}
	close(release)
	if err := l.DoWithin(ctx, "late", func() error { ran = true; return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := l.DoWithin(t.Context(), "in time", func() error { return nil }); err != nil {
		t.Errorf("%v", err)
	}
	stop()
	if ran {
		t.Error("an event has begun that nobody waits for")
	}
}
