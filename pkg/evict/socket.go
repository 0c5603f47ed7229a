package evict

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sockets are where runtimes listen for CRI, by the name that they give to NRI
// plugins.
func sockets(runtime string) []string {
	containerd := []string{"run/containerd/containerd.sock", "run/k3s/containerd/containerd.sock", "run/k0s/containerd.sock"}
	crio := []string{"run/crio/crio.sock"}
	switch runtime {
	case "containerd":
		return containerd
	case "cri-o":
		return crio
	}
	return append(containerd, crio...)
}

// FindSocket finds the CRI socket of the runtime, whose name is what it gives to NRI
// plugins ("containerd", "cri-o"; "" is any), below the host's root. With several
// there is no telling in which of them a pod is that isn't found: that is an error.
func FindSocket(root, runtime string) (string, error) {
	var found []string
	for _, name := range sockets(runtime) {
		path := filepath.Join(root, name)
		if info, err := os.Stat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
			found = append(found, path)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("no CRI socket is at %s; name it in control.eviction.socket, or no pod can be evicted", strings.Join(sockets(runtime), ", "))
	}
	return "", fmt.Errorf("there are several CRI sockets: %s; name the kubelet's in control.eviction.socket, or no pod can be evicted", strings.Join(found, ", "))
}
