package controlloop

import (
	"cmp"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/engine/forecaststate"
)

// saveUsageEvery is the time between two saves of what was learned of the usage. A save takes
// milliseconds and writes up to 4 MiB.
const saveUsageEvery = 15 * time.Minute

// learns reports whether the usage is learned.
func (l *Loop) learns() bool {
	return cmp.Or(l.Config.Control.Prediction.Mode, l.Config.Control.Mode) != control.Off
}

// loadUsage goes on with what an earlier run has learned of the usage. It does not wait for the
// disk.
func (l *Loop) loadUsage() {
	if l.StateDir == "" {
		return
	}
	dir := l.StateDir // a reload replaces the options meanwhile
	var set *predict.Set
	var err error
	l.Aside("usage loaded", func() { set, err = forecaststate.Read(dir) }, func() {
		if err != nil {
			l.Log.WithError(err).Warn("What was learned of the node's usage can't be read; forecasts begin anew")
		}
		if set != nil {
			l.Controllers.Prediction.Adopt(set)
		}
		l.usageLoaded = true
	})
}

// saveUsage saves what was learned of the usage, if it is time. A disk that hangs delays nobody.
func (l *Loop) saveUsage() {
	if since := l.View.Now.Sub(l.usageSavedAt); since >= 0 && since < saveUsageEvery || !l.usageLoaded || l.savesUsage || !l.learns() {
		return
	}
	first := l.usageSavedAt.IsZero()
	l.usageSavedAt = l.View.Now
	if first { // there is nothing new yet
		return
	}
	l.savesUsage = true
	dir, data := l.StateDir, l.Controllers.Prediction.Set().Encode()
	var err error
	l.Aside("usage saved", func() { err = forecaststate.Write(dir, data) }, func() {
		l.savesUsage = false
		if err != nil && err.Error() != l.usageProblem {
			l.Log.WithError(err).Warn("What was learned of the node's usage can't be saved; a restart would begin anew")
		}
		l.usageProblem = ""
		if err != nil {
			l.usageProblem = err.Error()
		}
	})
}
