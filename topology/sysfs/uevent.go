package sysfs

import (
	"context"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelEvents is the multicast group of the kernel's uevents. Those of udev are in group 2.
const kernelEvents = 1

// listen sends to events at each uevent that can change the machine, until ctx
// ends. Without netlink (a user namespace, a seccomp profile) it returns at once.
func listen(ctx context.Context, events chan<- struct{}) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return
	}
	// The socket is non-blocking, so that the file is polled and Close ends a Read.
	socket := os.NewFile(uintptr(fd), "netlink kobject uevent")
	defer socket.Close()
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelEvents}); err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { socket.Close() })()

	message := make([]byte, 8<<10) // the kernel's UEVENT_BUFFER_SIZE is 2 KiB
	for {
		n, err := socket.Read(message)
		lost := errors.Is(err, unix.ENOBUFS) // events came faster than they were read
		if err != nil && !lost {
			return
		}
		if lost || changesMachine(message[:n]) {
			signal(events)
		}
	}
}

// signal leaves one pending event, however many arrive.
func signal(events chan<- struct{}) {
	select {
	case events <- struct{}{}:
	default:
	}
}

// changesMachine reports whether a uevent is about a CPU, NUMA node, memory block or PCI device
// that was added, removed, or switched on or off. A message is "action@devpath", then KEY=value
// fields, each ended by a zero byte.
func changesMachine(message []byte) bool {
	header, fields, _ := strings.Cut(string(message), "\x00")
	action, _, ok := strings.Cut(header, "@")
	if !ok {
		return false
	}
	switch action {
	case "add", "remove", "online", "offline":
	default:
		return false
	}
	for field := range strings.SplitSeq(fields, "\x00") {
		switch field {
		case "SUBSYSTEM=cpu", "SUBSYSTEM=node", "SUBSYSTEM=memory", "SUBSYSTEM=pci":
			return true
		}
	}
	return false
}
