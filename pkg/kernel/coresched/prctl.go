package coresched

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// prctl calls prctl(PR_SCHED_CORE, cmd, pid, scope, id). SHARE_TO copies the calling thread's
// cookie to pid, SHARE_FROM copies pid's cookie to the calling thread, and pid 0 is the calling
// thread.
type prctl func(cmd, pid, scope int, id *uint64) error

func kernel(cmd, pid, scope int, id *uint64) error {
	_, _, errno := unix.Syscall6(unix.SYS_PRCTL, unix.PR_SCHED_CORE, uintptr(cmd), uintptr(pid), uintptr(scope), uintptr(unsafe.Pointer(id)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
