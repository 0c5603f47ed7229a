package cgroupfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mount is a mounted cgroup hierarchy.
type mount struct {
	point       string
	v2          bool
	controllers []string // of v1; v2 lists them in cgroup.controllers
}

// findMounts lists the host's cgroup mounts by paths that this process can open.
func findMounts(hostRoot string) ([]mount, error) {
	text, err := os.ReadFile(filepath.Join(hostRoot, "proc/self/mountinfo"))
	if errors.Is(err, fs.ErrNotExist) {
		return usualMounts(hostRoot), nil
	}
	if err != nil {
		return nil, err
	}
	mounts := parseMountinfo(string(text))
	for i, m := range mounts {
		// /proc/self/mountinfo describes this process' mount namespace: a path outside hostRoot
		// belongs to the host, which is mounted at the same path there.
		if rel, err := filepath.Rel(hostRoot, m.point); err != nil || !filepath.IsLocal(rel) {
			mounts[i].point = filepath.Join(hostRoot, m.point)
		}
	}
	return mounts, nil
}

// usualMounts lists the places where distributions mount cgroups, for a host root without
// /proc.
func usualMounts(hostRoot string) []mount {
	dir := filepath.Join(hostRoot, "sys/fs/cgroup")
	return []mount{
		{point: filepath.Join(dir, "cpuset"), controllers: []string{"cpuset"}},
		{point: filepath.Join(dir, "cpu"), controllers: []string{"cpu"}},
		{point: filepath.Join(dir, "cpu,cpuacct"), controllers: []string{"cpu", "cpuacct"}},
		{point: filepath.Join(dir, "cpuacct"), controllers: []string{"cpuacct"}},
		{point: filepath.Join(dir, "memory"), controllers: []string{"memory"}},
		{point: filepath.Join(dir, "blkio"), controllers: []string{"blkio"}},
		{point: filepath.Join(dir, "net_cls"), controllers: []string{"net_cls"}},
		{point: filepath.Join(dir, "net_cls,net_prio"), controllers: []string{"net_cls"}},
		{point: dir, v2: true},
		{point: filepath.Join(dir, "unified"), v2: true},
	}
}

// parseMountinfo lists the cgroup mounts of /proc/<pid>/mountinfo (proc(5)) that show a
// hierarchy from its root: "/", or one "/.." for each level of the reader's cgroup namespace.
// It skips bind mounts of a part of a hierarchy.
func parseMountinfo(text string) []mount {
	var mounts []mount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		where, what := strings.Fields(before), strings.Fields(after)
		if !ok || len(where) < 5 || len(what) < 3 {
			continue
		}
		if root := where[3]; root != "/" && strings.ReplaceAll(root, "/..", "") != "" {
			continue
		}
		m := mount{point: unescape(where[4])}
		switch what[0] {
		case "cgroup":
			m.controllers = strings.Split(what[2], ",")
		case "cgroup2":
			m.v2 = true
		default:
			continue
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// unescape decodes mountinfo's \ooo for space, tab, newline and backslash.
func unescape(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}
