package main

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// under runs a program that finds a file in place of /proc/stat, in its own mount namespace. It
// returns only on failure.
func under(stat string, command []string) error {
	runtime.LockOSThread() // a namespace belongs to a thread
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("leaving the mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount(stat, "/proc/stat", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s: %w", stat, err)
	}
	return unix.Exec(command[0], command, os.Environ())
}
