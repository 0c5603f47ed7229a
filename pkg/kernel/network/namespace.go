package network

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ID tells network namespaces apart: device and inode of their file (namespaces(7)).
type ID struct{ device, inode uint64 }

func idOf(namespace *os.File) (ID, error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(namespace.Fd()), &s); err != nil {
		return ID{}, err
	}
	return ID{s.Dev, s.Ino}, nil
}

// within calls a function in a network namespace. What the function opens stays in that namespace: sockets,
// and files of /proc/thread-self/net.
func within(namespace *os.File, do func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering the pod's network namespace, which needs CAP_SYS_ADMIN: %w", err)
		}
		return do()
	})
}

// onThread calls a function on a thread that ends afterwards, so nothing else ever runs in a namespace that the
// function enters.
func onThread(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread of a goroutine that ends locked ends with it
		if unix.Gettid() == unix.Getpid() {
			// Go would park the main thread instead, and /proc/self would show its namespace for ever. While this
			// goroutine is locked to it, the function can't run on it.
			err := onThread(do)
			runtime.UnlockOSThread()
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}
