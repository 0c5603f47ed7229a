package network

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/thread"
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

// within calls a function in a network namespace, on a thread of its own. What the function opens stays in that
// namespace: sockets, and files of /proc/thread-self/net.
func within(namespace *os.File, do func() error) (err error) {
	thread.Run(func() {
		if err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("entering the pod's network namespace, which needs CAP_SYS_ADMIN: %w", err)
			return
		}
		err = do()
	})
	return err
}
