// Package sight is what a process sees of its own placement, for the probe that
// is the first program of a test's container, and for the test that reads it.
package sight

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// First is what a container's program sees right after exec.
type First struct {
	CPUs   cpuset.Set        `json:"cpus"`   // Cpus_allowed_list of /proc/self/status
	Mems   cpuset.Set        `json:"mems"`   // Mems_allowed_list of /proc/self/status
	NumCPU int               `json:"numCPU"` // size of the affinity that the Go runtime read before main
	Cgroup string            `json:"cgroup"` // /proc/self/cgroup
	Files  map[string]string `json:"files"`  // the container's own cgroup files that can be read, by name
}

// files lists cgroup v1's names and cgroup v2's; those of the other version
// don't exist and are left out.
func files() []string {
	return []string{
		"cpuset.cpus", "cpuset.mems", "cpuset.cpus.effective", "cpuset.mems.effective",
		"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us",
		"cpu.weight", "cpu.max", "cpu.max.burst", "cpu.idle",
		"memory.limit_in_bytes", "memory.max", "memory.high", "memory.low", "memory.min",
	}
}

// Read reads what this process sees.
func Read() (First, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return First{}, err
	}
	first := First{NumCPU: runtime.NumCPU(), Files: make(map[string]string)}
	if first.CPUs, first.Mems, err = Allowed(string(status)); err != nil {
		return First{}, err
	}
	cgroup, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return First{}, err
	}
	first.Cgroup = string(cgroup)
	for _, name := range files() {
		controller, _, _ := strings.Cut(name, ".")
		for _, dir := range []string{"", controller} {
			if text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", dir, name)); err == nil {
				first.Files[name] = strings.TrimSpace(string(text))
			}
		}
	}
	return first, nil
}

// Allowed reads the CPUs and memory nodes that a thread may use from the text
// of its /proc/.../status.
func Allowed(status string) (cpus, mems cpuset.Set, err error) {
	if cpus, err = list(status, "Cpus_allowed_list"); err != nil {
		return cpuset.Set{}, cpuset.Set{}, err
	}
	mems, err = list(status, "Mems_allowed_list")
	return cpus, mems, err
}

func list(status, key string) (cpuset.Set, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return cpuset.Parse(value)
		}
	}
	return cpuset.Set{}, fmt.Errorf("/proc/*/status has no line %s", key)
}
