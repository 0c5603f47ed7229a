package failsafe

import (
	"context"
	"fmt"
	"time"
)

// Silence is how long the plugin may give no sign of life. With the time that a plan
// takes it is well below the 10 s that are promised.
const Silence = 5 * time.Second

// Watcher waits for the plugin's end.
type Watcher struct {
	Beats <-chan struct{}        // signs of life; closed when the plugin has ended
	Act   func(why string) error // carries the plan out
	// Succeeded reports whether another plugin is there. It is asked after the end of
	// this one: a restart moves nobody.
	Succeeded func() bool
}

// Watch returns when the plugin has ended and the plan is carried out, or a successor
// is there. A plugin that only stalls may come back: it repairs what was done then.
func (w *Watcher) Watch(ctx context.Context) error {
	silence := time.NewTimer(Silence)
	defer silence.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, alive := <-w.Beats:
			if !alive {
				return w.ended(ctx)
			}
			silence.Reset(Silence)
		case <-silence.C:
			if err := w.Act(fmt.Sprintf("the plugin has given no sign of life for %v", Silence)); err != nil {
				silence.Reset(Silence)
			}
		}
	}
}

// ended gives a successor its time, and acts where none has come. What counts is the last
// look: a killed process that gets no CPU, or that waits for a disk, holds its lock for a
// while, as a successor does.
func (w *Watcher) ended(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(Silence):
	}
	if w.Succeeded() {
		return nil
	}
	return w.Act("the plugin has ended, and none came in its place")
}
