package network

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// handle marks the qdiscs that are Sluice's. A qdisc to which nobody gives a number has one from 8000 on.
const handle = 0x51ce << 16

// The constants of the token bucket filter.
const (
	burstTime  = 0.002     // a burst in seconds at the limit
	leastBurst = 128 << 10 // in bytes: two packets of the largest usual size before segmentation (gso_max_size)
	queueTime  = 0.05      // longest delay in seconds; beyond it, packets are dropped
	mostQueue  = 1 << 30   // in bytes
)

// Limit limits what each device of the pod that is up, but the loopback, sends, in bits per second. A device with a qdisc
// of somebody else stays as it is, which is an error.
func (p *Pod) Limit(bits int64) error {
	if _, err := p.Sent(); err != nil {
		return err
	}
	return p.each(func(device netlink.Link, root netlink.Qdisc) error {
		name := device.Attrs().Name
		switch {
		case device.Attrs().RawFlags&unix.IFF_UP == 0: // as the kernel's own tunnels are
			return nil
		case root != nil && !isOurs(root):
			return fmt.Errorf("device %s has a qdisc (%s) that somebody else has set", name, root.Type())
		}
		return refusal(name, p.socket.QdiscReplace(filter(device, bits)))
	})
}

// isOurs reports whether Limit has set a root qdisc, which is nil for the kernel's default one.
func isOurs(root netlink.Qdisc) bool {
	return root != nil && root.Attrs().Handle == handle && root.Type() == "tbf"
}

// filter returns the token bucket filter of a device.
func filter(device netlink.Link, bits int64) *netlink.Tbf {
	rate := uint64(max(bits, workload.LeastEgress)) / 8
	// A packet that waits already is never sent if it is larger than the burst, with its segments' headers.
	packet := 2 * max(device.Attrs().GSOMaxSize, device.Attrs().GSOIPv4MaxSize)
	burst := max(leastBurst, float64(packet), float64(rate)*burstTime)
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: device.Attrs().Index, Handle: handle, Parent: netlink.HANDLE_ROOT},
		Rate:       rate,
		Buffer:     netlink.Xmittime(rate, uint32(min(burst, mostQueue))),
		Limit:      uint32(min(burst+float64(rate)*queueTime, mostQueue)),
	}
}

// refusal says why the kernel refuses a limit; nil if it does not.
func refusal(device string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("the kernel has no token bucket filter (CONFIG_NET_SCH_TBF, module sch_tbf): %w", err)
	case err != nil:
		return fmt.Errorf("limiting device %s, which needs CAP_NET_ADMIN: %w", device, err)
	}
	return nil
}

// Release ends the limits that Limit has set.
func (p *Pod) Release() error {
	return p.each(func(device netlink.Link, root netlink.Qdisc) error {
		if !isOurs(root) {
			return nil
		}
		if err := p.socket.QdiscDel(root); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("ending the limit of device %s: %w", device.Attrs().Name, err)
		}
		return nil
	})
}

// lower lowers the limits that Limit has set to that many bits per second where they are higher.
func (p *Pod) lower(bits int64) error {
	return p.each(func(device netlink.Link, root netlink.Qdisc) error {
		if !isOurs(root) || root.(*netlink.Tbf).Rate <= uint64(max(bits, workload.LeastEgress))/8 {
			return nil
		}
		return refusal(device.Attrs().Name, p.socket.QdiscReplace(filter(device, bits)))
	})
}

// IsLimited reports whether a device has a limit that Limit has set.
func (p *Pod) IsLimited() (limited bool, err error) {
	err = p.each(func(_ netlink.Link, root netlink.Qdisc) error {
		limited = limited || isOurs(root)
		return nil
	})
	return limited, err
}

// each calls a function for each device except the loopback, with its root qdisc; nil for the
// kernel's default one.
func (p *Pod) each(do func(netlink.Link, netlink.Qdisc) error) error {
	devices, err := complete(p.socket.LinkList)
	if err != nil {
		return fmt.Errorf("listing the pod's devices: %w", err)
	}
	all, err := complete(func() ([]netlink.Qdisc, error) { return p.socket.QdiscList(nil) })
	if err != nil {
		return fmt.Errorf("listing the pod's qdiscs: %w", err)
	}
	roots := map[int]netlink.Qdisc{}
	for _, q := range all {
		if at := q.Attrs(); at.Parent == netlink.HANDLE_ROOT && at.Handle != 0 {
			roots[at.LinkIndex] = q
		}
	}
	var errs []error
	for _, d := range devices {
		if d.Attrs().RawFlags&unix.IFF_LOOPBACK == 0 {
			errs = append(errs, do(d, roots[d.Attrs().Index]))
		}
	}
	return errors.Join(errs...)
}

// complete lists something until nothing has changed meanwhile, as the kernel reports.
func complete[T any](list func() ([]T, error)) (all []T, err error) {
	for range 10 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return nil, err
}
