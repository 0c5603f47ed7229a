package bed

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// stateDirs are the folders that each node has for itself, on disk. What else is in
// /var/lib is not there for the node's programs.
func stateDirs() []string {
	return []string{"/var/lib/containerd", "/var/lib/kubelet", "/var/lib/sluice", "/var/lib/cni", "/var/log"}
}

// sysctls are those that the kubelet sets (setupKernelTunables in its container manager)
// and the CNI plugin "bridge" (ip.EnableIP4Forward): a node writes files of its own in their place.
func sysctls() []string {
	return []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward",
	}
}

// holdNode is the process that holds a node's mount namespace: /run, and the folders and
// sysctls above are the node's own, so that programs and manifests with the usual paths
// work as they are and the machine keeps its own. It was started in that namespace, prints
// a line when all is mounted, and stays until it is killed.
func holdNode(args []string) error {
	if len(args) != 1 {
		return errors.New("the argument is the node's folder")
	}
	if err := mountNode(args[0]); err != nil {
		return err
	}
	fmt.Println("mounted")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func mountNode(dir string) error {
	var sources []string // paths below /var/lib are hidden soon: files are opened before
	for _, path := range append(stateDirs(), "/sysctl") {
		source := filepath.Join(dir, filepath.Base(path))
		if err := os.MkdirAll(source, 0o755); err != nil {
			return err
		}
		sources = append(sources, source)
	}
	for _, target := range []string{"/run", "/var/lib"} {
		if err := unix.Mount("tmpfs", target, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mounting a tmpfs on %s: %w", target, err)
		}
	}
	for _, made := range []string{"/run/lock", "/run/netns", "/run/containerd"} {
		if err := os.MkdirAll(made, 0o755); err != nil {
			return err
		}
	}
	for i, target := range stateDirs() {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := bind(sources[i], target); err != nil {
			return err
		}
	}
	for i, name := range sysctls() {
		target := filepath.Join("/proc/sys", name)
		text, err := os.ReadFile(target)
		if err != nil {
			return err
		}
		source := filepath.Join(dir, "sysctl", fmt.Sprint(i))
		if err := errors.Join(os.WriteFile(source, text, 0o644), bind(source, target)); err != nil {
			return err
		}
	}
	// As systemd does it: a mount on the node appears in pods with HostToContainer.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", source, target, err)
	}
	return nil
}
