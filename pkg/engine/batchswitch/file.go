// Package batchswitch is the switch with which an operator turns a node's batch work off and on.
// `sluice batch` writes it to a file in the state folder, the control loop reads the file, and
// this package checks whether the loop follows it.
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

// File is the name of the switch in the state folder. Since it is a file, batch work can be
// switched even if the plugin is stopped or does not answer.
const File = "batch.json"

// Setting is the state of the switch. With the zero value, the configuration decides about batch
// work.
type Setting struct {
	To    control.SwitchState `json:"to,omitempty"`
	Evict bool                `json:"evict,omitempty"`
	Until time.Time           `json:"until,omitzero"`
}

// Write replaces the switch in a state folder.
func Write(stateDir string, s Setting) error {
	return writeJSON(filepath.Join(stateDir, File), s)
}

// writeJSON replaces a file as a whole.
func writeJSON(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// Read returns the switch of a state folder, or the zero value if there is none.
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
