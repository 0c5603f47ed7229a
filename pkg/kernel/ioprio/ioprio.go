// Package ioprio gives threads of processes an I/O priority (ioprio_set(2)). No other package calls
// ioprio_set.
package ioprio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Priority is what a process has: a level or the idle class; unset, the kernel derives it from the
// process's nice value.
type Priority = workload.Optional[workload.IOPriority]

// Set is a set of priorities, with a bit for each.
type Set uint16

// Only returns the set of one priority; the empty one if it is unset.
func Only(p Priority) Set {
	if !p.Set {
		return 0
	}
	return 1 << p.Value
}

// Threads changes the priorities of threads. It needs CAP_SYS_NICE for those of other users.
type Threads struct {
	get  func(tid int) (ioprio int, err error)
	set  func(tid, ioprio int) error
	list func(pid int) (tids []int, err error)
}

// New makes a Threads for the processes of this process's PID namespace, and its /proc.
func New() *Threads { return &Threads{get, set, list} }

// mostListings bounds how often the threads of a process are listed, in case it never stops making
// new ones.
const mostListings = 8

// Change gives a priority to all threads of the processes that have none, or one of those given
// before. It leaves alone threads with any other, which the processes have chosen. With to unset,
// threads that had one of those given have none afterwards. It returns how many threads it changed.
// A thread that has ended is no error.
//
// Threads and children inherit the priority. Change lists the threads again until all have it, for
// those that were being made.
func (t *Threads) Change(given Set, to Priority, pids ...int) (changed int, err error) {
	var errs []error
	for _, pid := range pids {
		n, err := t.change(given, to, pid)
		changed += n
		if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("I/O priority of process %d: %w: %s", pid, err, reason(err)))
		}
	}
	return changed, errors.Join(errs...)
}

func (t *Threads) change(given Set, to Priority, pid int) (changed int, err error) {
	if pid < 1 { // 0 is the calling thread
		return 0, unix.ERANGE
	}
	for range mostListings {
		tids, err := t.list(pid)
		if err != nil {
			return changed, err
		}
		before := changed
		for _, tid := range tids {
			did, err := t.changeOne(given, to, tid)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return changed, err
			}
			if did {
				changed++
			}
		}
		if changed == before {
			break
		}
	}
	return changed, nil
}

func (t *Threads) changeOne(given Set, to Priority, tid int) (changed bool, err error) {
	raw, err := t.get(tid)
	if err != nil {
		return false, err
	}
	has := decode(raw)
	if has == to || has.Set && Only(has)&given == 0 {
		return false, nil
	}
	return true, t.set(tid, encode(to))
}

// These are the kernel's classes, and the place of the class in a value (include/uapi/linux/ioprio.h).
const (
	none = iota
	realtime
	bestEffort
	idle

	classShift = 13
	classes    = 7 // mask of the class
	levels     = 7 // mask of the level
)

// decode reads the kernel's value. Linux 5.15 to 5.19 show the normal level for a thread that has
// none. A real-time priority is one that Sluice never gives.
func decode(ioprio int) Priority {
	level := workload.IOPriority(ioprio & levels)
	switch class := ioprio >> classShift & classes; {
	case class == none || class == bestEffort && level == workload.IONormal:
		return Priority{}
	case class == bestEffort:
		return workload.Some(level)
	case class == idle:
		return workload.Some(workload.IOIdle)
	}
	return workload.Some(workload.IOIdle + 1)
}

func encode(p Priority) int {
	switch {
	case !p.Set:
		return none
	case p.Value == workload.IOIdle:
		return idle << classShift
	}
	return bestEffort<<classShift | int(p.Value)
}

const whoProcess = 1 // IOPRIO_WHO_PROCESS: a single thread

func get(tid int) (int, error) {
	ioprio, _, errno := unix.Syscall(unix.SYS_IOPRIO_GET, whoProcess, uintptr(tid), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(ioprio), nil
}

func set(tid, ioprio int) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, uintptr(tid), uintptr(ioprio)); errno != 0 {
		return errno
	}
	return nil
}

func list(pid int) (tids []int, err error) {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // it was opened for reading
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}

// reason explains an errno of set_task_ioprio (block/ioprio.c).
func reason(err error) string {
	var errno syscall.Errno
	errors.As(err, &errno)
	switch errno {
	case unix.EPERM:
		return "Sluice needs CAP_SYS_NICE for processes of other users, or a security module forbids it"
	case unix.ENOSYS:
		return "this kernel has no block devices (CONFIG_BLOCK), or a seccomp profile forbids ioprio_set"
	case unix.ERANGE:
		return "this is no process id; the container has not started, or Sluice does not see the host's process ids"
	}
	return "the process keeps the priority it has; the next pass tries again"
}
