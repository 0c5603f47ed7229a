// Package perf counts events of the processor, such as cycles and instructions, for the tasks of a
// cgroup (perf_event_open(2) with PERF_FLAG_PID_CGROUP).
//
// A count costs two files per online CPU, and the kernel reprograms the counters at each switch between
// a task of the cgroup and another one. So counts are made for some seconds, not always, as CPI² does
// (Zhang et al., CPI²: CPU performance isolation for shared compute clusters, EuroSys 2013).
package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Event is a type of events, as in struct perf_event_attr of linux/perf_event.h.
type Event struct {
	Type   uint32
	Config uint64
}

// Pair are two events that the kernel counts together, over the same time.
type Pair struct {
	Name          string // such as "cycles and instructions"
	First, Second Event
}

// Instructions returns the pair whose quotient is the cycles per instruction.
func Instructions() Pair {
	return Pair{
		"cycles and instructions",
		Event{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES},
		Event{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS},
	}
}

// Counts are how often both events of a pair have occurred since Start. If the counters were shared with
// others, they are extrapolated from the time in which they ran.
type Counts struct{ First, Second float64 }

// Host counts a pair of events for cgroups. It has no lock: one goroutine uses it at a time.
type Host struct {
	hostRoot string
	pair     Pair
	kernel   kernel
	root     string // of the hierarchy by whose cgroups the kernel counts; "" until it was looked for
	counts   map[string]*count
	files    int
	most     int // files that may be open
}

// mostFiles bounds the open counters, which are two for each CPU and cgroup.
const mostFiles = 4096

// count is what is open for one cgroup: by CPU, the leader and the other event of a group.
type count struct{ groups [][2]int }

// New returns a host without counts. Nothing is opened before the first count.
func New(hostRoot string, pair Pair) *Host {
	limit := syscall.Rlimit{Cur: 2 * mostFiles}
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) // it fails only for bad arguments
	return &Host{hostRoot: hostRoot, pair: pair, kernel: system{}, counts: map[string]*count{}, most: mostOf(limit.Cur)}
}

// mostOf returns how many files counts may have open of a process that may have so many: half is for everything else.
func mostOf(limit uint64) int { return int(min(mostFiles, limit/2)) }

// Probe counts for a moment in the root cgroup. The error is a sentence that says what is missing and what to do.
func (h *Host) Probe() error {
	const root = "/"
	if err := h.Start(root); err != nil {
		return err
	}
	h.Stop(root)
	return nil
}

// Start begins to count for a cgroup and those below it, or does nothing if it counts for it already. dir is
// a path below the root of the hierarchy. The error is cgroupfs.ErrGone if there is no such cgroup,
// cgroupfs.ErrUnsupported if the machine can't count these events, fs.ErrPermission if this process may not,
// and syscall.EMFILE if it has too many open files. Nothing stays open after an error.
func (h *Host) Start(dir string) error {
	if h.counts[dir] != nil {
		return nil
	}
	online, err := h.online()
	if err != nil {
		return err
	}
	if h.root == "" {
		if h.root, err = cgroupfs.PerfEventRoot(h.hostRoot); err != nil {
			return err
		}
	}
	// The kernel finds the cgroup by its folder, and keeps it without it.
	folder, err := os.Open(filepath.Join(h.root, filepath.Clean("/"+dir)))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("counting %s: cgroup %s: %w", h.pair.Name, dir, cgroupfs.ErrGone)
	}
	if err != nil {
		return fmt.Errorf("counting %s: %w", h.pair.Name, err)
	}
	defer folder.Close()
	c := &count{}
	for cpu := range online.All() {
		group, err := h.open(int(folder.Fd()), cpu)
		if errors.Is(err, syscall.ENODEV) {
			continue // this CPU has just gone offline
		}
		if err != nil {
			h.close(c)
			if _, gone := os.Stat(folder.Name()); errors.Is(err, syscall.ENOENT) && gone != nil {
				return fmt.Errorf("counting %s: cgroup %s: %w", h.pair.Name, dir, cgroupfs.ErrGone)
			}
			if err = h.explain(err); len(c.groups) > 0 && errors.Is(err, cgroupfs.ErrUnsupported) {
				return fmt.Errorf("%w; that is so on CPU %d, and others have them", err, cpu)
			}
			return err
		}
		c.groups = append(c.groups, group)
		h.files += len(group)
	}
	if len(c.groups) == 0 {
		return h.explain(syscall.ENODEV)
	}
	h.counts[dir] = c
	return nil
}

// open opens both events on one CPU, or none.
func (h *Host) open(folder, cpu int) (group [2]int, err error) {
	attr := unix.PerfEventAttr{
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Type: h.pair.First.Type, Config: h.pair.First.Config,
		Read_format: unix.PERF_FORMAT_GROUP | unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING,
	}
	if group[0], err = h.kernel.open(&attr, folder, cpu, -1); err != nil {
		return group, err
	}
	attr.Type, attr.Config = h.pair.Second.Type, h.pair.Second.Config
	if group[1], err = h.kernel.open(&attr, folder, cpu, group[0]); err != nil {
		h.kernel.close(group[0])
	}
	return group, err
}

// Count returns what has been counted for a cgroup since Start. A CPU that goes offline adds nothing from then
// on. The cgroup may have ended. The error is syscall.EBUSY if the counters have been in use by others all the time.
func (h *Host) Count(dir string) (sum Counts, err error) {
	c := h.counts[dir]
	if c == nil {
		return Counts{}, fmt.Errorf("counting %s: no count of cgroup %s has begun", h.pair.Name, dir)
	}
	waited := false
	for _, group := range c.groups {
		one, state, err := h.read(group[0])
		if err != nil {
			return Counts{}, fmt.Errorf("counting %s: %w", h.pair.Name, err)
		}
		waited = waited || state == starved
		if state == counted {
			sum.First, sum.Second = sum.First+one.First, sum.Second+one.Second
		}
	}
	if waited && sum == (Counts{}) {
		return sum, h.explain(syscall.EBUSY)
	}
	return sum, nil
}

// groupState says what a group of events has counted.
type groupState int

const (
	idle    groupState = iota // no task of the cgroup ran on this CPU, or the CPU has gone offline
	starved                   // tasks ran, and the counters were never free
	counted
)

// read reads a group: its size, the time for which tasks of the cgroup ran, that in which the counters did, and
// both counts (struct read_format of linux/perf_event.h). A group is smaller after its CPU has gone offline.
func (h *Host) read(leader int) (Counts, groupState, error) {
	const words = 5
	var buffer [words * 8]byte
	n, err := h.kernel.read(leader, buffer[:])
	if err != nil {
		return Counts{}, idle, err
	}
	var v [words]uint64
	for i := range v {
		v[i] = binary.NativeEndian.Uint64(buffer[i*8:])
	}
	ran, counting := float64(v[1]), float64(v[2])
	switch {
	case n < len(buffer) || v[0] != 2 || ran == 0:
		return Counts{}, idle, nil
	case counting == 0:
		return Counts{}, starved, nil
	}
	return Counts{float64(v[3]) * ran / counting, float64(v[4]) * ran / counting}, counted, nil
}

// Stop ends the count for a cgroup, if there is one, and closes its files.
func (h *Host) Stop(dir string) {
	if c := h.counts[dir]; c != nil {
		h.close(c)
		delete(h.counts, dir)
	}
}

// Close ends all counts.
func (h *Host) Close() {
	for dir := range h.counts {
		h.Stop(dir)
	}
}

// Room reports whether another count may begin beside those that have begun: all together have at most 4,096 files open,
// and half of what this process may have. One alone may always begin, so that its error says what it lacks.
func (h *Host) Room() bool {
	if h.files == 0 {
		return true
	}
	online, err := h.online()
	return err == nil && h.files+2*online.Size() <= h.most
}

func (h *Host) close(c *count) {
	for _, group := range c.groups {
		h.kernel.close(group[1])
		h.kernel.close(group[0])
		h.files -= len(group)
	}
}

func (h *Host) online() (cpuset.Set, error) {
	text, err := os.ReadFile(filepath.Join(h.hostRoot, "sys/devices/system/cpu/online"))
	if err != nil {
		return cpuset.Set{}, fmt.Errorf("which CPUs are online: %w", err)
	}
	return cpuset.Parse(strings.TrimSpace(string(text)))
}
