// Package firstday runs the commands of docs/first-day.md on a Kubernetes of two nodes, and those of
// docs/migrate-static.md on one of one node, and checks what the pages say of them.
package firstday

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

func TestMain(m *testing.M) { os.Exit(bed.Main(m)) }

const (
	nodeMemory = 2560 << 20 // of all pods of a node
	batchCPU   = "batch.sluice.dev/cpu"
	batchMem   = "batch.sluice.dev/memory"
)

// day is a cluster of two nodes on which the page's commands run.
type day struct {
	*page
	cluster *bed.Cluster
	client  kubernetes.Interface
	n1, n2  *bed.Node // n1 is the one that the page calls NODE
}

// newDay starts the cluster. Each node counts the CPU time of its own pods, and has so little
// memory that a test can fill it.
func newDay(t *testing.T) *day {
	t.Helper()
	c := bed.API(t)
	c.HighWeight(t)
	d := &day{cluster: c, client: c.Client(t)}
	reserved := fmt.Sprintf("systemReserved: {memory: %q}", fmt.Sprint(machineMemory(t)-nodeMemory))
	d.n1, d.n2 = c.Node(t, "n1", reserved), c.Node(t, "n2", reserved)
	const image = "localhost/sluice/sluice:latest"
	for _, n := range d.nodes() {
		n.OwnLoad(t)
		n.Import(t, filepath.Join(root, "bin", "sluice-image.tar"), image)
		n.ImportPrograms(t, "docker.io/library/busybox:1.37")
	}
	replace := []string{"REGISTRY/sluice", strings.TrimSuffix(image, ":latest"), "NODE", d.n1.Name}
	if bed.Version() == "1.34" {
		replace = append(replace, "policies: {batch: true}", "policies: {batch: true, mutatingVersion: v1beta1}")
	}
	d.page = open(t, "first-day.md", c.Kubeconfig(t, "operator", c.Admin()), replace...)
	return d
}

func (d *day) nodes() []*bed.Node { return []*bed.Node{d.n1, d.n2} }

// machineMemory is the memory that a kubelet finds, in bytes.
func machineMemory(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	var kib int64
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

func TestFirstDay(t *testing.T) {
	d := newDay(t)
	d.run("kubectl create namespace shop")
	kubelets := d.settings()
	d.says(d.run("kubectl create namespace sluice"), "on 2 nodes that answered")
	d.reports(d.run("kubectl wait node --all"))
	d.sells("in preview", nothing)
	d.run("helm upgrade")
	d.sells("once it is on", something)

	d.run("kubectl create namespace etl")
	running := d.fills()
	d.says(d.run("kubectl -n etl get pods"), d.n1.Name+" Selling", d.n2.Name+" Selling")
	d.loadDoubles(running)
	d.memoryIsShort()
	d.switchedOff()
	d.asOperator()
	d.uninstalled(kubelets)
	d.close()
}

// reports checks what kubectl sluice reports of nodes in preview.
func (d *day) reports(out string) {
	d.Helper()
	d.says(out, d.n1.Name, d.n2.Name, "Preview", "Next:", "OFFER, SOLD and BATCH")
}

func nothing(milli, bytes int64) bool   { return milli == 0 && bytes == 0 }
func something(milli, bytes int64) bool { return milli > 0 && bytes > 0 }

// sells checks the amounts that each node sells.
func (d *day) sells(when string, want func(milli, bytes int64) bool) {
	d.Helper()
	for _, n := range d.nodes() {
		if milli, bytes := d.amount(n, batchCPU), d.amount(n, batchMem); !want(milli, bytes) {
			d.Errorf("%s, node %s sells %d thousandths of a CPU and %d bytes", when, n.Name, milli, bytes)
		}
	}
}

// amount is what the node has of a resource.
func (d *day) amount(n *bed.Node, name corev1.ResourceName) int64 {
	d.Helper()
	node, err := d.client.CoreV1().Nodes().Get(d.Context(), n.Name, metav1.GetOptions{})
	if err != nil {
		d.Fatal(err)
	}
	quantity := node.Status.Allocatable[name]
	return quantity.Value()
}

// pods lists the pods of a namespace.
func (d *day) pods(namespace string) []corev1.Pod {
	d.Helper()
	list, err := d.client.CoreV1().Pods(namespace).List(d.Context(), metav1.ListOptions{})
	if err != nil {
		d.Fatal(err)
	}
	return list.Items
}

// fills waits until as many of the Job's pods run on each node as it sells, and returns them.
func (d *day) fills() map[string]corev1.Pod {
	d.Helper()
	began := time.Now()
	bed.Await(d, "the nodes to be full", func() error {
		var wrong []error
		for _, n := range d.nodes() {
			room := min(d.amount(n, batchCPU)/40, d.amount(n, batchMem)/(192<<20))
			if got := int64(len(d.running(n.Name))); got != room || room == 0 {
				wrong = append(wrong, fmt.Errorf("%d pods run on node %s, which sells room for %d", got, n.Name, room))
			}
		}
		return errors.Join(wrong...)
	})
	running := d.running("")
	d.Logf("%d of 20 pods run %s after the Job was created", len(running), time.Since(began).Round(100*time.Millisecond))
	if len(running) > 17 {
		d.Errorf("%d pods run: too few wait to see that nothing new starts", len(running))
	}
	bed.Await(d, "the scheduler's reason for each pod that waits", func() error {
		for _, p := range d.pods("etl") {
			if p.Spec.NodeName == "" && !strings.Contains(bed.Trouble(&p), "Insufficient batch.sluice.dev/") {
				return fmt.Errorf("pod %s: %s", p.Name, bed.Trouble(&p))
			}
		}
		return nil
	})
	return running
}

// running is the Job's pods that run on the node, or on any if it is "", by name.
func (d *day) running(node string) map[string]corev1.Pod {
	d.Helper()
	running := map[string]corev1.Pod{}
	for _, p := range d.pods("etl") {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil && (node == "" || p.Spec.NodeName == node) {
			running[p.Name] = p
		}
	}
	return running
}

// switchedOff checks what the page's switch does.
func (d *day) switchedOff() {
	d.Helper()
	d.says(d.run("kubectl sluice batch off"), "This was a dry run", "this is in force as a whole on 2.")
	for _, n := range d.nodes() {
		if len(d.running(n.Name)) == 0 {
			continue // without batch work there is nothing to limit
		}
		bed.Await(d, "batch work's floor on node "+n.Name, func() error {
			if cpus := d.batchQuota(n); cpus > 0.21 {
				return fmt.Errorf("batch work may use %.2f CPUs", cpus)
			}
			return nil
		})
	}
}

// settings are what the kernel has of the nodes' cgroups that Sluice changes, and of those of a pod
// of web, whichever of its pods still runs.
func (d *day) settings() map[string]string {
	d.Helper()
	web := slices.MinFunc(d.pods("shop"), func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	container := d.n1.Cgroup(d, &web, "main")
	all := map[string]string{}
	for _, n := range d.nodes() {
		files := []string{"cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes"}
		if n.V2() {
			files = []string{"cpu.weight", "cpu.max", "cpu.idle", "memory.max", "memory.high"}
		}
		cgroups := map[string]string{"batch work": filepath.Join(n.CgroupRoot, "kubepods", "besteffort")}
		if n == d.n1 {
			cgroups["web's container"], cgroups["web's pod"] = container, filepath.Dir(container)
		}
		for whose, cgroup := range cgroups {
			for _, file := range files {
				all[fmt.Sprintf("%s of %s on node %s", file, whose, n.Name)] = n.CgroupFile(d, cgroup, file)
			}
		}
	}
	return all
}

// uninstalled checks that nothing is left of Sluice, and that the kernel has again what the kubelet set.
func (d *day) uninstalled(kubelets map[string]string) {
	d.Helper()
	d.run("kubectl delete namespace etl")
	for _, left := range slices.Concat(d.cluster.Leftovers(d), d.n1.Leftovers(d), d.n2.Leftovers(d)) {
		d.Errorf("%s is left", left)
	}
	for file, now := range d.settings() {
		if now != kubelets[file] {
			d.Errorf("%s is %s, and was %s before Sluice came", file, now, kubelets[file])
		}
	}
}
