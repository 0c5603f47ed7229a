package batchswitch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
)

// What the fleet's switch said last is there at the next start, and a mistake changes nothing of it.
func TestFleet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fleet, err := OpenFleet(dir)
	if err != nil || fleet.Switch() != (status.Switch{}) {
		t.Fatalf("without a file: %+v, %v", fleet.Switch(), err)
	}
	off := status.Switch{State: control.SwitchOff, Evict: true, EndsAt: time.Date(2026, 11, 24, 6, 0, 0, 0, time.UTC)}
	fleet.Take(off)
	if got := fleet.Switch(); got != off {
		t.Errorf("before it is saved: %+v", got)
	}
	fleet.Take(status.Switch{Problem: "of is no state"})
	off.Problem = "of is no state"
	if got := fleet.Switch(); got != off {
		t.Errorf("after a mistake: %+v", got)
	}
	if err := fleet.Save(); err != nil {
		t.Fatal(err)
	}
	if fleet, err = OpenFleet(dir); err != nil || fleet.Switch() != off {
		t.Errorf("after a restart: %+v, %v", fleet.Switch(), err)
	}
	fleet.Take(status.Switch{})
	if err := fleet.Save(); err != nil {
		t.Fatal(err)
	}
	if fleet, err = OpenFleet(dir); err != nil || fleet.Switch() != (status.Switch{}) {
		t.Errorf("auto, after a restart: %+v, %v", fleet.Switch(), err)
	}
	if err := os.WriteFile(filepath.Join(dir, FleetFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if fleet, err = OpenFleet(dir); err == nil || !strings.Contains(err.Error(), "counts as auto") || fleet.Switch() != (status.Switch{}) {
		t.Errorf("a broken file: %+v, %v", fleet.Switch(), err)
	}
}

// A switch that cannot be saved is in force nevertheless, and is saved later.
func TestFleetIsSavedLater(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	fleet, err := OpenFleet(dir)
	if err != nil {
		t.Fatal(err)
	}
	fleet.Take(status.Switch{State: control.SwitchOff})
	if err := fleet.Save(); err == nil || !strings.Contains(err.Error(), "is in force") || fleet.Switch().State != control.SwitchOff {
		t.Errorf("without its folder: %+v, %v", fleet.Switch(), err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := fleet.Save(); err != nil {
		t.Error(err)
	}
	if fleet, err = OpenFleet(dir); err != nil || fleet.Switch().State != control.SwitchOff {
		t.Errorf("%+v, %v", fleet.Switch(), err)
	}
}

func FuzzDecodeFleet(f *testing.F) {
	f.Add([]byte(`{"state":"off","evict":true,"endsAt":"2026-11-21T12:00:00Z"}`))
	f.Add([]byte(`{"state":"auto","problem":"x"}`))
	f.Add([]byte(`{"state":"off","endsAt":"9999-12-31T23:59:59-01:00"}`)) // in UTC a year that JSON does not have
	f.Add([]byte(`{"state":"off","endsAt":"0001-01-01T00:00:00+01:00"}`))
	f.Add([]byte(`{"state":"on","evict":true}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := DecodeFleet(text)
		if err != nil {
			if s != (status.Switch{}) {
				t.Fatalf("with the error %v: %+v", err, s)
			}
			return
		}
		if s.Evict && s.State != control.SwitchOff || len(s.Problem) > maxProblem {
			t.Errorf("it takes %+v", s)
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeFleet(again); len(again) <= MaxFleet && (err != nil || back != s) {
			t.Errorf("%+v becomes %+v: %v", s, back, err)
		}
	})
}
