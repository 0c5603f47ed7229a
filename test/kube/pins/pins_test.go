// Package pins tests on a Kubernetes of three nodes that pods wait for CPUs of their own, rather than fail on a node
// that has none.
package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/pkg/cluster/selling"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

func TestMain(m *testing.M) { os.Exit(bed.Main(m)) }

// The chart's pods request no CPU, so that each node's CPUs are all for pods.
const values = `
image: {repository: localhost/sluice/sluice, tag: latest}
mode: "on"
resources: {requests: {cpu: 0, memory: 64Mi}, limits: {memory: 256Mi}}
kube: {enabled: true, pins: %t, evictions: true, podResources: {requests: {cpu: 0, memory: 40Mi}, limits: {memory: 128Mi}}}
policies: {mutatingVersion: %s}
config: |
  control: {mode: on, eviction: {by: kubernetes}}
`

// pinned is the state of ten pods that want a CPU each.
type pinned struct {
	runs, waits int
	fails       []string
	others      []string   // in another state
	running     corev1.Pod // one of those that run
}

type session struct {
	*testing.T
	client kubernetes.Interface
	*bed.Cluster
}

// TestTenPods: without CPUs for pins in the API server, a pod that its node refuses makes way for a successor elsewhere;
// with them, pods wait.
func TestTenPods(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("SKIPPED: a container with CPUs of its own needs a second CPU for all others")
	}
	c := bed.API(t)
	c.HighWeight(t)
	for _, name := range []string{"n1", "n2", "n3"} {
		n := c.Node(t, name)
		n.Import(t, filepath.Join("../../..", "bin", "sluice-image.tar"), "localhost/sluice/sluice:latest")
	}
	s := session{t, c.Client(t), c}
	c.Namespace(t, "sluice", map[string]string{"pod-security.kubernetes.io/enforce": "privileged"})

	s.helm(false, "install")
	s.refusedPinLeaves()
	s.create()
	s.await("a pod that fails on a node without a CPU for it, where none are published", func(now pinned) bool { return now.runs == 3 && len(now.fails) > 0 })
	s.deleteAll()

	s.helm(true, "upgrade")
	s.published(3 * int64(runtime.NumCPU()-1))
	s.create()
	none := func(now pinned) bool {
		if len(now.fails) > 0 {
			s.Fatalf("pods fail although they could wait: %q", now.fails)
		}
		return now.runs == 3 && now.waits == 7
	}
	now := s.await("three pods to run, and seven to wait", none)
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		none(s.look())
	}
	began := time.Now()
	s.delete(now.running.Name)
	s.await("a waiting pod to take the place of one that has ended", func(after pinned) bool {
		none(after)
		return after.runs == 3 && after.waits == 6
	})
	s.Logf("a waiting pod ran %s after another one was deleted", time.Since(began).Round(10*time.Millisecond))
}

// refusedPinLeaves brings two pods of a ReplicaSet to a node with CPUs for one, and then opens the other nodes in its place.
func (s session) refusedPinLeaves() {
	s.Helper()
	s.cordon("n2", true)
	s.cordon("n3", true)
	s.Apply(s, fmt.Sprintf(`
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: pair, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: pair}}
  template:
    metadata: {labels: {app: pair}, annotations: {class.sluice.dev: LSR}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: main, image: %q, command: [sleep, infinity], resources: {limits: {cpu: %d, memory: 16Mi}}}
`, bed.Image, runtime.NumCPU()-1))
	stays := s.await("a pod that the node refuses beside one that runs", func(now pinned) bool { return now.runs == 1 && len(now.fails) == 1 }).running
	began := time.Now()
	s.cordon("n1", true)
	s.cordon("n2", false)
	s.cordon("n3", false)
	s.await("the refused pod's successor to run", func(now pinned) bool { return now.runs == 2 })
	s.Logf("the successor of the refused pod ran %s after it was seen refused", time.Since(began).Round(time.Second))
	pods, err := s.client.CoreV1().Pods("default").List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if ends := pod.DeletionTimestamp != nil; !ends && (pod.UID == stays.UID) != (pod.Spec.NodeName == "n1") {
			s.Errorf("pod %s is on node %s; the pod that ran there was %s", pod.Name, pod.Spec.NodeName, stays.Name)
		}
	}
	s.evicted()
	s.cordon("n1", false)
	if err := s.client.AppsV1().ReplicaSets("default").Delete(s.Context(), "pair", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	s.deleteAll()
}

// evicted checks that an event says why the node has let the pod go.
func (s session) evicted() {
	s.Helper()
	bed.Await(s, "an event about the eviction", func() error {
		events, err := s.client.CoreV1().Events("default").List(s.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range events.Items {
			if e := &events.Items[i]; e.Reason == "EvictedBySluice" && strings.Contains(e.Message, "the node has refused to start it") {
				s.Logf("%s: %s", e.InvolvedObject.Name, e.Message)
				return nil
			}
		}
		return fmt.Errorf("%d other events", len(events.Items))
	})
}

// cordon closes a node to new pods, or opens it.
func (s session) cordon(node string, closed bool) {
	s.Helper()
	patch := fmt.Sprintf(`{"spec": {"unschedulable": %t}}`, closed)
	if _, err := s.client.CoreV1().Nodes().Patch(s.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s session) helm(pins bool, verb string) {
	s.Helper()
	version := "v1"
	if bed.Version() == "1.34" {
		version = "v1beta1"
	}
	if err := s.Helm(s, "sluice", fmt.Sprintf(values, pins, version), verb, "sluice", "CHART", "--wait", "--timeout", "3m"); err != nil {
		s.Fatal(err)
	}
}

// create creates ten pods of class LSR with one CPU each, of which a node of two CPUs can run one: a CPU stays for all
// others.
func (s session) create() {
	s.Helper()
	var manifests strings.Builder
	for i := range 10 {
		fmt.Fprintf(&manifests, `
apiVersion: v1
kind: Pod
metadata: {name: pin-%d, annotations: {class.sluice.dev: LSR}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: %q, command: [sleep, infinity], resources: {limits: {cpu: %d, memory: 16Mi}}}
---`, i, bed.Image, runtime.NumCPU()-1)
	}
	s.Apply(s, manifests.String())
}

// look returns the state of the ten pods.
func (s session) look() pinned {
	s.Helper()
	list, err := s.client.CoreV1().Pods("default").List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	var now pinned
	for i := range list.Items {
		pod := &list.Items[i]
		trouble := bed.Trouble(pod)
		switch {
		case pod.DeletionTimestamp != nil:
		case bed.Ready(pod):
			now.runs, now.running = now.runs+1, *pod
		case pod.Spec.NodeName == "" && strings.Contains(trouble, "Insufficient "+selling.PinnableCPU):
			now.waits++
		case strings.Contains(trouble, "CreateContainerError"), pod.Status.Phase == corev1.PodFailed:
			now.fails = append(now.fails, pod.Name+": "+trouble)
		default:
			now.others = append(now.others, pod.Name+": "+trouble)
		}
	}
	return now
}

// await waits until the pods are in a state, and returns it.
func (s session) await(what string, right func(pinned) bool) (now pinned) {
	s.Helper()
	bed.Await(s, what, func() error {
		if now = s.look(); right(now) {
			return nil
		}
		return fmt.Errorf("%d run, %d wait for CPUs, these fail: %q, and there are %q", now.runs, now.waits, now.fails, now.others)
	})
	s.Logf("%d pods run, %d wait for CPUs, and these fail: %q", now.runs, now.waits, now.fails)
	return now
}

// published waits until the nodes publish so many CPUs together.
func (s session) published(want int64) {
	s.Helper()
	bed.Await(s, fmt.Sprintf("%d CPUs of %s", want, selling.PinnableCPU), func() error {
		nodes, err := s.client.CoreV1().Nodes().List(s.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var sum int64
		for i := range nodes.Items {
			cpus := nodes.Items[i].Status.Allocatable[selling.PinnableCPU]
			sum += cpus.Value()
		}
		if sum != want {
			return fmt.Errorf("there are %d", sum)
		}
		return nil
	})
}

func (s session) delete(name string) {
	s.Helper()
	if err := s.client.CoreV1().Pods("default").Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s session) deleteAll() {
	s.Helper()
	if err := s.client.CoreV1().Pods("default").DeleteCollection(s.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		s.Fatal(err)
	}
	bed.Await(s, "the pods to go", func() error {
		list, err := s.client.CoreV1().Pods("default").List(s.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left", len(list.Items))
		}
		return errors.Join(err)
	})
}
