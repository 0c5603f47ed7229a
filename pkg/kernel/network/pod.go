package network

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// handle marks the qdiscs that are Sluice's. A qdisc to which nobody gives a number has one from 8000 on.
const handle = 0x51ce << 16

// The constants of the token bucket filter.
const (
	burstTime  = 0.002     // a burst in seconds at the limit
	leastBurst = 128 << 10 // in bytes: two packets of the largest usual size before segmentation
	queueTime  = 0.05      // longest delay in seconds; beyond it, packets are dropped
	mostQueue  = 1 << 30   // in bytes
	// answerTime bounds how long the kernel may take to answer.
	answerTime = 2 * time.Second
)

// Pod is the network of a pod. Its methods must not be called concurrently. It holds the namespace, so it must
// be closed when the pod ends.
type Pod struct {
	id       ID
	socket   *netlink.Handle
	counters *os.File // /proc/net/dev of the namespace
	text     []byte
}

// Pod opens the network namespace that a process of a pod is in or, if pid is 0, the one at a path of the
// host such as /run/netns/cni-1. A pod on the host's network is ErrHostNetwork.
func (h *Host) Pod(pid int, path string) (*Pod, error) {
	switch {
	case pid != 0:
		path = "proc/" + strconv.Itoa(pid) + "/ns/net"
	case path == "":
		return nil, errors.New("the runtime names neither a process of the pod nor its network namespace")
	default:
		path = h.mounted(path)
	}
	namespace, err := os.Open(h.path(path))
	if err != nil {
		return nil, err
	}
	defer namespace.Close() //nolint:errcheck // nothing was written
	return h.enter(namespace)
}

// mounted returns the path below the root of a file that is mounted on the host.
func (h *Host) mounted(path string) string {
	if h.root == "/" {
		return strings.TrimPrefix(path, "/")
	}
	// The host's mounts are seen through a process of the host. The link /var/run would lead to this process' own /run.
	if within, ok := strings.CutPrefix(path, "/var/run/"); ok {
		path = "/run/" + within
	}
	return "proc/1/root" + path
}

func (h *Host) enter(namespace *os.File) (*Pod, error) {
	if kind, err := unix.IoctlRetInt(int(namespace.Fd()), unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		return nil, fmt.Errorf("%s is no network namespace", namespace.Name())
	}
	id, err := idOf(namespace)
	if err != nil {
		return nil, err
	}
	if id == h.own {
		return nil, ErrHostNetwork
	}
	p := &Pod{id: id, text: make([]byte, 4096)}
	err = within(namespace, func() (err error) {
		if p.counters, err = os.Open("/proc/thread-self/net/dev"); err != nil {
			return err
		}
		p.socket, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		p.Close()
		return nil, err
	}
	// A kernel that is busy with other devices answers late, and never is no answer.
	return p, p.socket.SetSocketTimeout(answerTime)
}

// ID tells the pod's network namespace from others.
func (p *Pod) ID() ID { return p.id }

// Close lets go of the namespace. What the pod may send stays as it is.
func (p *Pod) Close() {
	if p.socket != nil {
		p.socket.Close()
	}
	if p.counters != nil {
		p.counters.Close() //nolint:errcheck // nothing was written
	}
}

// Sent returns the bytes that the pod has sent on all devices but the loopback.
func (p *Pod) Sent() (uint64, error) {
	for {
		n, err := p.counters.ReadAt(p.text, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if n < len(p.text) {
			return parseSent(p.text[:n])
		}
		p.text = make([]byte, 2*len(p.text))
	}
}

// parseSent adds up the bytes sent in the text of /proc/net/dev: after two lines of titles, a line for each
// device with eight counters of what it received and then the bytes that it sent.
func parseSent(text []byte) (sum uint64, err error) {
	for at, line := range bytes.Split(text, []byte("\n")) {
		name, counters, ok := bytes.Cut(line, []byte(":"))
		if !ok || at < 2 || string(bytes.TrimSpace(name)) == "lo" {
			continue
		}
		f := bytes.Fields(counters)
		if len(f) < 9 {
			return 0, fmt.Errorf("/proc/net/dev: %d counters of device %s", len(f), bytes.TrimSpace(name))
		}
		sent, err := strconv.ParseUint(string(f[8]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/net/dev: %w", err)
		}
		sum += sent
	}
	return sum, nil
}

// Limit limits what each device of the pod but the loopback sends, in bits per second. A device with a qdisc
// of somebody else stays as it is, which is an error.
func (p *Pod) Limit(bits int64) error {
	return p.each(func(device netlink.Link, root netlink.Qdisc) error {
		name := device.Attrs().Name
		if root != nil && root.Attrs().Handle != handle {
			return fmt.Errorf("device %s has a qdisc (%s) that somebody else has set", name, root.Type())
		}
		return refusal(name, p.socket.QdiscReplace(filter(device, bits)))
	})
}

// filter returns the token bucket filter of a device.
func filter(device netlink.Link, bits int64) *netlink.Tbf {
	rate := uint64(max(bits, workload.LeastEgress)) / 8
	burst := max(leastBurst, float64(rate)*burstTime)
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
		if root == nil || root.Attrs().Handle != handle {
			return nil
		}
		if err := p.socket.QdiscDel(root); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("ending the limit of device %s: %w", device.Attrs().Name, err)
		}
		return nil
	})
}

// IsLimited reports whether a device has a limit that Limit has set.
func (p *Pod) IsLimited() (limited bool, err error) {
	err = p.each(func(_ netlink.Link, root netlink.Qdisc) error {
		limited = limited || root != nil && root.Attrs().Handle == handle
		return nil
	})
	return limited, err
}

// each calls a function for each device that is up, except the loopback, with its root qdisc; nil for the
// kernel's default one.
func (p *Pod) each(do func(netlink.Link, netlink.Qdisc) error) error {
	devices, err := p.socket.LinkList()
	if err != nil {
		return fmt.Errorf("listing the pod's devices: %w", err)
	}
	all, err := p.socket.QdiscList(nil)
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
		if flags := d.Attrs().RawFlags; flags&unix.IFF_LOOPBACK == 0 && flags&unix.IFF_UP != 0 {
			errs = append(errs, do(d, roots[d.Attrs().Index]))
		}
	}
	return errors.Join(errs...)
}
