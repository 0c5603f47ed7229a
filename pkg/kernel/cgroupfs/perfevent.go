package cgroupfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// PerfEventRoot returns the mount point of the hierarchy by whose cgroups the kernel counts events
// (perf_event_open with PERF_FLAG_PID_CGROUP). That is the hierarchy of the controller perf_event: a v1
// hierarchy if one has it, which the second field of /proc/cgroups says, otherwise the v2 hierarchy, which
// always has it and does not list it in cgroup.controllers.
func PerfEventRoot(hostRoot string) (string, error) {
	const name = "perf_event"
	mounts, err := findMounts(hostRoot)
	if err != nil {
		return "", fmt.Errorf("finding the cgroup mounts: %w", err)
	}
	hierarchy, there := "0", false
	text, err := os.ReadFile(filepath.Join(hostRoot, "proc/cgroups"))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 4 && f[0] == name {
			hierarchy, there = f[1], f[3] == "1"
		}
	}
	if err == nil && !there {
		return "", fmt.Errorf("%w: the kernel counts no events by cgroup: it has no CONFIG_CGROUP_PERF, or was booted with cgroup_disable=%s", ErrUnsupported, name)
	}
	for _, m := range mounts {
		if !m.v2 && slices.Contains(m.controllers, name) || m.v2 && hierarchy == "0" {
			if _, err := os.Stat(m.point); err == nil {
				return m.point, nil
			}
		}
	}
	if hierarchy != "0" {
		return "", fmt.Errorf("%w: the cgroup v1 hierarchy of %s is not mounted here: mount -t cgroup -o %s cgroup /sys/fs/cgroup/%s", ErrUnsupported, name, name, name)
	}
	return "", fmt.Errorf("%w: no cgroup v2 hierarchy is mounted here, by which the kernel would count events", ErrUnsupported)
}
