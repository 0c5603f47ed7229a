// Package ioprio puts threads of cgroups into the idle class of I/O (ioprio_set(2)). No other
// package calls ioprio_set.
package ioprio

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Threads changes the I/O priorities of threads. It needs CAP_SYS_NICE for those of other users.
type Threads struct {
	list func(cgroup string) (tids []int, err error)
	get  func(tid int) (ioprio int, err error)
	set  func(tid, ioprio int) error
}

// New makes a Threads for the cgroups whose threads list returns by their IDs in this process's PID
// namespace, with those of nested cgroups, and none for a cgroup that is gone.
func New(list func(cgroup string) (tids []int, err error)) *Threads { return &Threads{list, get, set} }

// Idle puts all threads of a cgroup into the idle class. It leaves alone threads with a priority,
// which the processes have chosen. Threads and children that they make later inherit the class. It
// returns how many threads it changed. A thread that ends meanwhile is no error.
func (t *Threads) Idle(cgroup string) (changed int, err error) {
	return t.all(cgroup, unset, sluice)
}

// Restore takes the idle class from all threads of a cgroup that have it by Idle.
func (t *Threads) Restore(cgroup string) (changed int, err error) {
	return t.all(cgroup, func(has int) bool { return has == sluice }, none)
}

// These are values of ioprio_set (include/uapi/linux/ioprio.h), the class above 13 bits of the level.
const (
	none   = 0
	normal = 2<<13 | 4 // the normal level of the best-effort class
	// sluice is the idle class by Idle. The class has no levels, but the kernel keeps the number that
	// tells it from what processes set: ionice gives the level 7, and most libraries 0.
	sluice = 3<<13 | 5
)

// unset reports whether a thread has no priority, so that the kernel derives it from its nice value.
// Before Linux 5.15, the class none has level 4 then; 5.15 to 5.19 show the normal level of the
// best-effort class.
func unset(ioprio int) bool { return ioprio>>13 == 0 || ioprio == normal }

// mostListings bounds how often the threads of a cgroup are listed, in case it never stops making
// new ones.
const mostListings = 8

// all changes the threads of a cgroup that have certain priorities. It lists the threads again until
// none is to be changed, for those that were being made. The kernel may have given the number of a
// thread that has ended to one of another cgroup: the listing after each change shows which threads
// were the cgroup's, and the others leave the idle class again.
func (t *Threads) all(cgroup string, applies func(has int) bool, to int) (changed int, err error) {
	var touched []int // by the listing before
	var failed error
	for listing := 0; ; listing++ {
		tids, err := t.list(cgroup)
		if err != nil {
			tids = nil // none is certain to be the cgroup's
		}
		slices.Sort(tids)
		strangers := slices.DeleteFunc(touched, func(tid int) bool {
			_, found := slices.BinarySearch(tids, tid)
			return found
		})
		changed -= len(strangers)
		if to == sluice {
			t.undo(strangers)
		}
		switch {
		case err != nil:
			return changed, fmt.Errorf("I/O priority: %w", err)
		case len(tids) > 0 && tids[0] < 1: // 0 would be the calling thread
			return changed, fmt.Errorf("I/O priority: %w: %s", unix.ERANGE, reason(unix.ERANGE))
		case listing == mostListings:
			return changed, failed
		}
		touched, failed = t.once(tids, applies, to)
		if changed += len(touched); len(touched)+len(strangers) == 0 {
			return changed, failed
		}
	}
}

// once changes the threads of one listing. It returns those that it changed, and the last error,
// whose text names no thread: it stays the same while the reason does.
func (t *Threads) once(tids []int, applies func(int) bool, to int) (touched []int, failed error) {
	for _, tid := range tids {
		has, err := t.get(tid)
		if err == nil && applies(has) {
			if err = t.set(tid, to); err == nil {
				touched = append(touched, tid)
			}
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			failed = fmt.Errorf("I/O priority: %w: %s", err, reason(err))
		}
	}
	return touched, failed
}

// undo takes threads out of the idle class that have it by Idle.
func (t *Threads) undo(tids []int) {
	for _, tid := range tids {
		if has, err := t.get(tid); err == nil && has == sluice {
			t.set(tid, none) //nolint:errcheck // it has ended, or may not be changed, as it was before
		}
	}
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

// reason explains an errno of set_task_ioprio (block/blk-ioc.c).
func reason(err error) string {
	var errno syscall.Errno
	errors.As(err, &errno)
	switch errno {
	case unix.EPERM:
		return "Sluice needs CAP_SYS_NICE for processes of other users, or a security module forbids it"
	case unix.ENOSYS:
		return "this kernel has no block devices (CONFIG_BLOCK), or a seccomp profile forbids ioprio_set"
	case unix.ERANGE:
		return "Sluice does not see the host's process ids"
	}
	return "the threads keep the priority that they have; a later pass tries again"
}
