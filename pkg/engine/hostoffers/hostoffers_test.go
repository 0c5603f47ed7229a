package hostoffers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "made", "yarn.json")
	expect := func(c Content, want string) {
		t.Helper()
		if err := Write(file, &c); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil || string(text) != want+"\n" {
			t.Errorf("%s, %v; want %s", text, err, want)
		}
	}
	vcores, mb := InYARNUnits(control.Amount{CPU: 5999, MemoryBytes: 3<<30 - 1})
	expect(Content{VCores: vcores, MemoryMB: mb, ValidUntil: time.Date(2026, 11, 25, 9, 5, 0, 0, time.UTC)},
		`{"vcores":5,"memoryMB":3071,"validUntil":"2026-11-25T09:05:00Z"}`)
	expect(Content{Why: "nothing is left"}, `{"vcores":0,"memoryMB":0,"why":"nothing is left"}`)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v: the application, which is not root, must be able to read it", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v: an unfinished file is left", left, err)
	}
	for range 2 { // the second time, it is gone already
		if err := Remove(file); err != nil {
			t.Error(err)
		}
	}
}

// Whoever may replace files in the folder could have root write elsewhere.
func TestFolderOfOthers(t *testing.T) {
	open, target, link := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{open, link} {
		if err := Write(filepath.Join(dir, "yarn.json"), &Content{}); err == nil || !strings.Contains(err.Error(), "must be a folder of root that no one else can write to") {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("%v, %v", left, err)
		}
	}
}
