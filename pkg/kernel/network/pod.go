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
)

const (
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
