// Package network reads what a node's network devices send, and limits what pods send.
//
// The limit is a token bucket filter (tc-tbf) as the root qdisc of each device in a pod's network
// namespace. It delays the pod's packets where they are sent, so that TCP slows down instead of losing packets,
// with every CNI plugin, and on both versions of cgroups. The host's own devices are never changed.
package network

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrHostNetwork says that a pod is on the host's network.
var ErrHostNetwork = errors.New("the pod is on the host's network")

// Host is a node's network. Its methods may be called concurrently.
type Host struct {
	root    string
	process string // folder of a process on the host's network
	own     ID
}

// Open opens the network of the host whose root directory is given. With "/", it is that of this process,
// otherwise that of the host's process 1.
func Open(root string) (*Host, error) {
	h := &Host{root: root, process: "proc/1/"}
	if root == "/" {
		h.process = "proc/self/"
	}
	file, err := os.Open(h.path(h.process + "ns/net"))
	if err != nil {
		return nil, fmt.Errorf("finding the host's network: %w", err)
	}
	defer file.Close()
	if h.own, err = idOf(file); err != nil {
		return nil, fmt.Errorf("finding the host's network: %w", err)
	}
	return h, nil
}

func (h *Host) path(name string) string { return filepath.Join(h.root, name) }

// Speed returns the speed of a device of the host in bits per second; 0 if the kernel knows none, as of
// most virtual devices.
func (h *Host) Speed(device string) (int64, error) {
	text, err := os.ReadFile(h.path("sys/class/net/" + device + "/speed"))
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return 0, nil // the device is down, or has no speed
	}
	if err != nil {
		return 0, err
	}
	megabits, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return 0, err
	}
	return max(0, megabits) * 1e6, nil // -1 is an unknown speed
}

// Sent returns the bytes that a device of the host has sent since it exists.
func (h *Host) Sent(device string) (uint64, error) {
	text, err := os.ReadFile(h.path("sys/class/net/" + device + "/statistics/tx_bytes")) //nolint:gosec // G703: no name of a device has a slash
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
}
