package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
	"github.com/sluice-dev/sluice/topology/synth"
)

// openFiles lists the files below a folder that this process has open.
func openFiles(t *testing.T, root string) (names []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(links) == 0 {
		t.Fatal(links, err)
	}
	for _, link := range links {
		if name, _ := os.Readlink(link); len(name) > len(root) && name[:len(root)] == root {
			names = append(names, name)
		}
	}
	return names
}

func TestOpen(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	h := Open(root)
	if h.Cgroups != nil || !errors.Is(h.CgroupsErr, cgroupfs.ErrNoCgroups) || h.RDT != nil || !errors.Is(h.RDTErr, resctrl.ErrNone) {
		t.Errorf("of an empty root: %+v", h)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	tree := filepath.Join(root, "sys/fs/cgroup")
	for _, dir := range []string{tree, filepath.Join(root, "proc/sys/vm")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(tree, "cgroup.controllers"), []byte("cpuset cpu\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h = Open(root)
	if h.Cgroups == nil || h.CgroupsErr != nil {
		t.Errorf("with cgroups: %v", h.CgroupsErr)
	}
	if len(openFiles(t, root)) == 0 {
		t.Error("nothing is open: what is closed can't be told")
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if open := openFiles(t, root); len(open) > 0 {
		t.Errorf("still open: %v", open)
	}
}

func TestMachine(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	spec, err := synth.Parse("4 cores")
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.WriteTo(root); err != nil {
		t.Fatal(err)
	}
	if m, err := Machine(root, ""); err != nil || m.Online.Size() != 4 {
		t.Errorf("below a root: %v, %v", m, err)
	}
	if m, err := Machine("", "2 packages 4 cores"); err != nil || m.Online.Size() != 8 {
		t.Errorf("described: %v, %v", m, err)
	}
	if _, err := Machine(t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "can't be read") {
		t.Errorf("nothing is there: %v", err)
	}
}
