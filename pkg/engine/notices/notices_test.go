package notices

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

func open(t *testing.T, dir string) *Folder {
	t.Helper()
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func add(t *testing.T, f *Folder, uid string) (path string) {
	t.Helper()
	path, err := f.Add(uid)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, f *Folder, n control.Notice) {
	t.Helper()
	if err := f.Write(n); err != nil {
		t.Fatal(err)
	}
}

// in returns what a pod reads: the kind, or all of a notice.
func in(t *testing.T, path string) (c content) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path, File))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &c); err != nil || len(text) > 1024 {
		t.Errorf("%d bytes: %v", len(text), err)
	}
	return c
}

func squeeze() control.Notice {
	noon := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	return control.Notice{Kind: control.NoticeSqueeze, Cause: control.NoticeByForecast, BeginsAt: noon, EndsAt: noon.Add(time.Hour), Why: "a peak"}
}

// A pod reads the notice that holds, also one that starts later, and in the same folder after a
// restart of the plugin.
func TestPodsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := open(t, dir)
	first := add(t, f, "uid-1")
	if got := in(t, first); got != (content{Kind: noKind}) {
		t.Errorf("at first: %+v", got)
	}
	folder, err := os.Open(first) // as a mount has it
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	n := squeeze()
	write(t, f, n)
	want := content{Kind: n.Kind, BeginsAt: n.BeginsAt, EndsAt: n.EndsAt, Why: n.Why}
	if got, late := in(t, first), in(t, add(t, f, "uid-2")); got != want || late != want {
		t.Errorf("%+v, and later %+v", got, late)
	}
	f = open(t, dir)
	if got := in(t, first); got != want {
		t.Errorf("after a restart: %+v", got)
	}
	if again := add(t, f, "uid-1"); again != first {
		t.Errorf("another folder: %s", again)
	}
	write(t, f, control.Notice{})
	fd, err := unix.Openat(int(folder.Fd()), File, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	text := make([]byte, 100)
	if n, err := unix.Read(fd, text); err != nil || string(text[:n]) != "{\"kind\":\"none\"}\n" {
		t.Errorf("by the mount: %q, %v", text[:n], err)
	}
}

func TestEndedPods(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := open(t, dir)
	for _, uid := range []string{"a", "b", "c"} {
		add(t, f, uid)
	}
	if err := f.Remove("a"); err != nil {
		t.Error(err)
	}
	if err := f.Remove("unknown"); err != nil {
		t.Error(err)
	}
	f = open(t, dir)
	if err := f.Keep(func(uid string) bool { return uid == "b" }); err != nil {
		t.Error(err)
	}
	write(t, f, squeeze())
	left, err := filepath.Glob(filepath.Join(dir, dirName, "*", "*"))
	if err != nil || len(left) != 1 || left[0] != filepath.Join(dir, dirName, "b", File) {
		t.Errorf("left: %q, %v", left, err)
	}
	if err := RemoveAll(dir); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// Any user of the pod can read its folder, and on the node only Sluice's can reach it. The mask of
// the service is 0077.
func TestModes(t *testing.T) {
	mask := unix.Umask(0o077)
	defer unix.Umask(mask)
	dir := t.TempDir()
	path := add(t, open(t, dir), "uid")
	for name, want := range map[string]os.FileMode{filepath.Join(dir, dirName): 0o700, path: 0o755, filepath.Join(path, File): 0o644} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
}

// Links that somebody has left in a pod's folder are replaced: nothing is written elsewhere.
func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := open(t, dir)
	path := add(t, f, "uid")
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{File, newFile} {
		_ = os.Remove(filepath.Join(path, name))
		if err := os.Symlink(victim, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, f, squeeze())
	if text, err := os.ReadFile(victim); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
	if got := in(t, path); got.Kind != control.NoticeSqueeze {
		t.Errorf("%+v", got)
	}
	outside := filepath.Join(dir, dirName, "link")
	if err := os.Symlink(dir, outside); err != nil {
		t.Fatal(err)
	}
	if path, err := f.Add("link"); err == nil {
		t.Errorf("a folder behind a link: %s", path)
	}
}

func TestUIDs(t *testing.T) {
	t.Parallel()
	f := open(t, t.TempDir())
	for uid, ok := range map[string]bool{
		"0f8fad5b-d9cb-469f-a165-70867728950e": true, strings.Repeat("a", 128): true,
		"": false, ".": false, "..": false, "a/b": false, "/etc": false, "a\x00b": false, "a b": false, strings.Repeat("a", 129): false,
	} {
		if _, err := f.Add(uid); (err == nil) != ok {
			t.Errorf("%q: %v", uid, err)
		}
	}
}

// A reason of any length and bytes makes a small file that can be parsed.
func FuzzText(f *testing.F) {
	f.Add("a peak")
	f.Add(strings.Repeat("\xff\u2028", 400))
	f.Fuzz(func(t *testing.T, why string) {
		n := squeeze()
		n.Why = why
		var c content
		if text := textOf(n); json.Unmarshal(text, &c) != nil || c.Kind != n.Kind || len(text) > 4096 {
			t.Errorf("%q", text)
		}
	})
}

// BenchmarkWrite is what a notice costs with 100 pods that ask for it.
func BenchmarkWrite(b *testing.B) {
	dir, err := os.MkdirTemp("/dev/shm", "notices-")
	if err != nil {
		b.Skip("SKIPPED: ", err)
	}
	defer os.RemoveAll(dir)
	f, err := Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for i := range 100 {
		if _, err := f.Add("uid-" + string(rune('a'+i/26)) + string(rune('a'+i%26))); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if err := f.Write(squeeze()); err != nil {
			b.Fatal(err)
		}
	}
}
