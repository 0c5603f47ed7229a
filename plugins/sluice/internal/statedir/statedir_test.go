package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// A flag's folder takes precedence over the configuration's. --state-dir alone sets both folders.
func TestNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(file, []byte("stateDir: /config/state\nruntimeDir: /config/run\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		state, runtime, config string
		want                   Dirs
	}{
		{"", "", file, Dirs{"/config/state", "/config/run"}},
		{"/s", "", file, Dirs{"/s", "/s"}},
		{"/s", "/r", file, Dirs{"/s", "/r"}},
		{"", "/r", file, Dirs{"/config/state", "/r"}},
		{"/s", "", "", Dirs{"/s", "/s"}},
		{"/s", "/r", "", Dirs{"/s", "/r"}},
	} {
		if got, err := Named(test.state, test.runtime, test.config, "/"); err != nil || got != test.want {
			t.Errorf("--state-dir %q --runtime-dir %q --config %q: %+v, %v", test.state, test.runtime, test.config, got, err)
		}
	}
}

// The error about a runtime folder that can't be made or written names its key.
func TestRuntimeFolderUnusable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	blocked := filepath.Join(dir, "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{filepath.Join(blocked, "run"): "not a directory", open: "name another runtimeDir", "/proc/sluice": "runtime folder: mkdir /proc/sluice"} {
		if err := (Dirs{dir, name}).PrepareRuntime(logrus.New()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// A journal that an earlier version kept in the state folder is read by commands and by an
// upgrade, and removed by the upgrade.
func TestJournalIsTakenOver(t *testing.T) {
	t.Parallel()
	at := Dirs{t.TempDir(), t.TempDir()}
	object := func(path string) knobs.Object { return knobs.Object{Path: path, Name: path, Level: knobs.PodLevel} }
	keep := func(dir, path string, shares knobs.Shares) {
		t.Helper()
		j, err := journal.Open(filepath.Join(dir, journalFile), "boot")
		if err != nil {
			t.Fatal(err)
		}
		j.Record(object(path), knobs.Weight, shares)
		if err := errors.Join(j.SaveState("s"+path, shares), j.Close()); err != nil {
			t.Fatal(err)
		}
	}
	keep(at.State, "/a", 1)
	keep(at.State, "/b", 2)
	keep(at.Runtime, "/b", 3)
	for _, dry := range []bool{true, false, false} {
		j, err := at.Journal("boot", dry)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]knobs.Shares{"/a": 1, "/b": 3} {
			if value, _ := j.Original(path, knobs.Weight); value != knobs.Value(want) {
				t.Errorf("dry %t: %s had %v, want %v", dry, path, value, want)
			}
			var state knobs.Shares
			if ok, err := j.State("s"+path, &state); !ok || err != nil || state != want {
				t.Errorf("dry %t: state %v, %v", dry, state, err)
			}
		}
		if _, err := os.Stat(filepath.Join(at.State, journalFile)); dry != (err == nil) {
			t.Errorf("dry %t: the old file: %v", dry, err)
		}
		if !dry {
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestWritable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{dir: nil, dir + "/a/b": nil, file + "/x": os.ErrInvalid} {
		if err := Writable(path); (err == nil) != (want == nil) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := Writable(filepath.Join(dir, "\x00")); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
