package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// conflist configures the network of pods. The bridge is there before and has its address, because
// the plugin, as a gateway, would switch on the forwarding of the whole machine.
type conflist struct {
	CNIVersion string       `json:"cniVersion"`
	Name       string       `json:"name"` // that of the Runtime's folder
	Plugins    [1]cniPlugin `json:"plugins"`
}

// cniPlugin configures the CNI plugin "bridge".
type cniPlugin struct {
	Type   string `json:"type"`
	Bridge string `json:"bridge"`
	IPAM   ipam   `json:"ipam"`
}

// ipam configures the CNI plugin "host-local".
type ipam struct {
	Type    string       `json:"type"`
	DataDir string       `json:"dataDir"` // of the addresses in use
	Ranges  [1][1]subnet `json:"ranges"`
}

type subnet struct {
	Subnet  string `json:"subnet"`
	Gateway string `json:"gateway"` // the bridge's address, which no pod gets
}

// cniPlugins lists the CNI plugins that the runtimes and the conflist name.
func cniPlugins() []string { return []string{"bridge", "host-local", "loopback"} }

// cniDir returns the folder of the conflist.
func cniDir(dir string) string       { return filepath.Join(dir, "cni") }
func conflistPath(dir string) string { return filepath.Join(cniDir(dir), "10-pods.conflist") }

// cniResults is where CNI's library caches what its plugins answered; no runtime has a setting for
// it.
const cniResults = "/var/lib/cni/results"

// networkUnavailable says why pods can't have a network of their own here, or returns nil if they
// can.
func networkUnavailable() error {
	name := fmt.Sprintf("slnone%d", os.Getpid())
	if err := errors.Join(addBridge(name, net.IPv4(198, 19, 255, 254)), removeDevice(name)); err != nil {
		return fmt.Errorf("pods can't have networks of their own here: %w", err)
	}
	return nil
}

// makeNetwork makes the bridge and writes the conflist. The kernel refuses a bridge whose name is
// taken, so that no two Runtimes on this machine have the same network. RFC 2544 keeps 198.18.0.0/15
// for tests of network devices; test/kube uses its first half.
func (rt *Runtime) makeNetwork() error {
	for i := range 256 {
		bridge, address := fmt.Sprintf("slpods%d", i), net.IPv4(198, 19, byte(i), 1)
		if err := addBridge(bridge, address); errors.Is(err, unix.EEXIST) {
			continue
		} else if err != nil {
			return err
		}
		text, err := json.Marshal(conflist{CNIVersion: "1.0.0", Name: filepath.Base(rt.Dir), Plugins: [1]cniPlugin{{
			Type: "bridge", Bridge: bridge,
			IPAM: ipam{
				Type: "host-local", DataDir: filepath.Join(cniDir(rt.Dir), "addresses"),
				Ranges: [1][1]subnet{{{Subnet: fmt.Sprintf("198.19.%d.0/24", i), Gateway: address.String()}}},
			},
		}}})
		if err != nil {
			return err
		}
		return errors.Join(
			os.Mkdir(cniDir(rt.Dir), 0o700), os.WriteFile(conflistPath(rt.Dir), text, 0o600), // what removeNetwork finds
		)
	}
	return errors.New("256 networks of pods are on this machine, which is as many as there can be: see ip link for those whose names begin with slpods")
}

// removeNetwork removes the network of the Runtime in the folder, if it has one, after all that
// held the pods' network namespaces is gone. The kernel keeps a namespace with its interfaces for
// minutes if a connection in it waits for an answer of a pod that has gone before.
func removeNetwork(dir string) error {
	text, err := os.ReadFile(conflistPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var network conflist
	if err == nil {
		err = json.Unmarshal(text, &network)
	}
	if err != nil {
		return err
	}
	bridge := network.Plugins[0].Bridge
	ports, err := os.ReadDir(filepath.Join("/sys/class/net", bridge, "brif"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	names := []string{bridge}
	for _, port := range ports {
		names = append(names, port.Name())
	}
	for _, name := range names {
		var gone netlink.LinkNotFoundError
		if err := removeDevice(name); err != nil && !errors.As(err, &gone) && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	return removeResults(network.Name)
}

// removeResults removes what CNI's library has cached of the pods that were on the network, also of
// their loopback. The names of the files are NETWORK-SANDBOX-INTERFACE.
func removeResults(network string) error {
	var errs []error
	own, _ := filepath.Glob(filepath.Join(cniResults, network+"-*-eth0"))
	for _, path := range own {
		sandbox := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), network+"-"), "-eth0")
		results, _ := filepath.Glob(filepath.Join(cniResults, "*-"+sandbox+"-*"))
		for _, path := range results {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// addBridge makes a bridge with an address of a /24. The bridge gets a hardware address of its own: the kernel
// gives other bridges that of one of their ports, which changes as pods come and go, and connections then
// stand still until the pods look it up again.
func addBridge(name string, address net.IP) error {
	hardware := append([]byte{0x02, 0}, address.To4()...) // 02 marks addresses that nobody else assigns
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: hardware}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("adding the bridge %s: %w", name, err)
	}
	err := netlink.AddrAdd(bridge, &netlink.Addr{IPNet: &net.IPNet{IP: address, Mask: net.CIDRMask(24, 32)}})
	if err := errors.Join(err, netlink.LinkSetUp(bridge)); err != nil {
		return fmt.Errorf("giving the bridge %s the address %s: %w", name, address, err)
	}
	return nil
}

func removeDevice(name string) error {
	device, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(device)
	}
	if err != nil {
		return fmt.Errorf("removing the device %s: %w", name, err)
	}
	return nil
}
