// Package thread runs functions on threads of their own, for what the kernel does to threads and Go can't undo. It also
// makes long system calls in turns, between which others have the CPU, and sets how late the kernel may wake threads.
package thread

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Run runs a function on a thread that ends afterwards, together with what the function did to it: a core-scheduling
// cookie, or a network namespace. Go ends the thread of a goroutine that exits locked to it, and makes no new
// thread from a locked one (newm, runtime/proc.go), so no other thread inherits anything.
func Run(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// Go would not end the main thread but park it forever, and /proc/self would show its namespaces. While this
			// goroutine is locked to it, the function can't run on it.
			Run(do)
			runtime.UnlockOSThread()
			return
		}
		do()
	}()
	<-done
}
