package host

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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

// CPUTime returns the CPU time that a process has used, with that of threads that have ended, in
// nanoseconds. It returns an error if the process has ended.
func CPUTime(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED of linux/posix-timers_types.h: what the scheduler has counted
	clock := int32(^pid<<3 | sched)
	var used unix.Timespec
	if err := unix.ClockGettime(clock, &used); err != nil {
		return 0, fmt.Errorf("process %d has no CPU time: %w; it has ended", pid, err)
	}
	return time.Duration(used.Nano()), nil
}
