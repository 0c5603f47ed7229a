package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Everybody may read the file, because Node Feature Discovery is not root, and nothing else is left beside it.
func TestWriteLabels(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "sluice")
	features := &knobs.Features{}
	features.Knobs[knobs.Burst] = knobs.Feature{State: knobs.Supported, File: "cpu.max.burst", V2: true}
	s := &service{Options: &Options{HostRoot: "/", LabelsFile: file}, features: features}
	if err := os.WriteFile(filepath.Join(dir, ".sluice.new"), []byte("of a process that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, now := range []time.Time{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 1, 2, 4, 4, 5, 0, time.UTC)} {
		if err := s.writeLabels(now); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if want := "# +expiry-time=" + now.Add(24*time.Hour).Format(time.RFC3339) + "\n"; err != nil || !strings.Contains(string(text), want) || !strings.Contains(string(text), "\nfeature.sluice.dev/cpu-burst=true\n") {
			t.Errorf("the file is %q, %v", text, err)
		}
	}
	entries, err := os.ReadDir(dir)
	info, errOf := os.Stat(file)
	if err != nil || errOf != nil || len(entries) != 1 || info.Mode().Perm() != 0o644 {
		t.Errorf("the folder has %v, the file %v (%v, %v)", entries, info.Mode(), err, errOf)
	}
	s.LabelsFile = filepath.Join(dir, "missing", "sluice")
	if err := s.writeLabels(time.Now()); err == nil {
		t.Error("a folder that is not there is no error")
	}
}

func TestCheckLabelsFile(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"": true, "/features.d/sluice": true, "/features.d/.sluice": false} {
		if err := CheckLabelsFile(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
