package coresched

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// prctl is prctl(PR_SCHED_CORE, cmd, pid, scope, id). SHARE_TO gives the cookie of
// the calling thread, SHARE_FROM takes one for it, and pid 0 means it.
type prctl func(cmd, pid, scope int, id *uint64) error

func kernel(cmd, pid, scope int, id *uint64) error {
	_, _, errno := unix.Syscall6(unix.SYS_PRCTL, unix.PR_SCHED_CORE, uintptr(cmd), uintptr(pid), uintptr(scope), uintptr(unsafe.Pointer(id)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// onThread runs f on a thread that ends after it, with the cookie that f gave it:
// Go destroys the thread of a goroutine that exits locked to it, and clones no new
// thread from a locked one (newm, runtime/proc.go), so that no other inherits it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread alone would be parked for ever instead of destroyed.
			// Held here, it can't be the one that runs f.
			onThread(f)
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}
