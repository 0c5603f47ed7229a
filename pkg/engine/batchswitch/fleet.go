package batchswitch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
)

// FleetFile is the name of the file in the state folder with what the fleet's switch said last.
const FleetFile = "fleet-switch.json"

// These bound what sluice-kube may say of the fleet's switch, in bytes.
const (
	MaxFleet   = 4 << 10
	maxProblem = 1 << 10
	lastYear   = 9999 // of a time in JSON
)

// Fleet is the fleet's switch as sluice-kube has said it last. Memory has it at once; the file is
// for the next start, at which sluice-kube or the API server may be away. It is safe for
// concurrent use, but for Save.
type Fleet struct {
	dir string

	saved status.Switch // what the file has

	mu  sync.Mutex
	now status.Switch
}

// OpenFleet reads the fleet's switch of a state folder. If the file can't be read, it returns an
// error with a switch that says nothing.
func OpenFleet(stateDir string) (*Fleet, error) {
	f := &Fleet{dir: stateDir}
	text, err := os.ReadFile(filepath.Join(stateDir, FleetFile))
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		f.now, err = DecodeFleet(text)
	}
	if err != nil {
		return f, fmt.Errorf("%s: %w; it counts as auto until sluice-kube says what the fleet's switch is", FleetFile, err)
	}
	f.saved = f.now
	return f, nil
}

// Switch returns the switch.
func (f *Fleet) Switch() status.Switch {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// Take takes over what the fleet's switch says. It does not wait for the disk. A switch with a
// problem says nothing but that: what was said before stays in force.
func (f *Fleet) Take(s status.Switch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Problem != "" {
		problem := s.Problem
		s = f.now
		s.Problem = problem
	}
	f.now = s
}

// Save writes the switch to the file, unless the file has it already. One goroutine at a time may
// call it.
func (f *Fleet) Save() error {
	s := f.Switch()
	if s == f.saved {
		return nil
	}
	if err := writeJSON(filepath.Join(f.dir, FleetFile), s); err != nil {
		return fmt.Errorf("the fleet's switch is in force, but a restart of sluice may forget it: %w", err)
	}
	f.saved = s
	return nil
}

// DecodeFleet reads and checks what sluice-kube says of the fleet's switch.
func DecodeFleet(text []byte) (s status.Switch, err error) {
	if len(text) > MaxFleet {
		return s, fmt.Errorf("the switch must have at most %d bytes, and has %d", MaxFleet, len(text))
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&s); err != nil {
		return status.Switch{}, fmt.Errorf("the switch is not the JSON that it must be: %w", err)
	}
	s.EndsAt = s.EndsAt.UTC()
	switch {
	case s.Evict && s.State != control.SwitchOff:
		err = errors.New("evict: it goes with the state off alone")
	case !s.EndsAt.IsZero() && s.State == control.SwitchAuto:
		err = errors.New("endsAt: it goes with the states on and off alone")
	case s.EndsAt.Year() < 1 || s.EndsAt.Year() > lastYear:
		err = fmt.Errorf("endsAt: its year must be 1 to %d", lastYear)
	case len(s.Problem) > maxProblem:
		err = fmt.Errorf("problem: it must have at most %d bytes, and has %d", maxProblem, len(s.Problem))
	}
	if err != nil {
		return status.Switch{}, fmt.Errorf("the switch: %w", err)
	}
	return s, nil
}
