package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// SwitchFile is the file in the state folder that holds what `sluice batch` said
// last. A file, so that it can be said while the plugin is away or in trouble.
const SwitchFile = "batch.json"

// Switched is what the file says.
type Switched struct {
	To    control.SwitchState `json:"to,omitempty"`
	Evict bool                `json:"evict,omitempty"`
	Until time.Time           `json:"until,omitzero"`
}

// WriteSwitch replaces what the state folder's switch says.
func WriteSwitch(stateDir string, s Switched) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	name := filepath.Join(stateDir, SwitchFile)
	if err := os.WriteFile(name+".new", append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// ReadSwitch is what it says; none is the zero value.
func ReadSwitch(stateDir string) (s Switched, err error) {
	data, err := os.ReadFile(filepath.Join(stateDir, SwitchFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%s: %w; write it anew with sluice batch", SwitchFile, err)
	}
	return s, nil
}

// switched is what the switch says now. One that can't be read stays as it was.
func (a *Agent) switched() control.Switch {
	l := &a.loop
	if a.StateDir != "" {
		s, err := ReadSwitch(a.StateDir)
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
