package network

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	leastBurst = 128 << 10 // in bytes: two packets of the largest usual size before segmentation (gso_max_size)
	queueTime  = 0.05      // longest delay in seconds; beyond it, packets are dropped
	mostQueue  = 1 << 30   // in bytes
	// answerTime bounds how long the kernel may take to answer.
	answerTime = 2 * time.Second
	// mostText is the most of /proc/net/dev that is read, about 500 devices. A pod that may make devices could else have
	// Sluice, and the kernel's lock on all devices, busy with them.
	mostText = 64 << 10
)

// Pod is the network of a pod. Its methods must not be called concurrently. It holds the namespace, so it must
// be closed when the pod ends.
type Pod struct {
	id       ID
	socket   *netlink.Handle
	counters *os.File // /proc/net/dev of the namespace
	text     []byte
}

// Pod opens a pod's network namespace: the one at a path of the host such as /run/netns/cni-1 or, where there is none
// or it can't be looked at, the one that a process of the pod is in; its number may be 0. The path counts first, since the
// number is somebody else's once the pod has ended. A pod on the host's network is ErrHostNetwork.
func (h *Host) Pod(pid int, path string) (*Pod, error) {
	if path != "" {
		p, err := h.open(h.outside(path))
		if pid == 0 || !errors.Is(err, fs.ErrPermission) && !errors.Is(err, errNoNamespace) {
			return p, err
		}
	}
	if pid == 0 {
		return nil, errors.New("the runtime names neither a process of the pod nor its network namespace")
	}
	return h.open("proc/" + strconv.Itoa(pid) + "/ns/net")
}

// outside returns where a path of the host is seen below the root: through a process of the host if this is another one's
// mounts. There, the link /var/run would lead to this process' own /run.
func (h *Host) outside(path string) string {
	if h.root == "/" {
		return path
	}
	if below, ok := strings.CutPrefix(path, "/var/run/"); ok {
		path = "/run/" + below
	}
	return "proc/1/root" + path
}

// errNoNamespace says that a file is no network namespace, as where the host's later mounts do not appear.
var errNoNamespace = errors.New("it is no network namespace")

func (h *Host) open(path string) (*Pod, error) {
	namespace, err := os.Open(h.path(path)) //nolint:gosec // G703: the path is the runtime's
	if err != nil {
		return nil, err
	}
	defer namespace.Close()
	return h.enter(namespace)
}

func (h *Host) enter(namespace *os.File) (*Pod, error) {
	if kind, err := unix.IoctlRetInt(int(namespace.Fd()), unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		return nil, fmt.Errorf("%s: %w", namespace.Name(), errNoNamespace)
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
	if err := p.socket.SetSocketTimeout(answerTime); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// ID tells the pod's network namespace from others.
func (p *Pod) ID() ID { return p.id }

// Close lets go of the namespace. What the pod may send stays as it is.
func (p *Pod) Close() {
	if p.socket != nil {
		p.socket.Close()
	}
	if p.counters != nil {
		p.counters.Close()
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
		if n >= mostText {
			return 0, errManyDevices
		}
		p.text = make([]byte, 2*len(p.text))
	}
}

var errManyDevices = errors.New("the pod has more devices than Sluice reads, about 500")

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
