package bed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// PowerOff ends all that runs on the node at once, as a loss of power does: its programs first, so that none
// of them sees another one or a container end. With its mounts goes what the node has in /run, with its
// containers their cgroups. What is on disk stays.
func (n *Node) PowerOff(t testing.TB) {
	t.Helper()
	space, err := os.Readlink(n.own("ns/mnt"))
	if err != nil {
		t.Fatal(err)
	}
	tree := n.cluster.tree
	Await(t, "the programs of node "+n.Name+" to end", func() error { return n.killIn(space) })
	err = errors.Join(tree.Thaw(n.CgroupRoot), tree.KillAll(n.CgroupRoot), tree.Remove(n.CgroupRoot), os.Remove(n.mounts()))
	if err != nil {
		t.Fatalf("node %s: %v", n.Name, err)
	}
	n.holder = 0
}

// killIn ends the processes in a mount namespace, and returns an error while there are any.
func (n *Node) killIn(space string) error {
	pids, err := n.cluster.tree.PIDs(n.cluster.tree.Processes())
	if err != nil {
		return err
	}
	var left []int
	for _, pid := range pids {
		if in, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns/mnt")); err != nil || in != space {
			continue // it has ended, or is another node's or the control plane's
		}
		left = append(left, pid)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("still there: %v", left)
	}
	return nil
}

// PowerOn boots the node after PowerOff. It has what was on disk, and a boot ID of its own. The test starts its
// programs, also Containerd and Kubelet.
func (n *Node) PowerOn(t testing.TB) {
	t.Helper()
	if err := errors.Join(n.cluster.tree.Create(n.CgroupRoot), n.hold()); err != nil {
		t.Fatalf("node %s: %v", n.Name, err)
	}
	const bootID = "/proc/sys/kernel/random/boot_id"
	id, err := os.ReadFile("/proc/sys/kernel/random/uuid") // another one for each reader
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(n.dir, "boot_id")
	if err := os.WriteFile(file, id, 0o600); err != nil {
		t.Fatal(err)
	}
	n.Run(t, "mount", "--bind", file, bootID)
}
