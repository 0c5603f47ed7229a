// Package failsafe acts when the plugin is gone. The plugin keeps a plan on disk that gives
// services what they request and batch work its floor. A watcher, in a process of its own,
// carries the plan out when the plugin sends no heartbeat. Pins stay.
package failsafe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

const (
	planFile  = "failsafe.json"
	actedFile = "failsafe-acted.json"
)

// entry is one change of the plan.
type entry struct {
	Path  string      `json:"path"`
	Name  string      `json:"name"`
	Level knobs.Level `json:"level"`
	Knob  knobs.Knob  `json:"knob"`
	From  string      `json:"from,omitempty"`
	To    string      `json:"to"`
	Why   string      `json:"why"`
}

// file is the plan on disk. It is valid for the boot that it names, since it names that boot's
// cgroups.
type file struct {
	Boot    string            `json:"boot"`
	Changes []json.RawMessage `json:"changes"` // each an entry, read one by one: another version may have settings that this one doesn't know
}

// Save replaces the plan in a directory. A change's From is the value that the knob had before
// the control loop changed it; nil if that is unknown. The file is not synced, since it need
// only outlive the process.
func Save(dir, boot string, changes []knobs.Change) error {
	f := file{Boot: boot, Changes: make([]json.RawMessage, len(changes))}
	for i := range changes {
		c := &changes[i]
		e := entry{Path: c.Object.Path, Name: c.Object.Name, Level: c.Object.Level, Knob: c.Knob, To: knobs.FormatValue(c.To), Why: c.Why}
		if c.From != nil {
			e.From = knobs.FormatValue(c.From)
		}
		var err error
		if f.Changes[i], err = json.Marshal(e); err != nil {
			return err
		}
	}
	return write(dir, planFile, f)
}

func write(dir, name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	temporary := filepath.Join(dir, name+".new")
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(dir, name))
}

// Forget removes the plan, so that a watcher that is still waiting has nothing to do.
func Forget(dir string) error {
	if err := os.Remove(filepath.Join(dir, planFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Load reads the plan of this boot; without one it returns an empty plan. It skips changes that
// can't be read: the error names them, and the others are returned.
func Load(dir, boot string) ([]knobs.Change, error) {
	data, err := os.ReadFile(filepath.Join(dir, planFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parse(data, boot)
}

func parse(data []byte, boot string) (changes []knobs.Change, err error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("the failsafe's plan: %w", err)
	}
	if f.Boot != boot {
		return nil, nil // that boot's cgroups are gone
	}
	for _, text := range f.Changes {
		change, bad := parseEntry(text)
		if bad != nil {
			err = errors.Join(err, bad)
			continue
		}
		changes = append(changes, change)
	}
	return changes, err
}

func parseEntry(text []byte) (knobs.Change, error) {
	var e entry
	if err := json.Unmarshal(text, &e); err != nil {
		return knobs.Change{}, fmt.Errorf("the failsafe's plan, %.200s: %w", text, err)
	}
	to, err := knobs.ParseValue(e.Knob, e.To)
	var from knobs.Value
	if e.From != "" && err == nil {
		from, err = knobs.ParseValue(e.Knob, e.From)
	}
	if err != nil {
		return knobs.Change{}, fmt.Errorf("the failsafe's plan for %s: %w", e.Name, err)
	}
	return knobs.Change{Object: knobs.Object{Path: e.Path, Name: e.Name, Level: e.Level}, Knob: e.Knob, From: from, To: to, Why: e.Why}, nil
}

// Report is the failsafe's report of what it did, for the next plugin.
type Report struct {
	Time    time.Time `json:"time"`
	Why     string    `json:"why"`
	Changes int       `json:"changes"`
	Problem string    `json:"problem,omitempty"`
}

// SaveReport writes the report of what the failsafe did.
func SaveReport(dir string, a Report) error { return write(dir, actedFile, a) }

// TakeReport reads and removes that report; ok is false if there is none.
func TakeReport(dir string) (a Report, ok bool) {
	name := filepath.Join(dir, actedFile)
	data, err := os.ReadFile(name)
	if err != nil || json.Unmarshal(data, &a) != nil {
		return a, false
	}
	return a, os.Remove(name) == nil
}
