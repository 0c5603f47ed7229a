// Package daemonset tests the shipped manifests and the chart on a Kubernetes of two nodes: installation, pods of the
// classes, batch pods that buy what the nodes sell, upgrades, restarts, and removal.
package daemonset

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

func TestMain(m *testing.M) { os.Exit(bed.Main(m)) }

const (
	root  = "../../.." // of the repository
	image = "localhost/sluice/sluice:latest"
)

// TestNodes needs one cluster for both ways to install Sluice: its start takes longer than most steps.
func TestNodes(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("SKIPPED: a container with CPUs of its own needs a second CPU for all others")
	}
	c := bed.API(t)
	c.HighWeight(t)
	s := session{c, c.Node(t, "n1"), c.Node(t, "n2")}
	for _, n := range []*bed.Node{s.n1, s.n2} {
		n.OwnLoad(t) // a node that counts the machine's other programs has nothing to sell
		n.Import(t, filepath.Join(root, "bin", "sluice-image.tar"), image)
	}
	t.Run("manifests", s.manifests)
	t.Run("chart", s.chart)
}

// session is a cluster with two nodes.
type session struct {
	*bed.Cluster
	n1, n2 *bed.Node
}

// manifests takes the steps of docs/install.md, "Switch it on step by step", with the shipped manifests.
func (s session) manifests(t *testing.T) {
	for _, node := range []string{"n1", "n2"} {
		s.sell(t, node, `"1000"`, `"1Gi"`)
	}
	began := time.Now()
	s.Apply(t, manifest(t, "sluice.yaml"))
	s.awaitDaemonSet(t, "sluice", "sluice")
	t.Logf("the DaemonSet is ready on both nodes %s after its manifest was applied", time.Since(began).Round(time.Millisecond))
	pods := s.start(t, workloads())
	kubelets := s.all(t, pods)
	if kubelets["be"].cpus != kubelets["ls"].cpus || kubelets["lsr"].cpus != kubelets["elsewhere"].cpus {
		t.Errorf("in preview, containers have CPUs of their own: %+v", kubelets)
	}

	s.configure(t, "mode: on")
	s.stop(t, pods)
	pods = s.start(t, workloads())
	placed := s.all(t, pods)
	t.Run("pods have their settings", func(t *testing.T) { checkPlaced(t, placed, kubelets) })
	t.Run("the kubelet's restart changes nothing", func(t *testing.T) { s.restartKubelet(t, pods, placed) })
	t.Run("the loop limits batch work", s.loop)
	t.Run("removal and restore.yaml leave nothing", func(t *testing.T) { s.remove(t, pods, kubelets) })

	s.Delete(t, manifest(t, "restore.yaml"))
	s.stop(t, pods)
	for _, node := range []string{"n1", "n2"} {
		s.sell(t, node, "null", "null")
	}
}

// sell gives the node batch resources, as Koordinator's manager does. The amounts are JSON; null removes one.
func (s session) sell(t *testing.T, node, cpu, memory string) {
	t.Helper()
	amounts := fmt.Sprintf(`{"kubernetes.io/batch-cpu": %s, "kubernetes.io/batch-memory": %s}`, cpu, memory)
	patch := fmt.Sprintf(`{"status": {"capacity": %s, "allocatable": %s}}`, amounts, amounts)
	if _, err := s.Client(t).CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

func manifest(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "configs", "kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// configure replaces the mode in the ConfigMap, and waits until Sluice runs with that on
// both nodes: the kubelet hands it on.
func (s session) configure(t *testing.T, lines string) {
	t.Helper()
	const shipped = "mode: preview"
	text := manifest(t, "sluice.yaml")
	if strings.Count(text, shipped) != 1 {
		t.Fatalf("sluice.yaml has the line %q %d times, want once", shipped, strings.Count(text, shipped))
	}
	before := s.reloads(t)
	began := time.Now()
	s.Apply(t, strings.Replace(text, shipped, lines, 1))
	bed.Await(t, "the reload on both nodes", func() error {
		for pod, count := range s.reloads(t) {
			if count == before[pod] {
				return fmt.Errorf("%s has not reloaded", pod)
			}
		}
		return nil
	})
	t.Logf("%q is in force %s after it was applied", lines, time.Since(began).Round(time.Millisecond))
}

// reloads counts what each pod of the DaemonSet has logged of reloads.
func (s session) reloads(t *testing.T) map[string]int {
	t.Helper()
	pods, err := s.Client(t).CoreV1().Pods("sluice").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		counts[pod.Name] = strings.Count(s.node(pod).Log(pod, "sluice"), "Configuration reloaded")
	}
	return counts
}

// node is the pod's.
func (s session) node(pod *corev1.Pod) *bed.Node {
	if pod.Spec.NodeName == s.n1.Name {
		return s.n1
	}
	return s.n2
}

// awaitDaemonSet waits until the DaemonSet is ready on both nodes.
func (s session) awaitDaemonSet(t *testing.T, namespace, name string) {
	t.Helper()
	bed.Await(t, "DaemonSet "+name+" to be ready on both nodes", func() error {
		set, err := s.Client(t).AppsV1().DaemonSets(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !bed.RolledOut(set) {
			return fmt.Errorf("%d of 2: %s", set.Status.NumberReady, s.trouble(t, namespace))
		}
		return nil
	})
}

// trouble tells what the namespace's pods wait for.
func (s session) trouble(t *testing.T, namespace string) string {
	pods, err := s.Client(t).CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var all []string
	for i := range pods.Items {
		all = append(all, pods.Items[i].Name+": "+bed.Trouble(&pods.Items[i]))
	}
	return strings.Join(all, "\n")
}

// workloads are the services, and batch work as Koordinator writes it, on n1.
func workloads() string {
	return services() + koordinator("be", "nodeName: n1", 300)
}

// services are pods on n1 with a CPU of its own and of the default class, and one of the default class on n2.
func services() string {
	return pod("lsr", `annotations: {class.sluice.dev: LSR}`, "nodeName: n1", `{requests: {cpu: 1, memory: 64Mi}, limits: {cpu: 1, memory: 64Mi}}`, "sleep infinity") +
		pod("ls", ``, "nodeName: n1", `{requests: {cpu: 250m}}`, "sleep infinity") +
		pod("elsewhere", ``, "nodeName: n2", `{requests: {cpu: 250m}}`, "sleep infinity")
}

// koordinator is a batch pod as Koordinator's webhook leaves it, with thousandths of a CPU and 64 MiB.
func koordinator(name, where string, milli int) string {
	amounts := fmt.Sprintf(`{"kubernetes.io/batch-cpu": "%d", "kubernetes.io/batch-memory": "64Mi"}`, milli)
	both := fmt.Sprintf(`{"limits": %s, "requests": %[1]s}`, amounts)
	metadata := `labels: {koordinator.sh/qosClass: BE}, annotations: {node.koordinator.sh/extended-resource-spec: '{"containers": {"main": ` + both + `}}'}`
	return pod(name, metadata, where, both, "sleep infinity")
}

// pod is a pod of one container that runs a script. The field where binds it to a node, or lets the scheduler choose.
func pod(name, metadata, where, resources, script string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, %s}
spec:
  %s
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: %q, command: [sh, -c, %q], resources: %s}
---`, name, metadata, where, bed.Image, script, resources)
}

// start starts the pods of the manifests, and returns them by name.
func (s session) start(t *testing.T, manifests string) map[string]*corev1.Pod {
	t.Helper()
	pods := map[string]*corev1.Pod{}
	for _, object := range s.Apply(t, manifests) {
		pods[object.GetName()] = s.AwaitReady(t, "default", object.GetName())
	}
	return pods
}

// stop deletes the pods, and waits for their end.
func (s session) stop(t *testing.T, pods map[string]*corev1.Pod) {
	t.Helper()
	api := s.Client(t).CoreV1().Pods("default")
	for name := range pods {
		if err := api.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name := range pods {
		bed.Await(t, "pod "+name+" to go", func() error {
			_, err := api.Get(t.Context(), name, metav1.GetOptions{})
			return bed.Gone(err)
		})
	}
}

// settings are what the kernel has of a container.
type settings struct{ cpus, quota, weight, memory string }

// all reads the settings of all pods' containers, by the pod's name.
func (s session) all(t *testing.T, pods map[string]*corev1.Pod) map[string]settings {
	t.Helper()
	all := map[string]settings{}
	for name, pod := range pods {
		n := s.node(pod)
		read := func(file string) string { return n.CgroupFile(t, n.Cgroup(t, pod, "main"), file) }
		if n.V2() {
			quota, _, _ := strings.Cut(read("cpu.max"), " ")
			all[name] = settings{read("cpuset.cpus.effective"), quota, read("cpu.weight"), read("memory.max")}
		} else {
			all[name] = settings{read("cpuset.cpus"), read("cpu.cfs_quota_us"), read("cpu.shares"), read("memory.limit_in_bytes")}
		}
	}
	return all
}

// checkPlaced compares what Sluice has set with what the kubelet sets by itself.
func checkPlaced(t *testing.T, placed, kubelets map[string]settings) {
	for name, got := range placed {
		t.Logf("%s has %+v, and by the kubelet %+v", name, got, kubelets[name])
	}
	lsr, ls, be := placed["lsr"], placed["ls"], placed["be"]
	if strings.ContainsAny(lsr.cpus, ",-") || lsr.cpus == "" {
		t.Errorf("the LSR container has the CPUs %q, want one", lsr.cpus)
	}
	for name, others := range map[string]settings{"ls": ls, "be": be} {
		if others.cpus == lsr.cpus || others.cpus == kubelets[name].cpus {
			t.Errorf("%s has the CPUs %q beside a container that has %q for itself", name, others.cpus, lsr.cpus)
		}
	}
	if lsr.quota == kubelets["lsr"].quota {
		t.Errorf("the LSR container keeps its quota %s", lsr.quota)
	}
	if be.quota != "30000" || be.memory != fmt.Sprint(64<<20) {
		t.Errorf("the BE container has %+v, want the quota and the limit of 300 milli-CPUs and 64 MiB", be)
	}
	if placed["elsewhere"] != kubelets["elsewhere"] {
		t.Errorf("the pod on the other node has %+v, want %+v", placed["elsewhere"], kubelets["elsewhere"])
	}
}

// restartKubelet restarts the kubelet as a crash and its service manager would.
func (s session) restartKubelet(t *testing.T, pods map[string]*corev1.Pod, before map[string]settings) {
	s.n1.Kubelet.Kill(t)
	s.n1.Kubelet.Start(t)
	restarted := metav1.Now()
	bed.Await(t, "the kubelet to report on its pods", func() error { return s.Reported(t, "n1", restarted) })
	s.keep(t, pods)
	if after := s.all(t, pods); !maps.Equal(after, before) {
		t.Errorf("the settings were %+v and are %+v", before, after)
	}
}

// keep checks that the pods still have their containers.
func (s session) keep(t *testing.T, pods map[string]*corev1.Pod) {
	t.Helper()
	for name, pod := range pods {
		now := s.AwaitReady(t, "default", name)
		if now.UID != pod.UID || now.Status.ContainerStatuses[0].ContainerID != pod.Status.ContainerStatuses[0].ContainerID {
			t.Errorf("pod %s has another container: %s", name, bed.Trouble(now))
		}
	}
}

// loop switches the control loop on, which limits the cgroup of BestEffort pods.
func (s session) loop(t *testing.T) {
	if quota := s.bestEffort(t); quota != "-1" && quota != "max" {
		t.Errorf("before the loop acts, BestEffort pods have the quota %s", quota)
	}
	s.configure(t, "mode: on\n    control: {mode: on}")
	bed.Await(t, "a quota for BestEffort pods", func() error {
		if quota := s.bestEffort(t); quota == "-1" || quota == "max" {
			return fmt.Errorf("it is %s", quota)
		}
		return nil
	})
	t.Logf("BestEffort pods have the quota %s", s.bestEffort(t))
}

func (s session) bestEffort(t *testing.T) string {
	cgroup := filepath.Join(s.n1.CgroupRoot, "kubepods", "besteffort")
	if s.n1.V2() {
		quota, _, _ := strings.Cut(s.n1.CgroupFile(t, cgroup, "cpu.max"), " ")
		return quota
	}
	return s.n1.CgroupFile(t, cgroup, "cpu.cfs_quota_us")
}

// remove removes the DaemonSet while the loop acts. The containers then have what the
// kubelet set.
func (s session) remove(t *testing.T, pods map[string]*corev1.Pod, kubelets map[string]settings) {
	s.Delete(t, manifest(t, "sluice.yaml"))
	bed.Await(t, "the namespace sluice to go", func() error {
		_, err := s.Client(t).CoreV1().Namespaces().Get(t.Context(), "sluice", metav1.GetOptions{})
		return bed.Gone(err)
	})
	began := time.Now()
	s.Apply(t, manifest(t, "restore.yaml"))
	s.awaitDaemonSet(t, "sluice-restore", "sluice-restore")
	t.Logf("both nodes are restored %s after restore.yaml was applied", time.Since(began).Round(time.Millisecond))
	if after := s.all(t, pods); !maps.Equal(after, kubelets) {
		t.Errorf("the settings are %+v, want the kubelet's own %+v", after, kubelets)
	}
	if quota := s.bestEffort(t); quota != "-1" && quota != "max" {
		t.Errorf("BestEffort pods keep the quota %s", quota)
	}
}
