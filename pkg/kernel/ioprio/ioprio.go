// Package ioprio puts threads of processes into the idle class of I/O (ioprio_set(2)). No other
// package calls ioprio_set.
package ioprio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Threads changes the I/O priorities of threads. It needs CAP_SYS_NICE for those of other users.
type Threads struct {
	get  func(tid int) (ioprio int, err error)
	set  func(tid, ioprio int) error
	list func(pid int) (tids []int, err error)
}

// New makes a Threads for the processes of this process's PID namespace, and its /proc.
func New() *Threads { return &Threads{get, set, list} }

// Idle puts all threads of the processes into the idle class. It leaves alone threads with a
// priority, which the processes have chosen. Threads and children that they make later inherit the
// class. It returns how many threads it changed. A process or thread that has ended is no error.
func (t *Threads) Idle(pids ...int) (changed int, err error) {
	return t.all(pids, func(has int) (int, bool) { return sluice, unset(has) })
}

// Restore takes the idle class from all threads of the processes that have it by Idle.
func (t *Threads) Restore(pids ...int) (changed int, err error) {
	return t.all(pids, func(has int) (int, bool) { return 0, has == sluice })
}

// These are values of ioprio_set (include/uapi/linux/ioprio.h), the class above 13 bits of the level.
const (
	normal = 2<<13 | 4 // the normal level of the best-effort class
	sluice = 3 << 13   // the idle class by Idle. It has no levels; ionice sets the level 7 in it
)

// unset reports whether a thread has no priority, so that the kernel derives it from its nice value.
// Before Linux 5.15, the class none has level 4 then; 5.15 to 5.19 show the normal level of the
// best-effort class.
func unset(ioprio int) bool { return ioprio>>13 == 0 || ioprio == normal }

// mostListings bounds how often the threads of a process are listed, in case it never stops making
// new ones.
const mostListings = 8

// all changes the threads of processes for which change returns a value. It lists the threads again
// until none is to be changed, for those that were being made.
func (t *Threads) all(pids []int, change func(has int) (to int, apply bool)) (changed int, err error) {
	var errs []error
	for _, pid := range pids {
		n, err := t.process(pid, change)
		changed += n
		if err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("I/O priority of process %d: %w: %s", pid, err, reason(err)))
		}
	}
	return changed, errors.Join(errs...)
}

func (t *Threads) process(pid int, change func(int) (int, bool)) (changed int, err error) {
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
			has, err := t.get(tid)
			if to, apply := change(has); err == nil && apply {
				if err = t.set(tid, to); err == nil {
					changed++
				}
			}
			if err != nil && !gone(err) {
				return changed, err
			}
		}
		if changed == before {
			break
		}
	}
	return changed, nil
}

func gone(err error) bool { return errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrNotExist) }

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
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, err
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
