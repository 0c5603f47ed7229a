package statedir

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// All files are readable by their owner only, even if another user may enter the folder later.
func TestStateIsPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	unlock, err := Lock(t.Context(), dir, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	for what, err := range map[string]error{
		"originals": keepOne(dir),
		"plan":      failsafe.Save(dir, "boot", nil),
		"word":      failsafe.SaveReport(dir, failsafe.Report{}),
		"switch":    batchswitch.Write(dir, batchswitch.Setting{To: control.SwitchOff}),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	trail := audit.Open(dir, logrus.New())
	trail.Record(time.Now(), control.On, &control.Decision{})
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	trail.Run(ended)
	checkPrivate(t, dir, "lock", "originals.jsonl", "failsafe.json", "failsafe-acted.json", "batch.json", "audit.jsonl")
}

func keepOne(dir string) error {
	j, err := journal.Open(filepath.Join(dir, journalFile), "boot")
	if err != nil {
		return err
	}
	j.Record(knobs.Object{Path: "/a"}, knobs.CPUs, knobs.CPUSet{})
	return j.Close()
}

// checkPrivate checks that a folder contains these files and is closed to other users.
func checkPrivate(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if entry.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestStateOfOthersIsRefused(t *testing.T) {
	t.Parallel()
	for mode, want := range map[fs.FileMode]string{
		0o700: "", 0o755: "", 0o750: "",
		0o770: "chmod it to 0700", 0o777: "chmod it to 0700", 0o777 | fs.ModeSticky: "chmod it to 0700",
	} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		unlock, err := Lock(t.Context(), dir, time.Second)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("mode %v: %v, want %q", mode, err, want)
		}
		if err == nil {
			unlock()
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can make a folder of another user's")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(t.Context(), dir, time.Second); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
		t.Errorf("a folder of another user: %v", err)
	}
}
