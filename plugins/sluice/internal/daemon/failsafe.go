package daemon

import (
	"context"
	"errors"
	"io"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
)

// Failsafe carries the plan of the plugin with these folders out when the plugin, whose signs
// of life come through a pipe, has ended without a successor, or is silent.
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

// FailsafeNow carries the plan out at once, unless the plugin runs. After an end that went
// well it does nothing, as that may be a restart.
func FailsafeNow(at statedir.Dirs, hostRoot string, endedWell bool) error {
	if endedWell {
		return nil
	}
	if statedir.Locked(at.State) {
		return errors.New("a plugin runs with this state folder and takes care itself: stop it first")
	}
	return actFailsafe(at, hostRoot, "asked for by the command line")
}

// actFailsafe carries the plan out, and tells so in the log.
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
