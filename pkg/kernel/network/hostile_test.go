package network

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestOtherKind finds a qdisc of another kind with Sluice's number, which is not Sluice's.
func TestOtherKind(t *testing.T) {
	needRoot(t)
	host := thisHost(t)
	a, b := newSandbox(t), newSandbox(t)
	connect(t, a, b, "eth0", "eth0", "192.0.2.1/24", "192.0.2.2/24")
	a.inside(t, func() error {
		device, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: device.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: handle}, QdiscType: "pfifo"})
	})
	p := open(t, host, a)
	if err := p.Limit(1e6); err == nil || !strings.Contains(err.Error(), "eth0 has a qdisc (pfifo) that somebody else has set") {
		t.Errorf("got %v", err)
	}
	if limited, err := p.IsLimited(); limited || err != nil {
		t.Errorf("limited %t, %v", limited, err)
	}
}

// TestDown ends the limit of a device that is down.
func TestDown(t *testing.T) {
	needRoot(t)
	host := thisHost(t)
	a, b := newSandbox(t), newSandbox(t)
	connect(t, a, b, "eth0", "eth0", "192.0.2.1/24", "192.0.2.2/24")
	p := open(t, host, a)
	if err := p.Limit(1e6); err != nil {
		t.Fatal(err)
	}
	a.inside(t, func() error {
		device, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(device)
	})
	if limited, err := p.IsLimited(); !limited || err != nil {
		t.Errorf("limited %t, %v", limited, err)
	}
	if err := p.Release(); err != nil {
		t.Error(err)
	}
	if limited, err := p.IsLimited(); limited || err != nil {
		t.Errorf("still limited %t, %v", limited, err)
	}
}

// devices makes pairs of devices in a namespace, which are up.
func (s sandbox) devices(t *testing.T, pairs int) {
	t.Helper()
	s.inside(t, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		for i := range pairs {
			d := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a" + strconv.Itoa(i), Flags: net.FlagUp}, PeerName: "b" + strconv.Itoa(i)}
			if err := h.LinkAdd(d); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestManyDevices refuses a pod that has made so many devices that reading and limiting them would take long.
func TestManyDevices(t *testing.T) {
	needRoot(t)
	host := thisHost(t)
	s := newSandbox(t)
	p := open(t, host, s)
	s.devices(t, 100)
	if _, err := p.Sent(); err != nil {
		t.Error(err)
	}
	if err := p.Limit(1e6); err != nil {
		t.Error(err)
	}
	s.inside(t, func() error { // 900 devices more, from another name on
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		for i := range 450 {
			if err := h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "c" + strconv.Itoa(i)}, PeerName: "d" + strconv.Itoa(i)}); err != nil {
				return err
			}
		}
		return nil
	})
	if _, err := p.Sent(); err == nil || !strings.Contains(err.Error(), "more devices than Sluice reads") {
		t.Errorf("got %v", err)
	}
	if err := p.Limit(2e6); err == nil || !strings.Contains(err.Error(), "more devices than Sluice reads") {
		t.Errorf("got %v", err)
	}
	if err := p.Release(); err != nil {
		t.Error(err)
	}
	if limited, err := p.IsLimited(); limited || err != nil {
		t.Errorf("limited %t, %v", limited, err)
	}
}

// TestChangingDevices lists the devices of a pod while it makes and removes some.
func TestChangingDevices(t *testing.T) {
	needRoot(t)
	host := thisHost(t)
	s := newSandbox(t)
	s.devices(t, 50)
	p := open(t, host, s)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		s.inside(t, func() error {
			for {
				select {
				case <-end:
					return nil
				default:
				}
				d := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "x0"}, PeerName: "x1"}
				if err := errors.Join(netlink.LinkAdd(d), netlink.LinkDel(d)); err != nil {
					return err
				}
			}
		})
	}()
	failed := 0
	for range 200 {
		if _, err := p.IsLimited(); err != nil {
			failed++
		}
	}
	close(end)
	<-ended
	if failed > 0 {
		t.Errorf("%d of 200 times, the devices can't be listed", failed)
	}
}

// TestBigTCP lowers the limit of a device whose packets before segmentation are larger than usual ("BIG TCP"). The kernel
// never sends a packet that waits and is larger than the burst.
func TestBigTCP(t *testing.T) {
	needRoot(t)
	host := thisHost(t)
	from, to := newSandbox(t), newSandbox(t)
	connect(t, from, to, "eth0", "eth0", "192.0.2.1/24", "192.0.2.2/24")
	for _, s := range []sandbox{from, to} {
		s.inside(t, func() error {
			device, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			const size = 400 << 10
			return errors.Join(
				netlink.LinkSetGSOMaxSize(device, size), netlink.LinkSetGROMaxSize(device, size),
				netlink.LinkSetGSOIPv4MaxSize(device, size), netlink.LinkSetGROIPv4MaxSize(device, size),
			)
		})
	}
	received := receive(t, to, "192.0.2.2:5000")
	from.inside(t, func() error { return send("192.0.2.2:5000") })
	p := open(t, host, from)
	for range 2 {
		for _, limit := range []int64{4e9, 20e6} {
			if err := p.Limit(limit); err != nil {
				t.Fatal(err)
			}
			time.Sleep(400 * time.Millisecond)
		}
		was := received.Load()
		time.Sleep(time.Second)
		if received.Load() == was {
			t.Fatal("at the lower limit, nothing arrives any more")
		}
	}
}
