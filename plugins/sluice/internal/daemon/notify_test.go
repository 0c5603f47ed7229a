package daemon

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A notifier sends a keep-alive with each report, reports once that the service is ready, and
// sends no keep-alive while the agent's loop hangs.
func TestHerald(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type look struct {
			works bool
			how   string
		}
		var told []string
		looks := make(chan look)
		refused := errors.New("no answer")
		h := notifier{
			notify:  func(state string) { told = append(told, state) },
			every:   time.Second,
			state:   func() (bool, string) { l := <-looks; return l.works, l.how },
			answers: func() (err error) { err, refused = refused, nil; return err },
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); h.run(ctx) }()
		for _, step := range []struct {
			look look
			want string
		}{
			{look{false, "waiting"}, "WATCHDOG=1\nSTATUS=waiting"},
			{look{false, "waiting"}, "WATCHDOG=1"},
			{look{true, "connected"}, "WATCHDOG=1\nSTATUS=no answer"},
			{look{true, "connected"}, "WATCHDOG=1\nREADY=1\nSTATUS=connected"},
			{look{false, "waiting"}, "WATCHDOG=1\nSTATUS=waiting"},
			{look{true, "connected"}, "WATCHDOG=1\nSTATUS=connected"},
		} {
			told = nil
			looks <- step.look
			synctest.Wait()
			if !slices.Equal(told, []string{step.want}) {
				t.Errorf("after %v it tells %q, want %q", step.look, told, step.want)
			}
		}
		told = nil
		time.Sleep(time.Minute) // in virtual time
		if told != nil {
			t.Errorf("it tells %q while the look hangs", told)
		}
		cancel()
		for runs := true; runs; { // the timer may have fired before the end
			select {
			case looks <- look{true, "connected"}:
			case <-ended:
				runs = false
			}
		}
		if last := told[len(told)-1]; last != "STOPPING=1" {
			t.Errorf("at the end it tells %q", last)
		}
	})
}
