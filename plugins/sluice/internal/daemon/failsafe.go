package daemon

import (
	"context"
	"errors"
	"io"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
)

// Failsafe executes the failsafe plan of the plugin with these folders when the plugin has
// ended without a successor or has stopped sending heartbeats. The heartbeats arrive through a
// pipe.
func Failsafe(ctx context.Context, at statedir.Dirs, hostRoot string, pulse io.Reader) error {
	beats := make(chan struct{})
	go func() {
		defer close(beats)
		some := make([]byte, 64)
		for {
			if _, err := pulse.Read(some); err != nil {
				return
			}
			select {
			case beats <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	act := func(why string) error { return actFailsafe(at, hostRoot, why) }
	w := failsafe.Watcher{Beats: beats, Act: act, Succeeded: func() bool { return statedir.Locked(at.State) }}
	return w.Watch(ctx)
}

// FailsafeNow executes the plan at once, unless the plugin runs. If the plugin ended without an
// error it does nothing, because that may be a restart.
func FailsafeNow(at statedir.Dirs, hostRoot string, endedWell bool) error {
	if endedWell {
		return nil
	}
	if statedir.Locked(at.State) {
		return errors.New("a plugin runs with this state folder and takes care itself: stop it first")
	}
	return actFailsafe(at, hostRoot, "asked for by the command line")
}

// actFailsafe executes the plan and logs the result.
func actFailsafe(at statedir.Dirs, hostRoot, why string) error {
	acted, err := failsafe.Act(at.Runtime, hostRoot, why)
	if acted.Changes == 0 && err == nil {
		return nil
	}
	log := logrus.WithField("changes", acted.Changes)
	if err != nil {
		log = log.WithError(err)
	}
	log.Warn("Failsafe: " + why + "; services have what they request, batch work its floor")
	return err
}
