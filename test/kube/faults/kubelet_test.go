// Package faults tests what batch pods and what the node sells survive: restarts of a real kubelet, an API server that
// is away, and a sluice-kube that is killed again and again.
package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/test/kube/bed"
	"github.com/sluice-dev/sluice/test/kube/standin"
)

func TestMain(m *testing.M) { os.Exit(bed.Main(m)) }

const (
	nodeName = "n1"
	batchCPU = "batch.sluice.dev/cpu"
	each     = 1000 // what a batch pod requests, in thousandths of a CPU
)

// stand is a node with a real kubelet, and sluice-kube beside a plugin that is made up.
type stand struct {
	*testing.T
	cluster    *bed.Cluster
	client     kubernetes.Interface
	node       *bed.Node
	plugin     *standin.Plugin
	program    *standin.Program
	kubeconfig string
	pods       []*corev1.Pod // batch pods that run, as they were first ready
	history    *history
}

// TestKubelet restarts the kubelet of a node that is closed, in each way that could lose what the node has: no pod
// fails or starts again, and the node has what it had. Afterwards it sells again.
func TestKubelet(t *testing.T) {
	t.Parallel()
	c := bed.API(t)
	s := &stand{T: t, cluster: c, client: c.Client(t), node: c.Node(t, nodeName), plugin: standin.Start(t)}
	s.kubeconfig = c.Kubeconfig(t, "sluice", c.Agent(t, nodeName, bed.AgentRules))
	s.history = follow(t, s.client)
	for _, state := range []struct {
		name         string
		pods         int   // that run, of each thousandths of a CPU
		opens, falls int64 // the offer before the pods come, and when the node closes
	}{
		{"nothing is bound", 0, 3 * each, 3 * each},
		{"less is bound than is offered", 1, 3 * each, 3 * each},
		{"more is bound than is offered", 3, 3 * each, each},
	} {
		s.reopen(state.opens)
		for len(s.pods) < state.pods {
			s.start()
		}
		s.plugin.SwitchOff(state.falls)
		bound := int64(state.pods * each)
		s.await(bound, "False Switch")
		for _, fault := range s.faults() {
			t.Run(state.name+"/"+fault.name, func(t *testing.T) {
				s.T = t
				began := time.Now()
				fault.happens()
				s.settles(bound)
				least, most := between(s.history.all(), began, time.Now())
				t.Logf("after %v all is as before; meanwhile the node had %d to %d (-1: no such resource)", time.Since(began).Round(100*time.Millisecond), least, most)
				if most > bound {
					t.Errorf("the node had %d for sale, and %d is bound", most, bound)
				}
			})
			s.T = t
		}
	}
	s.reopen(4 * each)
	s.start()
}

// fault is something that happens to a node.
type fault struct {
	name    string
	happens func()
}

func (s *stand) faults() []fault {
	kubelet := s.node.Kubelet
	return []fault{
		{"the kubelet is restarted", func() { kubelet.Restart(s) }},
		{"the kubelet crashes", func() { kubelet.Kill(s); kubelet.Start(s) }},
		{"the device plugins' folder is emptied", func() { kubelet.Stop(s); s.empty(); kubelet.Start(s) }},
		{"the node object is made anew", func() {
			kubelet.Stop(s)
			// Kubernetes deletes the pods of a node that is away for 40 s, which a kubelet on a busy machine needs to start.
			s.cluster.ControllerManager.Freeze(s)
			defer s.cluster.ControllerManager.Thaw(s)
			if err := s.client.CoreV1().Nodes().Delete(context.Background(), nodeName, metav1.DeleteOptions{}); err != nil {
				s.Fatal(err)
			}
			kubelet.Start(s)
			bed.Await(s, "the kubelet to register its node", func() error {
				_, err := s.client.CoreV1().Nodes().Get(context.Background(), nodeName, metav1.GetOptions{})
				return err
			})
		}},
	}
}

// empty removes what the kubelet has of device plugins, its checkpoint too. A kubelet that finds nothing there when it
// registers sets its node's extended resources to 0 (reconcileExtendedResource in pkg/kubelet/kubelet_node_status.go).
func (s *stand) empty() {
	s.Helper()
	dir := s.node.Path("/var/lib/kubelet/device-plugins")
	entries, err := os.ReadDir(dir)
	if err != nil {
		s.Fatal(err)
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			s.Fatal(err)
		}
	}
}

// reopen lets the node sell at once: a sluice-kube that has ended opens the node when it is back.
func (s *stand) reopen(milli int64) {
	s.Helper()
	if s.program != nil {
		s.program.Stop(s)
	}
	s.plugin.Offer(milli)
	s.program = standin.Run(s, nodeName, s.kubeconfig, s.plugin.Socket)
	s.await(milli, "True Selling")
}

// start lets the scheduler bind another batch pod, and waits until it runs.
func (s *stand) start() {
	s.Helper()
	name := fmt.Sprintf("batch-%d", len(s.pods))
	s.cluster.Apply(s, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: %q, resources: {requests: {%s: %d}, limits: {%[3]s: %d}}}]
`, name, bed.Image, batchCPU, each, each))
	s.pods = append(s.pods, s.cluster.AwaitReady(s, "default", name))
}

// await waits until the node has that much batch CPU, in thousandths, and the condition SluiceBatchOpen, and the history
// knows it: a watch tells later than a request.
func (s *stand) await(milli int64, open string) {
	s.Helper()
	bed.Await(s, fmt.Sprintf("%d thousandths of a CPU, %s", milli, open), func() error {
		node, err := s.says(open)
		if err == nil && amount(node) != milli {
			err = fmt.Errorf("the node has %d", amount(node))
		}
		if last := s.history.last(); err == nil && last != milli {
			err = fmt.Errorf("the watch has told %d", last)
		}
		return err
	})
}

// says returns the node, and an error unless SluiceBatchOpen is so.
func (s *stand) says(open string) (*corev1.Node, error) {
	node, err := s.client.CoreV1().Nodes().Get(context.Background(), nodeName, metav1.GetOptions{})
	if err == nil && condition(node) != open {
		err = fmt.Errorf("the node is %s, and has %d", condition(node), amount(node))
	}
	return node, err
}

// amount is the batch CPU that a node has in both lists; -1 if it has none.
func amount(node *corev1.Node) int64 {
	capacity, has := node.Status.Capacity[batchCPU]
	allocatable, same := node.Status.Allocatable[batchCPU]
	if !has || !same || capacity.Cmp(allocatable) != 0 {
		return -1
	}
	return capacity.Value()
}

// condition is SluiceBatchOpen with its reason.
func condition(node *corev1.Node) string {
	for _, c := range node.Status.Conditions {
		if c.Type == "SluiceBatchOpen" {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// settles waits until the kubelet has taken its pods over, and checks that they run as before, on a node that has what
// it had.
func (s *stand) settles(bound int64) {
	s.Helper()
	now := metav1.Now()
	bed.Await(s, "the kubelet to report", func() error { return s.cluster.Reported(s, nodeName, now) })
	s.await(bound, "False Switch")
	time.Sleep(2 * time.Second) // in which a kubelet that refuses a pod would fail it
	s.await(bound, "False Switch")
	for _, before := range s.pods {
		pod, err := s.client.CoreV1().Pods("default").Get(context.Background(), before.Name, metav1.GetOptions{})
		if err != nil {
			s.Fatal(err)
		}
		if err := same(before, pod); err != nil {
			s.Errorf("pod %s: %v", pod.Name, err)
		}
	}
}

// same tells why a pod does not run as it did; nil if it does.
func same(before, now *corev1.Pod) error {
	switch {
	case now.UID != before.UID || now.DeletionTimestamp != nil:
		return errors.New("it was replaced, or is being deleted")
	case now.Status.Phase != corev1.PodRunning || len(now.Status.ContainerStatuses) != 1:
		return errors.New(bed.Trouble(now))
	}
	was, is := before.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]
	if is.ContainerID != was.ContainerID || is.RestartCount != was.RestartCount {
		return fmt.Errorf("its container is %s (%d restarts), and was %s (%d)", is.ContainerID, is.RestartCount, was.ContainerID, was.RestartCount)
	}
	return nil
}
