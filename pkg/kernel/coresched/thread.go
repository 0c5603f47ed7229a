package coresched

import (
	"runtime"
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

// onThread runs f on a thread that ends afterwards, together with the cookie that f gave it. Go
// destroys the thread of a goroutine that exits locked to it, and creates no new thread from a
// locked one (newm, runtime/proc.go), so no other thread inherits the cookie.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// Go would not destroy the main thread but park it forever. While this goroutine is
			// locked to it, f can't run on it.
			onThread(f)
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}
