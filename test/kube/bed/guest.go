package bed

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/test/host"
	"github.com/sluice-dev/sluice/test/vm/boot"
)

// Guest is a node in a QEMU guest: a machine of its own with cgroup v2 alone and systemd as its first process, which makes
// the cgroups of pods (cgroupDriver: systemd). Its network is that of the slot's interface with its number. It is emulated:
// it shows what happens, and not how fast.
type Guest struct {
	Name, IP string

	cluster *Cluster
	number  int // from 1 on
	machine *Service
}

// Equipment is what a guest has beside what every node has.
type Equipment struct {
	Machine boot.Topology     // four CPUs in one NUMA node if it is the zero value
	Images  []string          // archives, as `make image` writes them
	Files   map[string]string // programs of the test's machine by their paths in the guest
	Texts   map[string]string // further files by their paths, for example units of systemd
}

// shellPort is where the guest runs the scripts that it is sent.
const shellPort = 2222

// Guest boots a guest as a node and waits until pods can run there. It has the image Image. It skips the test where no
// guest can boot.
func (c *Cluster) Guest(t testing.TB, name string, has Equipment) *Guest {
	t.Helper()
	kit, err := kit()
	if err != nil {
		t.Fatal(err)
	}
	if err := kit.Fetch(); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	c.StartControllers(t)
	c.count(t, name)
	g := &Guest{Name: name, IP: c.slot.address(c.nodes, 2).String(), cluster: c, number: c.nodes}
	began := time.Now()
	if err := g.boot(kit, has); err != nil {
		t.Fatalf("node %s: %v\nits console ends:\n%s", name, err, host.ReadLog(g.console()))
	}
	t.Cleanup(func() {
		if t.Failed() {
			g.keepLogs(t)
		}
	})
	t.Logf("guest %s has booted after %s", name, time.Since(began).Round(100*time.Millisecond))
	// CRI knows the images long before the kubelet starts its first pod.
	g.Run(t, "systemctl start containerd; for archive in /images/*.tar; do ctr --namespace k8s.io images import --local $archive; rm $archive; done")
	t.Logf("containerd of %s has the images after %s", name, time.Since(began).Round(100*time.Millisecond))
	g.Run(t, "systemctl start kubelet")
	Await(t, "node "+name+" to be ready", func() error { return c.nodeReady(t, name) })
	t.Logf("node %s is ready after %s", name, time.Since(began).Round(100*time.Millisecond))
	return g
}

// boot starts the guest's machine and waits until it runs scripts.
func (g *Guest) boot(kit boot.Kit, has Equipment) error {
	slot := g.cluster.slot
	if _, err := slot.bridge(g.number); err != nil {
		return err
	}
	root, err := g.root(kit, has)
	if err != nil {
		return err
	}
	disk := g.cluster.path(g.Name + "-disk.img")
	if err := writeEmpty(disk, 64<<20); err != nil { // for which the guest's init looks
		return err
	}
	machine := has.Machine
	if machine == (boot.Topology{}) {
		// What a node has on its disk is in the guest's memory.
		machine = boot.Topology{Sockets: 1, Dies: 1, Cores: 4, Threads: 1, Memory: 4096}
	}
	words := kit.QEMU(machine, root, disk, g.console(),
		"apparmor=0 SLUICE_SYSTEMD=true SLUICE_UNIT=node.target SLUICE_MODULES="+strings.Join(modules(), ","))
	tap := slot.link(g.number) + "-tap"
	words = append(words, "-netdev", "tap,id=net,ifname="+tap+",script=no,downscript=no", "-device", "virtio-net-pci,netdev=net,romfile=")
	g.machine = g.cluster.service("guest-"+g.Name, func() error {
		_, err := g.shell("true")
		return err
	}, words...)
	if err := g.machine.launch(); err != nil {
		return err
	}
	err = g.machine.process.Await("the guest's network interface", func() error { return slot.attach(tap, g.number) })
	if err != nil {
		return err
	}
	return g.machine.process.Await("the guest to run a script", g.machine.ready)
}

// attach makes the interface a port of the bridge with that number.
func (s slot) attach(name string, number int) error {
	port, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	bridge, err := netlink.LinkByName(s.link(number))
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetMaster(port, bridge), netlink.LinkSetUp(port))
}

// Run runs a shell script in the guest, and returns what it prints. It ends with the first command that fails.
func (g *Guest) Run(t testing.TB, script string) string {
	t.Helper()
	out, err := g.shell(script)
	if err != nil {
		t.Fatalf("node %s: %v", g.Name, err)
	}
	return out
}

// shell sends a script to the guest's shell, which prints its exit code in its last line.
func (g *Guest) shell(script string) (string, error) {
	address := net.JoinHostPort(g.IP, strconv.Itoa(shellPort))
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_, written := io.WriteString(conn, script)
	err = errors.Join(written, conn.(*net.TCPConn).CloseWrite(), conn.SetReadDeadline(time.Now().Add(host.Timeout)))
	if err != nil {
		return "", err
	}
	all, err := io.ReadAll(conn)
	if err != nil {
		return "", fmt.Errorf("%q: %w: %s", script, err, all)
	}
	text := strings.TrimSuffix(string(all), "\n")
	at := strings.LastIndex(text, "\n") + 1
	if text[at:] != "exit 0" {
		return "", fmt.Errorf("%q: %s", script, text)
	}
	return text[:at], nil
}

// RestartKubelet restarts the kubelet as its service manager does, and waits until it has reported on its pods.
func (g *Guest) RestartKubelet(t testing.TB) {
	t.Helper()
	clock := strings.TrimSpace(g.Run(t, "systemctl restart kubelet; date +%s")) // the guest's, not the test's
	seconds, err := strconv.ParseInt(clock, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	restarted := metav1.Unix(seconds+1, 0)
	Await(t, "the kubelet of node "+g.Name+" to report on its pods", func() error { return g.cluster.Reported(t, g.Name, restarted) })
}

// Cgroup is the cgroup of the pod, or of its container if that is not "", below the root of the guest's hierarchy. The pod
// must have been read after its start.
func (g *Guest) Cgroup(t testing.TB, pod *corev1.Pod, container string) string {
	t.Helper()
	dirs, name := []string{"kubepods.slice"}, "kubepods"
	if class := pod.Status.QOSClass; class != corev1.PodQOSGuaranteed {
		name += "-" + strings.ToLower(string(class))
		dirs = append(dirs, name+".slice")
	}
	dirs = append(dirs, name+"-pod"+strings.ReplaceAll(string(pod.UID), "-", "_")+".slice")
	if container != "" {
		dirs = append(dirs, "cri-containerd-"+containerID(t, pod, container)+".scope")
	}
	return filepath.Join(dirs...)
}

// console is the file with what the guest's kernel and systemd print.
func (g *Guest) console() string { return filepath.Join(g.cluster.Logs, g.Name+"-console.log") }

// keepLogs copies the logs of the guest's programs and containers, which are in its memory, to the others.
func (g *Guest) keepLogs(t testing.TB) {
	t.Helper()
	for name, files := range map[string]string{
		"containerd": "/var/log/containerd.log", "kubelet": "/var/log/kubelet.log", "pods": "$(find /var/log/pods -name '*.log')",
	} {
		out, err := g.shell("tail -n +1 " + files)
		if err == nil {
			err = os.WriteFile(filepath.Join(g.cluster.Logs, g.Name+"-"+name+".log"), []byte(out), 0o600)
		}
		if err != nil {
			t.Log(err)
		}
	}
}
