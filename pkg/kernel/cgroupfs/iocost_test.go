package cgroupfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
)

func TestIOCost(t *testing.T) {
	t.Parallel()
	open := func(controllers string, files map[string]string) *cgroupfs.Driver {
		t.Helper()
		root := t.TempDir()
		at := filepath.Join(root, "sys/fs/cgroup")
		if controllers == "v1" {
			controllers = "cpu cpuset"
			if err := os.MkdirAll(filepath.Join(at, "blkio"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "cgroup.procs"), nil, 0o600); err != nil { // every cgroup has it
			t.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(at, "cgroup.controllers"), []byte(controllers), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := cgroupfs.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	d := open("cpu cpuset io", map[string]string{"io.cost.qos": "8:0 enable=0 ctrl=auto\n"})
	if err := d.SetIOCost("8:0 enable=1 ctrl=auto"); err != nil {
		t.Error(err)
	}
	if text, err := d.IOCost(); err != nil || !strings.HasPrefix(text, "8:0 enable=1 ctrl=auto") {
		t.Errorf("%q, %v", text, err)
	}
	for name, test := range map[string]struct {
		d    *cgroupfs.Driver
		want string
	}{
		"an older kernel":      {open("cpu cpuset io", nil), "CONFIG_BLK_CGROUP_IOCOST"},
		"blkio is on v1":       {open("v1", nil), "part of cgroup v2"},
		"no controller at all": {open("cpu cpuset", nil), "part of cgroup v2"},
	} {
		if _, err := test.d.IOCost(); !errors.Is(err, cgroupfs.ErrUnsupported) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err := test.d.SetIOCost("8:0 enable=1"); !errors.Is(err, cgroupfs.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
