package network

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sandbox is a network namespace with a process in it, as a pod's is.
type sandbox struct{ pid int }

// inside calls a function on a thread in the namespace.
func (s sandbox) inside(t testing.TB, do func() error) {
	t.Helper()
	namespace, err := os.Open("/proc/" + strconv.Itoa(s.pid) + "/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	if err := within(namespace, do); err != nil {
		t.Fatal(err)
	}
}

// newSandbox makes a namespace, and a process in it that lives as long as the test.
func newSandbox(t testing.TB) sandbox {
	t.Helper()
	process := exec.Command("sleep", "600")
	process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := process.Start(); err != nil {
		t.Skipf("network namespaces can't be made here: %v", err)
	}
	pid := process.Process.Pid
	go process.Wait() // it is killed
	t.Cleanup(func() { unix.Kill(pid, unix.SIGKILL) })
	return sandbox{pid}
}

// connect connects two namespaces by a pair of devices with these addresses.
func connect(t testing.TB, a, b sandbox, nameA, nameB, addressA, addressB string) {
	t.Helper()
	up := func(name, address string) error {
		device, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(device, addr), netlink.LinkSetUp(device))
	}
	a.inside(t, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		return h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nameA}, PeerName: nameB, PeerNamespace: netlink.NsPid(b.pid)})
	})
	a.inside(t, func() error { return up(nameA, addressA) })
	b.inside(t, func() error { return up(nameB, addressB) })
}

// thisHost opens the network of the machine.
func thisHost(t testing.TB) *Host {
	t.Helper()
	host, err := Open("/")
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// open opens the network of a sandbox until the test ends.
func open(t testing.TB, host *Host, s sandbox) *Pod {
	t.Helper()
	p, err := host.Pod(s.pid, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// TestLimit limits real traffic between two network namespaces, changes the limit, and ends it.
func TestLimit(t *testing.T) {
	needRoot(t)
	host := thisHost(t)
	from, to := newSandbox(t), newSandbox(t)
	connect(t, from, to, "eth0", "eth0", "192.0.2.1/24", "192.0.2.2/24")
	received := receive(t, to, "192.0.2.2:5000")
	from.inside(t, func() error { return send("192.0.2.2:5000") })

	p := open(t, host, from)
	rate := func() float64 {
		time.Sleep(200 * time.Millisecond)
		was, at := received.Load(), time.Now()
		time.Sleep(time.Second)
		return float64(received.Load()-was) * 8 / time.Since(at).Seconds()
	}
	for _, limit := range []int64{400e6, 20e6, 100e6} {
		if err := p.Limit(limit); err != nil {
			t.Fatal(err)
		}
		sentBefore, err := p.Sent()
		if err != nil {
			t.Fatal(err)
		}
		got := rate()
		sent, err := p.Sent()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("limit %d Mbit/s: %.1f arrived, %.1f sent", limit/1e6, got/1e6, float64(sent-sentBefore)*8/1.2/1e6)
		if got > 1.1*float64(limit) || got < 0.5*float64(limit) {
			t.Errorf("with a limit of %d bit/s, %.0f arrive", limit, got)
		}
	}
	if limited, err := p.IsLimited(); err != nil || !limited {
		t.Errorf("limited: %t, %v", limited, err)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	if got := rate(); got < 300e6 {
		t.Errorf("without a limit, %.0f bit/s arrive", got)
	}
}

// TestOwnNetwork enters a pod's network from many threads, and stays on the host's with the main thread, which Go
// gives to any goroutine.
func TestOwnNetwork(t *testing.T) {
	needRoot(t)
	pod := newSandbox(t)
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 500 {
		pod.inside(t, func() error { return nil })
		if after, err := os.Readlink("/proc/self/ns/net"); err != nil || after != before {
			t.Fatalf("this process is in %s, and was in %s; %v", after, before, err)
		}
	}
}

// TestReleaseMounted ends the limit of a pod that has no process any more, as CRI-O leaves one whose containers
// have ended.
func TestReleaseMounted(t *testing.T) {
	needRoot(t)
	host := thisHost(t)
	a, b := newSandbox(t), newSandbox(t)
	connect(t, a, b, "eth0", "eth0", "192.0.2.1/24", "192.0.2.2/24")
	file := filepath.Join(t.TempDir(), "a network")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/proc/"+strconv.Itoa(a.pid)+"/ns/net", file, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("namespaces can't be mounted here: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(file, unix.MNT_DETACH) })
	p, err := host.Pod(a.pid, "")
	if err != nil {
		t.Fatal(err)
	}
	err = p.Limit(1e6)
	p.Close()
	if err != nil {
		t.Fatal(err)
	}
	unix.Kill(a.pid, unix.SIGKILL)
	for {
		if _, err := os.Stat("/proc/" + strconv.Itoa(a.pid)); err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if n, err := host.Release(nil, false); err != nil || n == 0 {
		t.Errorf("%d limited, %v", n, err)
	}
	left, err := host.Pod(0, file)
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	if limited, err := left.IsLimited(); err != nil || limited {
		t.Errorf("still limited: %t, %v", limited, err)
	}
}

// TestReleaseAll ends limits that an earlier process has set, and no qdisc of somebody else.
func TestReleaseAll(t *testing.T) {
	needRoot(t)
	host := thisHost(t)
	a, b := newSandbox(t), newSandbox(t)
	connect(t, a, b, "eth0", "eth0", "192.0.2.1/24", "192.0.2.2/24")
	connect(t, a, b, "net1", "net1", "192.0.3.1/24", "192.0.3.2/24")
	b.inside(t, func() error {
		device, err := netlink.LinkByName("net1")
		if err != nil {
			return err
		}
		return netlink.QdiscAdd(&netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: device.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}, Rate: 1e6, Buffer: 1e6, Limit: 1e6})
	})
	for at, s := range []sandbox{a, b} {
		p, err := host.Pod(s.pid, "")
		if err != nil {
			t.Fatal(err)
		}
		err = p.Limit(1e6)
		if at == 0 && err != nil {
			t.Error(err)
		}
		if at == 1 && (err == nil || !strings.Contains(err.Error(), "device net1 has a qdisc (tbf) that somebody else has set")) {
			t.Errorf("got %v", err)
		}
		p.Close()
	}
	if n, err := host.Release(nil, true); err != nil || n != 2 {
		t.Errorf("%d limited, %v", n, err)
	}
	kept := open(t, host, a)
	if n, err := host.Release([]ID{kept.ID()}, true); err != nil || n != 1 {
		t.Errorf("%d limited beside the one to keep, %v", n, err)
	}
	if n, err := host.Release(nil, false); err != nil || n != 2 {
		t.Errorf("%d limited, %v", n, err)
	}
	if n, err := host.Release(nil, false); err != nil || n != 0 {
		t.Errorf("%d still limited, %v", n, err)
	}
	b.inside(t, func() error {
		all, err := netlink.QdiscList(nil)
		if err != nil {
			return err
		}
		for _, q := range all {
			if q.Attrs().Handle == netlink.MakeHandle(1, 0) {
				return nil
			}
		}
		t.Errorf("the qdisc of somebody else is gone: %v", all)
		return nil
	})
}

// TestLower lowers what is higher.
func TestLower(t *testing.T) {
	needRoot(t)
	host := thisHost(t)
	a, b, c := newSandbox(t), newSandbox(t), newSandbox(t)
	connect(t, a, b, "eth0", "eth0", "192.0.2.1/24", "192.0.2.2/24")
	connect(t, c, b, "eth0", "net1", "192.0.3.1/24", "192.0.3.2/24")
	limits := map[sandbox]int64{a: 8e6, b: 80e6, c: 0}
	for s, limit := range limits {
		if limit == 0 {
			continue
		}
		p, err := host.Pod(s.pid, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Limit(limit); err != nil {
			t.Error(err)
		}
		p.Close()
	}
	if n, err := host.Lower(16e6); n < 2 || err != nil {
		t.Errorf("%d limits, %v", n, err)
	}
	for s, limit := range limits {
		s.inside(t, func() error {
			all, err := netlink.QdiscList(nil)
			for _, q := range all {
				if want := uint64(min(limit, 16e6)) / 8; isOurs(q) && q.(*netlink.Tbf).Rate != want || isOurs(q) != (limit > 0) && q.Attrs().Handle != 0 {
					t.Errorf("with a limit of %d: %v, want %d bytes per second", limit, q, want)
				}
			}
			return err
		})
	}
}

// TestPodErrors opens what is no pod's network.
func TestPodErrors(t *testing.T) {
	needRoot(t)
	host := thisHost(t)
	if _, err := host.Pod(os.Getpid(), ""); !errors.Is(err, ErrHostNetwork) {
		t.Errorf("the host's own network: %v", err)
	}
	if p, err := host.Pod(0, "/proc/"+strconv.Itoa(newSandbox(t).pid)+"/ns/net"); err != nil {
		t.Error(err)
	} else {
		p.Close()
	}
	if _, err := host.Pod(0, "/etc/hostname"); err == nil || !strings.Contains(err.Error(), "no network namespace") {
		t.Errorf("a file: %v", err)
	}
	if _, err := host.Pod(0, ""); err == nil || !strings.Contains(err.Error(), "names neither") {
		t.Errorf("nothing: %v", err)
	}
	if _, err := host.Pod(1<<30, ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such process: %v", err)
	}
}

// TestReused opens a pod by a process number that somebody else has got since, and by the path that is the pod's own.
func TestReused(t *testing.T) {
	needRoot(t)
	host := thisHost(t)
	pod, other := newSandbox(t), newSandbox(t)
	byProcess := open(t, host, pod)
	path := "/proc/" + strconv.Itoa(pod.pid) + "/ns/net"
	p, err := host.Pod(other.pid, path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.ID() != byProcess.ID() {
		t.Error("the process' network is taken, and not the pod's")
	}
	if _, err := host.Pod(other.pid, "/run/netns/gone"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pod has ended: %v", err)
	}
}

// receive counts the bytes that arrive at an address in a namespace.
func receive(t *testing.T, at sandbox, address string) *atomic.Int64 {
	t.Helper()
	var l net.Listener
	at.inside(t, func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	t.Cleanup(func() { l.Close() })
	var received atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(counter{&received}, c) // until the test ends
		}
	}()
	return &received
}

// send sends without end from the namespace of the thread.
func send(address string) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	go io.Copy(c, zeros{}) // until the test ends
	return nil
}

type counter struct{ bytes *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.bytes.Add(int64(len(b)))
	return len(b), nil
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestProbe checks that this kernel can limit devices, and that the probe leaves the process in its network namespace.
func TestProbe(t *testing.T) {
	needRoot(t)
	was, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 100 { // by chance on the process' first thread, which is what /proc/self shows
		if err := Probe(); err != nil {
			t.Fatal(err)
		}
		if is, err := os.Readlink("/proc/self/ns/net"); is != was {
			t.Fatalf("the process is in %s, was in %s, %v", is, was, err)
		}
	}
}

// TestWithoutRights reports a missing capability, also instead of ending no limit in silence.
func TestWithoutRights(t *testing.T) {
	needRoot(t)
	const inside = "SLUICE_WITHOUT_RIGHTS"
	if os.Getenv(inside) == "" {
		newSandbox(t)
		cmd := exec.Command("setpriv", "--bounding-set=-sys_admin", "--", os.Args[0], "-test.run=^TestWithoutRights$")
		cmd.Env = append(os.Environ(), inside+"=yes")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	host := thisHost(t)
	_, release := host.Release(nil, false)
	for what, err := range map[string]error{"probe": Probe(), "release": release} {
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "needs CAP_SYS_ADMIN") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
