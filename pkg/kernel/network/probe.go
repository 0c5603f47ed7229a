package network

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Probe tries to limit a device of a network namespace that it makes for that. The error says what is missing.
func Probe() error {
	return onThread(func() error { // the namespace ends with the thread
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace, which needs CAP_SYS_ADMIN: %w", err)
		}
		return probe()
	})
}

func probe() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return refusal("lo", netlink.QdiscReplace(filter(loopback, workload.LeastEgress)))
}
