package failsafe

import (
	"context"
	"fmt"
	"time"
)

// Silence is how long the plugin may send no heartbeat. Together with the time to carry out a
// plan, it is well below the promised 10 s.
const Silence = 5 * time.Second

// BeatInterval is the time between two heartbeats. A heartbeat with each tick of the loop would take
// 0.2 % of a CPU, because the watcher's process wakes for each.
const BeatInterval = 500 * time.Millisecond

// Watcher waits until the plugin has ended.
type Watcher struct {
	Beats <-chan struct{}        // heartbeats; closed when the plugin has ended
	Act   func(why string) error // carries the plan out
	// Succeeded reports whether another plugin is running. The Watcher calls it after the end
	// of this one, so that a restart changes nothing on the node.
	Succeeded func() bool
}

// Watch returns when the plugin has ended and the plan is carried out, or a successor is
// running. A plugin that was only stalled repairs what the plan changed.
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

// ended waits for a successor, and acts if none has come. Only the last check counts, since a
// killed process that gets no CPU, or waits for a disk, holds its lock for a while, just as a
// successor does.
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
