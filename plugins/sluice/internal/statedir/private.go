package statedir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// private creates a folder that only its owner may use, or checks an existing one: a user who
// can write to it could use a link to make root write elsewhere. key is the configuration key
// of the folder, for errors.
func private(dir, key string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner := os.Geteuid()
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = int(stat.Uid)
	}
	switch {
	case owner != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, who could change what is in it: chown it to %d, or name another %s", dir, owner, os.Geteuid(), key)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s may be written by others than its owner (mode %#o): chmod it to 0700, or name another %s", dir, info.Mode().Perm(), key)
	}
	return nil
}

// Writable returns an error if Sluice can't write into a folder or, if that doesn't exist, into
// the nearest existing parent, in which Sluice would create it.
func Writable(dir string) error {
	for {
		err := unix.Access(dir, unix.W_OK)
		if !errors.Is(err, unix.ENOENT) || dir == "/" {
			if err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

const lockFile = "lock"

// Lock ensures that only one sluice uses a state folder: two would register with the runtime
// twice and conflict with each other in every field. It waits for another process to end for at
// most patience.
func Lock(ctx context.Context, stateDir string, patience time.Duration) (unlock func(), err error) {
	if err := private(stateDir, "stateDir"); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(stateDir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	for deadline := time.Now().Add(patience); unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) || ctx.Err() != nil {
			file.Close()
			return nil, fmt.Errorf("another sluice works with state folder %s: stop it first, or name another stateDir", stateDir)
		}
	}
	return func() { file.Close() }, nil
}

// Locked reports whether a running sluice uses a state folder.
func Locked(stateDir string) bool {
	file, err := os.Open(filepath.Join(stateDir, lockFile))
	if err != nil {
		return false
	}
	defer file.Close()
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}
