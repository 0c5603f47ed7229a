package network

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/thread"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Probe tries to limit a device of a network namespace that it makes for that. The error says what is missing.
func Probe() (err error) {
	thread.Run(func() { // the namespace ends with the thread
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("making a network namespace, which needs CAP_SYS_ADMIN: %w", err)
			return
		}
		var loopback netlink.Link
		if loopback, err = netlink.LinkByName("lo"); err == nil {
			err = refusal("lo", netlink.QdiscReplace(filter(loopback, workload.LeastEgress)))
		}
	})
	return err
}
