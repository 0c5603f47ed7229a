package runtimerecord

import (
	"context"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
)

// unanswered names the journal's state with the time at which the update was sent that the runtime has
// not answered.
const unanswered = "unanswered record update"

// settleTime is how long the runtime may take for an update whose answer nobody awaits any more.
const settleTime = 10 * time.Second

// Settle waits until settleTime has passed since a plugin that has ended sent an update and saw no
// answer; without such an update it returns at once. The runtime may still make that update, over what
// is restored before. The error is the context's.
func Settle(ctx context.Context, j *journal.Journal) error {
	var sent time.Time
	if ok, err := j.State(unanswered, &sent); !ok || err != nil {
		return nil //nolint:nilerr // without a readable time there is nothing to wait for
	}
	left := min(time.Until(sent.Add(settleTime)), settleTime) // the clock may have been set back
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(left):
	}
	return j.SaveState(unanswered, nil)
}

// noteSent notes in the journal that an update is sent now.
func (r *Recorder) noteSent() {
	r.Journal.SaveState(unanswered, r.Now()) //nolint:errcheck // a time can always be encoded
}

// noteAnswered notes in the journal that the runtime makes no update now.
func (r *Recorder) noteAnswered() {
	var sent time.Time
	if ok, _ := r.Journal.State(unanswered, &sent); ok {
		r.Journal.SaveState(unanswered, nil) //nolint:errcheck // nothing can always be encoded
	}
}
