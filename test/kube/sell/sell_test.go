// Package sell tests what sluice-kube publishes, on a real API server.
package sell_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/host"
	"github.com/sluice-dev/sluice/test/kube/bed"
	"github.com/sluice-dev/sluice/test/kube/standin"
)

func TestMain(m *testing.M) { os.Exit(bed.Main(m)) }

const (
	nodeName = "n1"
	cpu      = "batch.sluice.dev/cpu"
	memory   = "batch.sluice.dev/memory"
)

// stand is an API server with a node, its plugin, and what a test does with them.
type stand struct {
	*testing.T
	cluster    *bed.Cluster
	client     kubernetes.Interface
	plugin     *standin.Plugin
	kubeconfig string
	program    *standin.Program
}

func newStand(t *testing.T) *stand {
	t.Helper()
	c := bed.API(t)
	s := &stand{T: t, cluster: c, client: c.Client(t), plugin: standin.Start(t)}
	s.kubeconfig = c.Kubeconfig(t, "sluice", c.Agent(t, nodeName, bed.AgentRules))
	s.plugin.Offer(4000)
	return s
}

func (s *stand) start() {
	s.Helper()
	s.program = standin.Run(s.T, nodeName, s.kubeconfig, s.plugin.Socket)
}

func (s *stand) node() *corev1.Node {
	s.Helper()
	node, err := s.client.CoreV1().Nodes().Get(context.Background(), nodeName, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return node
}

// has is an amount that the node has, of both lists; -1 if it has none.
func has(node *corev1.Node, name string) int64 {
	capacity, ok := node.Status.Capacity[corev1.ResourceName(name)]
	allocatable := node.Status.Allocatable[corev1.ResourceName(name)]
	if !ok || capacity.Cmp(allocatable) != 0 {
		return -1
	}
	return capacity.Value()
}

func reason(node *corev1.Node, kind corev1.NodeConditionType) string {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// await waits until the node has the CPU and the condition SluiceBatchOpen.
func (s *stand) await(milli int64, open string) time.Duration {
	s.Helper()
	began := time.Now()
	bed.Await(s, fmt.Sprintf("%d thousandths of a CPU, %s", milli, open), func() error {
		node, err := s.client.CoreV1().Nodes().Get(context.Background(), nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if has(node, cpu) != milli || reason(node, "SluiceBatchOpen") != open {
			return fmt.Errorf("the node has %d, %s", has(node, cpu), reason(node, "SluiceBatchOpen"))
		}
		return nil
	})
	return time.Since(began)
}

// pod binds a pod to the node that requests this, and lets it run.
func (s *stand) pod(name, resource, amount string, runs bool) {
	s.Helper()
	quantities := fmt.Sprintf("{%s: %q}", resource, amount)
	s.cluster.Apply(s, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: n1
  containers: [{name: main, image: none, resources: {requests: %s, limits: %s}}]
`, name, quantities, quantities))
	if runs {
		s.patchStatus("pods", name, types.MergePatchType, "kubelet", fmt.Sprintf(`{"status": {"phase": "Running", "startTime": %q}}`, time.Now().UTC().Format(time.RFC3339)))
	}
}

// patchStatus writes a status as somebody else does.
func (s *stand) patchStatus(resource, name string, kind types.PatchType, manager, patch string) {
	s.Helper()
	var err error
	options := metav1.PatchOptions{FieldManager: manager}
	if resource == "pods" {
		_, err = s.client.CoreV1().Pods("default").Patch(context.Background(), name, kind, []byte(patch), options, "status")
	} else {
		_, err = s.client.CoreV1().Nodes().Patch(context.Background(), name, kind, []byte(patch), options, "status")
	}
	if err != nil {
		s.Fatal(err)
	}
}

const selling = "True Selling"

func TestSelling(t *testing.T) {
	s := newStand(t)
	s.start()
	t.Logf("the first offer was on the node after %v", s.await(4000, selling).Round(time.Millisecond))
	node := s.node()
	if has(node, memory) != 4000<<20 || has(node, "mid.sluice.dev/cpu") != 2000 || reason(node, "SluiceReady") != "True Acting" {
		t.Errorf("the node has %v and %s", node.Status.Capacity, reason(node, "SluiceReady"))
	}

	t.Run("a fall is on the node within a second", func(t *testing.T) {
		s.T = t
		s.plugin.Offer(3000)
		took := s.await(3000, selling)
		t.Logf("a fall was on the node after %v", took.Round(time.Millisecond))
		if took > time.Second {
			t.Errorf("a fall took %v", took)
		}
	})

	t.Run("the kubelet's fields stay, and ours", func(t *testing.T) {
		s.T = t
		s.patchStatus("nodes", nodeName, types.StrategicMergePatchType, "kubelet",
			`{"status": {"capacity": {"cpu": "8", "pods": "110"}, "allocatable": {"cpu": "7", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}`)
		s.plugin.Offer(2000)
		s.await(2000, selling)
		node := s.node()
		if c, a := node.Status.Capacity.Cpu().Value(), node.Status.Allocatable.Cpu().Value(); c != 8 || a != 7 || reason(node, "Ready") != "True KubeletReady" {
			t.Errorf("the kubelet's fields are %d, %d, %s", c, a, reason(node, "Ready"))
		}
	})

	t.Run("nothing falls below what running pods have", func(t *testing.T) {
		s.T = t
		s.pod("runs", cpu, "1500", true)
		s.plugin.Offer(100)
		s.await(1500, selling)
	})

	t.Run("a pod that was bound by hand raises nothing, and impossible amounts are told", func(t *testing.T) {
		s.T = t
		s.pod("forged", cpu, "9E", false)
		s.pod("greedy", cpu, "1M", false)
		bed.Await(t, "an event of the pod", func() error {
			events, err := s.client.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{FieldSelector: "reason=InvalidBatchRequest"})
			if err == nil && len(events.Items) != 1 {
				err = fmt.Errorf("%d events", len(events.Items))
			}
			return err
		})
		time.Sleep(2 * time.Second)
		if n := has(s.node(), cpu); n != 1500 {
			t.Errorf("the node has %d, want 1500", n)
		}
	})

	t.Run("closing is at once, and exactly what is bound", func(t *testing.T) {
		s.T = t
		s.plugin.SwitchOff(100)
		s.await(1500, "False Switch")
		if n := has(s.node(), memory); n != 0 {
			t.Errorf("closed, the node sells %d bytes", n)
		}
	})

	t.Run("a node object that was made anew has at once what runs", func(t *testing.T) {
		s.T = t
		if err := s.client.CoreV1().Nodes().Delete(t.Context(), nodeName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.cluster.Apply(t, "{apiVersion: v1, kind: Node, metadata: {name: n1}}")
		s.await(1500, "False Switch")
	})
}

// A plugin that is away closes the node, and so does a program that ends; its successor
// opens at once. Uninstalling leaves nothing.
func TestAway(t *testing.T) {
	s := newStand(t)
	s.start()
	s.await(4000, selling)

	s.program.Stop(t)
	s.await(0, "False Stopping")
	s.start()
	s.await(4000, selling)

	s.program.Kill()
	s.plugin.Offer(1000)
	s.start()
	s.await(1000, selling)

	s.plugin.Close()
	time.Sleep(20 * time.Second)
	if open := reason(s.node(), "SluiceBatchOpen"); open != selling {
		t.Errorf("after 20 s without the plugin the node says %q", open)
	}
	t.Logf("a plugin that is away closed the node after %v", (20*time.Second + s.await(0, "False NotReady")).Round(time.Second))

	s.program.Stop(t)
	out, err := exec.Command("../../../bin/sluice-kube", "uninstall", "--all-nodes", "--kubeconfig", s.kubeconfig).CombinedOutput()
	if err != nil || string(out) != "node n1: nothing of Sluice is published\n" {
		t.Fatalf("%v: %s", err, out)
	}
	node := s.node()
	if len(node.Status.Conditions) > 0 || has(node, cpu) >= 0 || has(node, memory) >= 0 {
		t.Errorf("uninstalled, the node has %+v", node.Status)
	}
	for _, entry := range node.ManagedFields {
		if strings.HasPrefix(entry.Manager, "sluice") {
			t.Errorf("uninstalled, the node has fields of %q", entry.Manager)
		}
	}
}

// While the API server is away nothing piles up: at its return there is one publication.
func TestAPIServerAway(t *testing.T) {
	s := newStand(t)
	s.start()
	s.await(4000, selling)
	var before int
	bed.Await(t, "the publication to be counted", func() error {
		if before = s.program.Publications(t); before == 0 {
			return bed.ErrNotYet
		}
		return nil
	})
	s.cluster.APIServer.Kill(t)
	for milli := int64(3500); milli > 500; milli -= 500 {
		s.plugin.Offer(milli)
		time.Sleep(2 * time.Second)
	}
	s.plugin.Offer(500)
	s.cluster.APIServer.Start(t)
	t.Logf("the offer was on the node %v after the API server's return", s.await(500, selling).Round(time.Millisecond))
	time.Sleep(3 * time.Second)
	if n := s.program.Publications(t) - before; n != 1 {
		t.Errorf("there were %d publications, want 1", n)
	}
}

// Who publishes one of the resources has all of them.
func TestOtherPublisher(t *testing.T) {
	s := newStand(t)
	s.start()
	s.await(4000, selling)
	s.patchStatus("nodes", nodeName, types.MergePatchType, "koord-manager", `{"status": {"capacity": {"batch.sluice.dev/cpu": "7"}, "allocatable": {"batch.sluice.dev/cpu": "7"}}}`)
	s.await(7, "False OtherPublisher")
	s.plugin.Offer(1000)
	time.Sleep(3 * time.Second)
	if node := s.node(); has(node, cpu) != 7 || has(node, memory) != -1 {
		t.Errorf("beside another publisher the node has %v", node.Status.Capacity)
	}
	bed.Await(t, "an event of the node", func() error {
		events, err := s.client.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{FieldSelector: "reason=SluiceStepsAside"})
		if err == nil && len(events.Items) != 1 {
			err = errors.New("there is none")
		}
		return err
	})
	s.patchStatus("nodes", nodeName, types.MergePatchType, "koord-manager", `{"status": {"capacity": {"batch.sluice.dev/cpu": null}, "allocatable": {"batch.sluice.dev/cpu": null}}}`)
	s.await(1000, selling)
}

// The names of Koordinator and Katalyst are published as their schedulers read them.
func TestDialects(t *testing.T) {
	s := newStand(t)
	for dialect, names := range map[string][]string{
		"koordinator": {"kubernetes.io/batch-cpu", "kubernetes.io/batch-memory", "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"},
		"katalyst":    {"resource.katalyst.kubewharf.io/reclaimed_millicpu", "resource.katalyst.kubewharf.io/reclaimed_memory"},
	} {
		s.program = standin.Run(t, nodeName, s.kubeconfig, s.plugin.Socket, "--resources", dialect)
		bed.Await(t, dialect, func() error {
			node := s.node()
			if has(node, names[0]) != 4000 || has(node, names[1]) != 4000<<20 {
				return fmt.Errorf("the node has %v", node.Status.Capacity)
			}
			return nil
		})
		if node := s.node(); len(node.Status.Capacity) != len(names) {
			t.Errorf("%s: the node has %v, want %q alone", dialect, node.Status.Capacity, names)
		}
		s.program.Stop(t)
	}
}

// TestCosts prints what a full node costs: 110 pods, whose containers' figures change all the
// time.
func TestCosts(t *testing.T) {
	const pods, measured = 110, 30 * time.Second
	s := newStand(t)
	for i := range pods {
		s.pod(fmt.Sprintf("p%d", i), cpu, "10", true)
	}
	s.plugin.Set(func(st *status.Status) {
		one := st.Containers[1]
		st.Containers = nil
		for i := range pods {
			c := one
			c.ID, c.PodUID, c.Ref = fmt.Sprintf("%064d", i), fmt.Sprint(i), fmt.Sprintf("default/p%d/main", i)
			usage := *one.Usage
			usage.CPU.MeasuredAt, usage.CPU.Usage = st.Time, usage.CPU.Usage+1
			usage.Memory.MeasuredAt, usage.Memory.CurrentBytes = st.Time, st.Time.UnixNano()%(1<<30)
			c.Usage = &usage
			st.Containers = append(st.Containers, c)
		}
	})
	s.start()
	s.await(7000, selling)
	time.Sleep(5 * time.Second)
	use, err := host.Measure(measured, s.program.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	share, mib := use[0].CPUs*100, use[0].MiB()
	t.Logf("with %d pods sluice-kube has %.1f MiB resident and needs %.2f %% of a CPU", pods, mib, share)
	if share > 0.3 {
		t.Errorf("it needs %.2f %% of a CPU, want at most 0.3 %%", share)
	}
	if mib > 40 {
		t.Errorf("%.1f MiB are resident, want at most 40 MiB", mib)
	}
}
