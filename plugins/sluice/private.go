package main

import (
	"fmt"
	"os"
	"syscall"
)

// private makes a folder that only its owner may use, or checks the one that is
// there: whoever else may write in it could have root write elsewhere, by a link. The
// key of the configuration names it.
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
