package bed

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sluice-dev/sluice/test/host"
)

// slot is one of the beds that a machine can have at a time. Its number decides every
// name, port and address of the bed that the machine's other programs could meet, so that
// whoever takes the slot next finds what a killed test left behind.
type slot int

// slots is how many beds there can be at a time.
const slots = 16

// maxNodes is how many nodes a bed can have: each has a network of the slot's four.
const maxNodes = 3

// take takes the first free slot and returns what holds it: an abstract socket, which the
// kernel frees when the last process that has it open ends.
func take() (slot, *os.File, error) {
	for s := range slot(slots) {
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + s.name(), Net: "unix"})
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		held, err := listener.File()
		return s, held, errors.Join(err, listener.Close())
	}
	return 0, nil, fmt.Errorf("%d beds run on this machine, which is as many as there can be", slots)
}

func (s slot) name() string { return fmt.Sprintf("sluicebed-%d", int(s)) }

// dir is the folder of all files.
func (s slot) dir() string { return filepath.Join(os.TempDir(), s.name()) }

// tree is the cgroup of all processes, those of the pods among them.
func (s slot) tree() (*host.Tree, error) {
	hierarchies, err := host.Mounts()
	return &host.Tree{Name: s.name(), Mounts: hierarchies}, err
}

// link is the name of the network interface with the number: 0 has the address of the
// service "kubernetes", and each node has one of those that follow. The kernel allows 15
// characters.
func (s slot) link(number int) string { return fmt.Sprintf("slbed%d-%d", int(s), number) }

// address is an address in the network of the link with that number. RFC 2544 keeps
// 198.18.0.0/15 for tests of network devices: neither the Internet nor a company's own
// network has it.
func (s slot) address(number int, last byte) net.IP {
	return net.IPv4(198, 18, byte(int(s)*(maxNodes+1)+number), last)
}

// subnet is the network of the link with that number, in CIDR notation.
func (s slot) subnet(number int) string { return s.address(number, 0).String() + "/24" }

// port is a port of the slot's hundred that is free on 127.0.0.1, from the given one on.
// All are below the range from which the kernel takes ports of outgoing connections: a
// program that is started again finds its port free.
func (s slot) port(from int) (int, error) {
	const first, each = 21000, 100
	for port := first + int(s)*each + from; port < first+(int(s)+1)*each; port++ {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("no port of %d to %d is free on 127.0.0.1", first+int(s)*each+from, first+(int(s)+1)*each-1)
}
