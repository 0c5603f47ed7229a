package bed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node is a node of the cluster: containerd and a kubelet, with a mount namespace, a
// cgroup root and a network of their own. Its processes and its network interfaces are
// those of the machine, which has as many nodes as it has been given, each with all the
// machine's CPUs and memory.
type Node struct {
	Name       string
	IP         string // of the node
	CgroupRoot string // the kubelet's: kubepods is in it, in each hierarchy

	Containerd, Kubelet *Service

	cluster *Cluster
	dir     string // the node's files
	number  int    // from 1 on
	holder  int    // the process that holds the mount namespace
}

// snapshotter is the one that works on every file system, an overlay as well.
const snapshotter = "native"

// Node adds a node and waits until pods can run there. The kubelet's configuration gets
// further lines of YAML. The node has the image Image, and pulls none.
func (c *Cluster) Node(t testing.TB, name string, kubelet ...string) *Node {
	t.Helper()
	c.StartControllers(t)
	c.count(t, name)
	n := &Node{
		Name: name, CgroupRoot: "/" + filepath.Join(c.tree.Name, name),
		cluster: c, dir: c.path("node-" + name), number: c.nodes,
	}
	if err := n.setUp(strings.Join(kubelet, "\n")); err != nil {
		t.Fatalf("node %s: %v", name, err)
	}
	Await(t, "node "+name+" to be ready", func() error { return c.nodeReady(t, name) })
	return n
}

// count counts a new node, which finds the API server as pods do.
func (c *Cluster) count(t testing.TB, name string) {
	t.Helper()
	if c.nodes == maxNodes {
		t.Fatalf("%s would be node %d of a bed, which has at most %d", name, c.nodes+1, maxNodes)
	}
	if c.nodes == 0 {
		if err := c.serve(t); err != nil {
			t.Fatal(err)
		}
	}
	c.nodes++
}

func (n *Node) setUp(kubelet string) error {
	if err := n.cluster.missing(); err != nil {
		return err
	}
	address, err := n.cluster.slot.bridge(n.number)
	if err != nil {
		return err
	}
	n.IP = address.String()
	if err := n.cluster.tree.Create(n.CgroupRoot); err != nil {
		return err
	}
	if err := n.hold(); err != nil {
		return err
	}
	if err := n.describe(kubelet); err != nil {
		return err
	}
	if err := n.Containerd.start(); err != nil {
		return err
	}
	if err := n.importPrograms(Image); err != nil {
		return err
	}
	return n.Kubelet.start()
}

// hold starts the process that holds the node's mount namespace.
func (n *Node) hold() error {
	cmd := again("node", n.dir, filepath.Join(n.cluster.Logs, n.Name))
	cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS // Go makes its mounts private
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if _, err := cmd.StdinPipe(); err != nil { // it ends with the test at the latest
		return err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	n.holder = cmd.Process.Pid
	if err := n.cluster.tree.Adopt(n.holder); err != nil {
		return err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return errors.Join(fmt.Errorf("the node's mounts: %w", err), cmd.Wait())
	}
	go func() { _ = cmd.Wait() }()
	return os.Symlink(n.own("ns/mnt"), n.mounts())
}

// describe writes what containerd and the kubelet read, without starting them.
func (n *Node) describe(more string) error {
	c := n.cluster
	config, err := c.user("system:node:"+n.Name, "system:nodes")
	if err != nil {
		return err
	}
	kubeconfig, err := c.kubeconfig("kubelet-"+n.Name, config)
	if err != nil {
		return err
	}
	port, err := c.slot.port(20 + 10*n.number)
	if err != nil {
		return err
	}
	err = os.Mkdir(filepath.Join(n.dir, "net.d"), 0o755)
	for name, text := range map[string]string{"net.d/10-bed.conflist": n.network(), "containerd.toml": n.containerd(), "kubelet.yaml": n.kubelet(port) + more + "\n"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600))
	}
	if err != nil {
		return err
	}
	n.Containerd = n.service("containerd", func() error { return n.Command("ctr", "version").Run() }, "--config", filepath.Join(n.dir, "containerd.toml"))
	n.Kubelet = n.service("kubelet", func() error { return answers(httpClient(), fmt.Sprintf("http://127.0.0.1:%d/healthz", port)) },
		"--config", filepath.Join(n.dir, "kubelet.yaml"), "--kubeconfig", kubeconfig, "--cert-dir", filepath.Join(n.dir, "pki"),
		"--hostname-override", n.Name, "--node-ip", n.IP, "--v=2")
	return nil
}

// service describes one of the node's two programs. nsenter and env become the program: the
// process is its own.
func (n *Node) service(name string, ready func() error, args ...string) *Service {
	words := n.Command(name, args...).Args
	return n.cluster.service(name+"-"+n.Name, ready, words...)
}

// mounts is a link to the node's mount namespace. It is another one after PowerOn.
func (n *Node) mounts() string { return filepath.Join(n.dir, "mounts") }

// own is a file of the process that holds the mount namespace.
func (n *Node) own(file string) string { return filepath.Join("/proc", strconv.Itoa(n.holder), file) }

// Command runs a program in the node's mount namespace. Those that `make kube-tools` builds
// are found by name.
func (n *Node) Command(program string, args ...string) *exec.Cmd {
	words := []string{"--mount=" + n.mounts(), "--", "env", "PATH=" + n.cluster.searchPath(), program}
	return exec.Command("/usr/bin/nsenter", append(words, args...)...)
}

// Program starts a program in the node's mount namespace. It ends with the bed at the latest.
func (n *Node) Program(t testing.TB, path string, args ...string) *Service {
	t.Helper()
	s := n.cluster.service(filepath.Base(path)+"-"+n.Name, func() error { return nil }, n.Command(path, args...).Args...)
	s.Start(t)
	return s
}

// Run runs a program in the node's mount namespace and returns what it prints.
func (n *Node) Run(t testing.TB, program string, args ...string) string {
	t.Helper()
	out, err := n.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q on node %s: %v: %s", program, args, n.Name, err, out)
	}
	return string(out)
}

// Path is the path at which the test finds a file of the node.
func (n *Node) Path(path string) string { return filepath.Join(n.own("root"), path) }

// folders have the node's programs: Kubernetes', runc with CNI's plugins, and containerd's.
func (c *Cluster) folders() (kubernetes, node, containerd string) {
	kube := filepath.Dir(c.programs)
	return c.programs, filepath.Join(kube, "node"), filepath.Join(filepath.Dir(kube), "tools", "2")
}

// missing tells which of the node's programs is not there. One of the machine's own would
// otherwise run in its place.
func (c *Cluster) missing() error {
	kubernetes, node, containerd := c.folders()
	for _, file := range []string{
		filepath.Join(kubernetes, "kubelet"), filepath.Join(node, "runc"), filepath.Join(node, "cni", "bridge"),
		filepath.Join(containerd, "containerd"), filepath.Join(containerd, "containerd-shim-runc-v2"), filepath.Join(containerd, "ctr"), busybox,
	} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("run make packages runtime kube-tools: %w", err)
		}
	}
	return nil
}

// searchPath has the node's programs first.
func (c *Cluster) searchPath() string {
	kubernetes, node, containerd := c.folders()
	return strings.Join([]string{kubernetes, node, containerd, os.Getenv("PATH")}, ":")
}

// nodeReady tells why no pod can run on the node yet, nil when one can.
func (c *Cluster) nodeReady(t testing.TB, name string) error {
	node, err := c.Client(t).CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err == nil && len(node.Spec.Taints) > 0 {
		err = fmt.Errorf("it has the taint %s", node.Spec.Taints[0].Key)
	}
	return errors.Join(err, c.Reported(t, name, metav1.Time{}))
}

// Reported tells why the kubelet has not reported its node ready since that time, nil
// where it has. A kubelet that starts reports once its pods are known to it again.
func (c *Cluster) Reported(t testing.TB, node string, since metav1.Time) error {
	got, err := c.Client(t).CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range got.Status.Conditions {
		switch {
		case condition.Type != corev1.NodeReady:
		case condition.Status != corev1.ConditionTrue:
			return errors.New(condition.Message)
		case condition.LastHeartbeatTime.Before(&since):
			return ErrNotYet
		default:
			return nil
		}
	}
	return ErrNotYet
}

func timeout(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}
