package evict

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sockets returns the paths of a runtime's CRI socket, by the name that the runtime gives to
// NRI plugins.
func sockets(runtime string) []string {
	containerd := []string{"run/containerd/containerd.sock", "run/k3s/containerd/containerd.sock", "run/k0s/containerd.sock", "var/snap/microk8s/common/run/containerd.sock"}
	crio := []string{"run/crio/crio.sock"}
	switch runtime {
	case "containerd":
		return containerd
	case "cri-o":
		return crio
	}
	return append(containerd, crio...)
}

// Socket returns the CRI socket to use for evictions: the given one, below the host's root or
// as it is; otherwise the only one at the usual paths.
func Socket(root, given string) (string, error) {
	if given == "" {
		return FindSocket(root, "")
	}
	for _, path := range []string{filepath.Join(root, given), given} {
		if isSocket(path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("control.eviction.socket names %s, which is no socket, here or below %s; no pod can be evicted: %s", given, root, fix)
}

// fix says how to configure the socket.
const fix = "name the kubelet's CRI socket in control.eviction.socket, and in a pod mount its folder below the host root (configs/kubernetes/sluice.yaml)"

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// FindSocket returns the CRI socket of the runtime below the host's root. runtime is the name
// that it gives to NRI plugins ("containerd", "cri-o"; "" matches any). If there are several
// sockets it returns an error: if a pod is missing in one runtime, another may have it.
func FindSocket(root, runtime string) (string, error) {
	var found []string
	for _, name := range sockets(runtime) {
		path := filepath.Join(root, name)
		if isSocket(path) {
			found = append(found, path)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("no CRI socket is below %s at %s; no pod can be evicted: %s", root, strings.Join(sockets(runtime), ", "), fix)
	}
	return "", fmt.Errorf("there are several CRI sockets: %s; no pod can be evicted: name the kubelet's in control.eviction.socket", strings.Join(found, ", "))
}
