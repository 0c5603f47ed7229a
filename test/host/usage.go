package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Use is what a process needs.
type Use struct {
	CPUs     float64 // mean
	Resident int64   // memory in RAM, in bytes
}

// MiB is the memory in RAM, in MiB.
func (u Use) MiB() float64 { return float64(u.Resident) / (1 << 20) }

// Measure returns the CPUs that processes have used in this time, and the memory that they have at
// its end, in the order of their process IDs.
func Measure(length time.Duration, pids ...int) ([]Use, error) {
	uses, before := make([]Use, len(pids)), make([]time.Duration, len(pids))
	began := time.Now()
	for i, pid := range pids {
		var err error
		if before[i], err = CPUTime(pid); err != nil {
			return nil, err
		}
	}
	time.Sleep(length)
	for i, pid := range pids {
		after, err := CPUTime(pid)
		if err != nil {
			return nil, err
		}
		uses[i].CPUs = float64(after-before[i]) / float64(time.Since(began))
		if uses[i].Resident, err = resident(pid); err != nil {
			return nil, err
		}
	}
	return uses, nil
}

// resident returns VmRSS of /proc/PID/status, in bytes.
func resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("process %d has no memory: it has ended", pid)
}

// CPUTime returns the CPU time of a process' threads: the sum of the first number of each
// /proc/PID/task/TID/schedstat, in nanoseconds. It lacks what threads that have ended used; Go's
// threads seldom end.
func CPUTime(pid int) (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	if len(threads) == 0 {
		return 0, fmt.Errorf("process %d has no threads: it has ended", pid)
	}
	var used time.Duration
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		var nanos int64
		if _, err := fmt.Sscan(string(text), &nanos); err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		used += time.Duration(nanos)
	}
	return used, nil
}
