package bed

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/vishvananda/netlink"
)

// bridge makes the slot's network interface with that number, which has the first address
// of its network, and returns the address. A bridge needs no driver beyond what the pods'
// network needs, and serves its addresses without ports. It has a hardware address of its own: the
// kernel gives other bridges that of one of their ports, which changes as pods come and go, and the
// pods' connections then stand still until they look the address up again.
func (s slot) bridge(number int) (net.IP, error) {
	address := s.address(number, 1)
	hardware := append(net.HardwareAddr{0x02, 0}, address.To4()...) // 02 marks addresses that nobody else assigns
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: s.link(number), HardwareAddr: hardware}}
	if err := netlink.LinkAdd(link); err != nil {
		return nil, fmt.Errorf("adding the bridge %s: %w", link.Name, err)
	}
	err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: address, Mask: net.CIDRMask(24, 32)}})
	if err = errors.Join(err, netlink.LinkSetUp(link)); err != nil {
		return nil, fmt.Errorf("giving the bridge %s the address %s: %w", link.Name, address, err)
	}
	return address, nil
}

// serve makes the API server reachable at the address and port of the service "kubernetes",
// which is what clients in pods use. It stands in for kube-proxy.
func (c *Cluster) serve(t testing.TB) error {
	address, err := c.slot.bridge(0)
	if err != nil {
		return err
	}
	server, err := url.Parse(c.url)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address.String(), "443"))
	if err != nil {
		return err
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go forward(client, server.Host)
		}
	}()
	return nil
}

// forward connects the client with the address, and ends with the first of the two.
func forward(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}
