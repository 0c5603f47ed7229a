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
kube: {enabled: true, pins: %t, podResources: {requests: {cpu: 0, memory: 40Mi}, limits: {memory: 128Mi}}}
policies: {mutatingVersion: %s}
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
