package network

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Probe tries to limit a device of a network namespace that it makes for that. The error says what is missing.
func Probe() error {
	done := make(chan error)
	go func() {
		// The thread ends with this goroutine, since it stays locked, and the namespace with the thread.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("making a network namespace, which needs CAP_SYS_ADMIN: %w", err)
			return
		}
		done <- probe()
	}()
	return <-done
}

func probe() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return refusal("lo", netlink.QdiscReplace(filter(loopback, workload.LeastEgress)))
}
