package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// A flag names a folder before the configuration does. --state-dir alone names both.
func TestBothFolders(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(file, []byte("stateDir: /config/state\nruntimeDir: /config/run\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		state, runtime, config string
		want                   folders
	}{
		{"", "", file, folders{"/config/state", "/config/run"}},
		{"/s", "", file, folders{"/s", "/s"}},
		{"/s", "/r", file, folders{"/s", "/r"}},
		{"", "/r", file, folders{"/config/state", "/r"}},
		{"/s", "", "", folders{"/s", "/s"}},
		{"/s", "/r", "", folders{"/s", "/r"}},
	} {
		if got, err := bothFolders(test.state, test.runtime, test.config, "/"); err != nil || got != test.want {
			t.Errorf("--state-dir %q --runtime-dir %q --config %q: %+v, %v", test.state, test.runtime, test.config, got, err)
		}
	}
}

// A runtime folder that can't be made or written is said so, with its key.
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
		if err := (folders{dir, name}).prepareRuntime(logrus.New()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// The journal of a version that kept it in the state folder is read, by a look and by
// an upgrade, and is gone after the upgrade.
func TestJournalIsTakenOver(t *testing.T) {
	t.Parallel()
	at := folders{t.TempDir(), t.TempDir()}
	object := func(path string) knobs.Object { return knobs.Object{Path: path, Name: path, Level: knobs.PodLevel} }
	keep := func(dir, path string, shares knobs.Shares) {
		t.Helper()
		book, err := journal.Open(filepath.Join(dir, originalsFile), "boot")
		if err != nil {
			t.Fatal(err)
		}
		book.Keep(object(path), knobs.Weight, shares)
		if err := errors.Join(book.KeepState("s"+path, shares), book.Close()); err != nil {
			t.Fatal(err)
		}
	}
	keep(at.state, "/a", 1)
	keep(at.state, "/b", 2)
	keep(at.runtime, "/b", 3)
	for _, dry := range []bool{true, false, false} {
		book, err := at.book("boot", dry)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]knobs.Shares{"/a": 1, "/b": 3} {
			if value, _ := book.Kept(path, knobs.Weight); value != knobs.Value(want) {
				t.Errorf("dry %t: %s had %v, want %v", dry, path, value, want)
			}
			var state knobs.Shares
			if ok, err := book.State("s"+path, &state); !ok || err != nil || state != want {
				t.Errorf("dry %t: state %v, %v", dry, state, err)
			}
		}
		if _, err := os.Stat(filepath.Join(at.state, originalsFile)); dry != (err == nil) {
			t.Errorf("dry %t: the old file: %v", dry, err)
		}
		if !dry {
			if err := book.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A plan that can't be written leaves none in force, and is written with a later beat.
func TestStalePlan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := logrus.New()
	var text strings.Builder
	log.SetOutput(&text)
	k := newKeeper(folders{dir, dir}, "/", log)
	k.boot = "boot"
	change := func(cpus string) []knobs.Change {
		return []knobs.Change{{Object: knobs.Object{Path: "/a", Name: "a"}, Knob: knobs.CPUs, To: knobs.CPUSet(cpuset.MustParse(cpus)), Why: "LS"}}
	}
	k.save(&pendingPlan{changes: change("0-7")})
	// A folder in the place of the temporary file: nothing can be written there.
	block := filepath.Join(dir, "failsafe.json.new")
	if err := os.Mkdir(block, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		k.save(&pendingPlan{changes: change("2-7")})
	}
	if changes, err := failsafe.Load(dir, "boot"); changes != nil || err != nil {
		t.Errorf("in force is %v, %v", changes, err)
	}
	if n := strings.Count(text.String(), "there is none until it can be"); n != 1 {
		t.Errorf("told %d times: %s", n, text.String())
	}
	if err := os.Remove(block); err != nil {
		t.Fatal(err)
	}
	k.save(k.unsaved)
	if changes, err := failsafe.Load(dir, "boot"); len(changes) != 1 || changes[0].To != change("2-7")[0].To || k.unsaved != nil || err != nil {
		t.Errorf("in force is %v, %v", changes, err)
	}
}

// Who keeps a plan may wait until it is written, or replaced by a newer one.
func TestKeepTellsWhenItIsWritten(t *testing.T) {
	t.Parallel()
	k := newKeeper(folders{t.TempDir(), t.TempDir()}, "/", logrus.New())
	first, second := k.Keep(nil), k.Keep(nil)
	for i, written := range []<-chan struct{}{first, second} {
		if i == 1 {
			p := <-k.plans
			k.save(&p)
			close(p.written)
		}
		select {
		case <-written:
		case <-time.After(time.Minute):
			t.Fatalf("plan %d: no word", i)
		}
	}
}
