// Package sight describes what a process sees of its own placement, for the probe, which is the
// first program of a test's container, and for the test that reads its output.
package sight

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// First is what a container's program sees right after exec.
type First struct {
	CPUs     cpuset.Set `json:"cpus"`     // Cpus_allowed_list of /proc/self/status
	Mems     cpuset.Set `json:"mems"`     // Mems_allowed_list of /proc/self/status
	NumCPU   int        `json:"numCPU"`   // size of the affinity that the Go runtime read before main
	Cgroup   string     `json:"cgroup"`   // /proc/self/cgroup
	OOMScore int        `json:"oomScore"` // /proc/self/oom_score_adj

	IOPriority int `json:"ioPriority"` // as IOPriority returns it

	// Files holds the readable cgroup files by name: of the container's own cgroup, of the pod's,
	// and of the one above.
	Files map[string]string `json:"files"`
	Pod   map[string]string `json:"pod"`
	Class map[string]string `json:"class"`
}

// A container sees no cgroup above its own. Therefore the host's hierarchies are mounted for it in
// Host, and PodVariable in its environment has the path of its pod's cgroup there.
const (
	Host        = "/host/cgroup"
	PodVariable = "POD_CGROUP"
)

// files lists the names of cgroup v1 and v2; files that don't exist are skipped.
func files() []string {
	return []string{
		"cpuset.cpus", "cpuset.mems", "cpuset.cpus.effective", "cpuset.mems.effective",
		"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us",
		"cpu.weight", "cpu.max", "cpu.max.burst", "cpu.idle",
		"memory.limit_in_bytes", "memory.soft_limit_in_bytes",
		"memory.max", "memory.high", "memory.low", "memory.min", "memory.oom.group",
		"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
		"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device",
		"blkio.weight", "blkio.bfq.weight", "io.max", "io.weight", "io.bfq.weight",
		"net_cls.classid",
	}
}

// Read returns what this process sees.
func Read() (First, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return First{}, err
	}
	first := First{NumCPU: runtime.NumCPU(), Files: read("/sys/fs/cgroup", "")}
	if first.CPUs, first.Mems, err = Allowed(string(status)); err != nil {
		return First{}, err
	}
	if pod := os.Getenv(PodVariable); pod != "" {
		first.Pod, first.Class = read(Host, pod), read(Host, filepath.Dir(pod))
	}
	score, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return First{}, err
	}
	if first.OOMScore, err = strconv.Atoi(strings.TrimSpace(string(score))); err != nil {
		return First{}, err
	}
	if first.IOPriority, err = IOPriority(0); err != nil {
		return First{}, err
	}
	cgroup, err := os.ReadFile("/proc/self/cgroup")
	first.Cgroup = string(cgroup)
	return first, err
}

// read reads the files of a cgroup, in the v2 hierarchy mounted at root or in v1 hierarchies in
// folders named after their controllers.
func read(root, cgroup string) map[string]string {
	values := make(map[string]string)
	for _, name := range files() {
		controller, _, _ := strings.Cut(name, ".")
		for _, hierarchy := range []string{"", controller} {
			if text, err := os.ReadFile(filepath.Join(root, hierarchy, cgroup, name)); err == nil {
				values[name] = strings.TrimSpace(string(text))
			}
		}
	}
	return values
}

// IOPriority returns the I/O priority of a thread, of this one for 0, as the kernel gives it: the
// class above the 13 bits of the level (ioprio_get(2)).
func IOPriority(tid int) (int, error) {
	const process = 1 // IOPRIO_WHO_PROCESS
	ioprio, _, errno := syscall.Syscall(syscall.SYS_IOPRIO_GET, process, uintptr(tid), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(ioprio), nil
}

// Allowed parses the CPUs and memory nodes that a thread may use from the text of its
// /proc/.../status.
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
