package agent

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
)

// switched is what the switch says now. One that can't be read stays as it was.
func (a *Agent) switched() control.Switch {
	l := &a.loop
	if a.options.StateDir != "" {
		s, err := batchswitch.Read(a.options.StateDir)
		switch {
		case err == nil:
			l.switched, l.switchProblem = control.Switch(s), ""
		case err.Error() != l.switchProblem:
			l.switchProblem = err.Error()
			a.Log.WithError(err).Error("The batch switch can't be read; what it said before counts")
		}
	}
	return l.switched
}

// switchedOff reports whether the switch says that there is no batch work, whether or
// not the loop steps.
func (a *Agent) switchedOff(now time.Time) bool {
	s := a.switched()
	return s.To == control.SwitchOff && (s.Until.IsZero() || now.Before(s.Until))
}
