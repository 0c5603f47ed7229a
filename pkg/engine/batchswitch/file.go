// Package batchswitch is the switch by which a person turns a node's batch work off and
// on: the file in the state folder that 'sluice batch' writes and the control loop reads,
// and the check of what has become of it.
package batchswitch

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

// File is the name of the switch in the state folder. It is a file, so that batch work can
// be switched while the plugin is away or in trouble.
const File = "batch.json"

// Setting is what the switch says. The zero value leaves batch work to the configuration.
type Setting struct {
	To    control.SwitchState `json:"to,omitempty"`
	Evict bool                `json:"evict,omitempty"`
	Until time.Time           `json:"until,omitzero"`
}

// Write replaces the switch in a state folder.
func Write(stateDir string, s Setting) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	name := filepath.Join(stateDir, File)
	if err := os.WriteFile(name+".new", append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// Read returns what the switch in a state folder says, the zero value where there is none.
func Read(stateDir string) (Setting, error) {
	data, err := os.ReadFile(filepath.Join(stateDir, File))
	if errors.Is(err, fs.ErrNotExist) {
		return Setting{}, nil
	}
	if err != nil {
		return Setting{}, err
	}
	return parse(data)
}

func parse(data []byte) (s Setting, err error) {
	if err := json.Unmarshal(data, &s); err != nil {
		return Setting{}, fmt.Errorf("%s: %w; write it anew with sluice batch", File, err)
	}
	return s, nil
}
