// Package cgroups gives benchmarks a part of this host's cgroup tree, and a host root in which
// that part is the whole tree.
package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Tree is a cgroup in each hierarchy of cgroup v1, with those below it.
type Tree struct {
	tb    testing.TB
	roots []string // the tree's cgroup in each hierarchy
}

func controllers() []string { return []string{"cpuset", "cpu", "cpuacct", "memory", "blkio"} }

// New makes a tree and links it into host, a folder for --host-root. It skips the benchmark
// without the privileges or cgroup v1, and removes the tree when the benchmark ends.
func New(tb testing.TB, host string) *Tree {
	tb.Helper()
	t := &Tree{tb: tb}
	name := strings.ReplaceAll(fmt.Sprintf("sluice-bench-%d-%s-%s", os.Getpid(), tb.Name(), filepath.Base(filepath.Dir(host))), "/", "-")
	links := filepath.Join(host, "sys/fs/cgroup")
	if err := os.MkdirAll(links, 0o755); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(t.remove)
	for _, c := range controllers() {
		root := filepath.Join("/sys/fs/cgroup", c, name)
		switch err := os.Mkdir(root, 0o755); {
		case err == nil:
			t.roots = append(t.roots, root)
		case !errors.Is(err, fs.ErrExist): // two controllers may be in one hierarchy
			tb.Skipf("SKIPPED, root and cgroup v1's %s are needed: %v", c, err)
		}
		if err := os.Symlink(root, filepath.Join(links, c)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.Symlink("/sys/block", filepath.Join(host, "sys/block")); err != nil { // the throttles' probe needs a disk
		tb.Fatal(err)
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		all, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuset", file))
		if err != nil {
			tb.Fatal(err)
		}
		t.Write("/", file, string(all))
	}
	t.Write("/", "cgroup.clone_children", "1") // a new cgroup of the cpuset hierarchy gets all CPUs
	return t
}

// Below returns the path of a cgroup of the tree on this host.
func (t *Tree) Below(dir string) string { return filepath.Join("/", filepath.Base(t.roots[0]), dir) }

// Make makes a cgroup and its missing parents in each hierarchy.
func (t *Tree) Make(dir string) {
	t.tb.Helper()
	for _, root := range t.roots {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.tb.Fatal(err)
		}
	}
}

// Enter moves a process into a cgroup in each hierarchy.
func (t *Tree) Enter(dir string, pid int) {
	t.tb.Helper()
	for _, root := range t.roots {
		if err := os.WriteFile(filepath.Join(root, dir, "cgroup.procs"), fmt.Append(nil, pid), 0); err != nil {
			t.tb.Fatal(err)
		}
	}
}

// Write writes a file of a cgroup as the kubelet or a runtime would.
func (t *Tree) Write(dir, file, text string) {
	t.tb.Helper()
	files := t.Files(dir, file)
	if len(files) == 0 {
		t.tb.Fatalf("%s has no file %s", dir, file)
	}
	if err := os.WriteFile(files[0], []byte(text), 0); err != nil {
		t.tb.Fatal(err)
	}
}

// Files returns the whole paths of those of the named files that a cgroup has.
func (t *Tree) Files(dir string, names ...string) []string {
	var files []string
	for _, name := range names {
		for _, root := range t.roots {
			file := filepath.Join(root, dir, name)
			if _, err := os.Stat(file); err == nil {
				files = append(files, file)
				break
			}
		}
	}
	return files
}

// Setting is the text of a file with its whole path.
type Setting struct {
	File string
	Text []byte
}

// Dump reads all settings of cgroups: files that can be read and written and are no counters or
// lists.
func (t *Tree) Dump(dirs ...string) []Setting {
	t.tb.Helper()
	var all []Setting
	for _, dir := range dirs {
		for _, root := range t.roots {
			entries, err := os.ReadDir(filepath.Join(root, dir))
			if err != nil {
				t.tb.Fatal(err)
			}
			for _, e := range entries {
				info, err := e.Info()
				if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o644 || counts(e.Name()) {
					continue
				}
				file := filepath.Join(root, dir, e.Name())
				if text, err := os.ReadFile(file); err == nil {
					all = append(all, Setting{file, bytes.TrimSpace(text)})
				}
			}
		}
	}
	return all
}

func counts(file string) bool {
	return file == "tasks" || file == "cgroup.procs" || strings.Contains(file, "usage") || strings.Contains(file, "failcnt")
}

// Changed returns the settings of after whose text differs from that in before.
func Changed(before, after []Setting) []Setting {
	old := make(map[string][]byte, len(before))
	for _, s := range before {
		old[s.File] = s.Text
	}
	return slices.DeleteFunc(slices.Clone(after), func(s Setting) bool { return bytes.Equal(s.Text, old[s.File]) })
}

// Write writes settings one after another, by the files' paths.
func Write(settings []Setting) error {
	for _, s := range settings {
		if err := os.WriteFile(s.File, s.Text, 0); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the tree, also from hierarchies into which a runtime has put it.
func (t *Tree) remove() {
	if len(t.roots) == 0 {
		return
	}
	roots, err := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", filepath.Base(t.roots[0])))
	for _, root := range roots {
		var dirs []string
		err = errors.Join(err, filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, name)
			}
			return err
		}))
		for _, dir := range slices.Backward(dirs) {
			err = errors.Join(err, os.Remove(dir))
		}
	}
	if err != nil {
		t.tb.Errorf("cgroups are left behind: %v", err)
	}
}
