package bed

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// stateDirs are the folders of /var/lib that a node has, on disk. What else the machine has
// there is hidden from the node's programs.
func stateDirs() []string {
	return []string{"/var/lib/containerd", "/var/lib/kubelet", "/var/lib/sluice", "/var/lib/cni"}
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
	if len(args) != 2 {
		return errors.New("the arguments are the node's folder and that for /var/log")
	}
	if err := mountNode(args[0], args[1]); err != nil {
		return err
	}
	fmt.Println("mounted")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func mountNode(dir, logs string) error {
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
	for _, target := range stateDirs() {
		source := filepath.Join(dir, filepath.Base(target))
		if err := errors.Join(os.MkdirAll(source, 0o755), os.Mkdir(target, 0o755), bind(source, target)); err != nil {
			return err
		}
	}
	err := errors.Join(os.MkdirAll(logs, 0o755), bind(logs, "/var/log"), os.MkdirAll(filepath.Join(dir, "sysctl"), 0o755))
	if err != nil {
		return err
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
