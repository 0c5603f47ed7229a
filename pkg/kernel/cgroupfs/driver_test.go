package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree writes files below a new folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOpen(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		files map[string]string
		want  string // ROOT stands for the tree; "" for ErrNoCgroups
	}{
		"v2 without /proc": {
			map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io"},
			"cpuset v2 at ROOT/sys/fs/cgroup, cpu v2 at ROOT/sys/fs/cgroup",
		},
		"v1 without /proc": {
			map[string]string{"sys/fs/cgroup/cpuset/x": "", "sys/fs/cgroup/cpu,cpuacct/x": ""},
			"cpuset v1 at ROOT/sys/fs/cgroup/cpuset, cpu v1 at ROOT/sys/fs/cgroup/cpu,cpuacct",
		},
		"each controller where it is": {
			map[string]string{
				"sys/fs/cgroup/cpuset/x": "", "sys/fs/cgroup/unified/cgroup.controllers": "cpu memory",
				"proc/self/mountinfo": "31 23 0:1 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n32 23 0:2 / /sys/fs/cgroup/cpuset rw shared:9 - cgroup cgroup rw,cpuset\n",
			},
			"cpuset v1 at ROOT/sys/fs/cgroup/cpuset, cpu v2 at ROOT/sys/fs/cgroup/unified",
		},
		"an odd place": {
			map[string]string{
				"my cg/cgroup.controllers": "cpuset cpu",
				"proc/self/mountinfo":      "31 23 0:1 / /my\\040cg rw - cgroup2 cgroup2 rw\n",
			},
			"cpuset v2 at ROOT/my cg, cpu v2 at ROOT/my cg",
		},
		// As in the DaemonSet's pod, which has its own cgroup at its root file system below the
		// runtime's folder, and the host's cgroups below its host root.
		"a container's own part beside the whole": {
			map[string]string{
				"run/containerd/rootfs/sys/fs/cgroup/cgroup.controllers": "cpuset cpu",
				"run/containerd/rootfs/sys/fs/cgroup/cgroup.type":        "domain",
				"sys/fs/cgroup/cgroup.controllers":                       "cpuset cpu",
				"proc/self/mountinfo": "31 23 0:1 / /run/containerd/rootfs/sys/fs/cgroup ro - cgroup2 cgroup rw\n" +
					"32 23 0:1 /../../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n" +
					"33 23 0:1 / /run/containerd/rootfs/sys/fs/cgroup ro - cgroup2 cgroup rw\n",
			},
			"cpuset v2 at ROOT/sys/fs/cgroup, cpu v2 at ROOT/sys/fs/cgroup",
		},
		"only cpu": {
			map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpu"},
			"cpuset not mounted, cpu v2 at ROOT/sys/fs/cgroup",
		},
		"nothing":                   {nil, ""},
		"v2 without the controller": {map[string]string{"sys/fs/cgroup/cgroup.controllers": "hugetlb"}, ""},
		"mounted and not visible":   {map[string]string{"proc/self/mountinfo": "32 23 0:2 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, test.files)
			d, err := Open(root)
			if test.want == "" {
				if !errors.Is(err, ErrNoCgroups) {
					t.Fatalf("got %v, %v; want ErrNoCgroups", d, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.ReplaceAll(d.String(), root, "ROOT"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOpenRefusesAPartOfTheTree(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpuset cpu", "sys/fs/cgroup/cgroup.type": "domain"})
	if d, err := Open(root); err == nil || errors.Is(err, ErrNoCgroups) || !strings.Contains(err.Error(), "part of the cgroup tree") {
		t.Errorf("got %v, %v", d, err)
	}
}

func TestParseMountinfo(t *testing.T) {
	t.Parallel()
	const text = `22 27 0:21 / /proc rw,relatime - proc proc rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:1 master:2 - cgroup cgroup rw,cpu,cpuacct
33 31 0:31 /kubepods/pod1/abc /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
34 31 0:31 /../../.. /host/sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
35 31 0:32 /..x /sys/fs/cgroup/odd rw - cgroup cgroup rw,memory
36 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
garbage
37 31 0:38 /
`
	var got []string
	for _, m := range parseMountinfo(text) {
		h := m.point
		if m.v2 {
			h += " v2"
		}
		got = append(got, h)
	}
	want := []string{"/sys/fs/cgroup/cpu,cpuacct", "/host/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/unified v2"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzParseMountinfo(f *testing.F) {
	f.Add("32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:1 - cgroup cgroup rw,cpu\n")
	f.Add("31 23 0:1 /.. /my\\040cg\\ rw - cgroup2 cgroup2 rw")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range parseMountinfo(text) {
			if m.point == "" || m.v2 == (m.controllers != nil) {
				t.Errorf("%q gives %+v", text, m)
			}
		}
	})
}
