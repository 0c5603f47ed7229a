// Package guest tests Sluice's chart on a node with cgroup v2 alone whose systemd makes the cgroups of pods: a QEMU guest.
// The other packages have nodes with what the test's machine has.
package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/kube/bed"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func TestMain(m *testing.M) { os.Exit(bed.Main(m)) }

const (
	nodeName  = "g1"
	namespace = "sluice"
	batchCPU  = "batch.sluice.dev/cpu"
	bought    = 30       // what the batch pod buys, in thousandths of a CPU
	memory    = 64 << 20 // and in bytes, as the pin requests
)

// values are the chart's. The offer keeps no margin of CPU, because an emulated node is busy with itself.
const values = `
image: {repository: localhost/sluice/sluice, tag: latest}
mode: "on"
kube: {enabled: true}
config: |
  control:
    mode: on
    offer: {cpuMarginPercent: 0}
`

// session is a cluster with the guest as its node.
type session struct {
	*bed.Cluster
	node *bed.Guest
	pods map[string]*corev1.Pod // that run, by name, as they were first ready
	pin  cpuset.Set             // the CPUs of the pod lsr
}

func TestGuest(t *testing.T) {
	if os.Getenv("SLUICE_GUEST_NODE") == "" {
		t.Skip("SKIPPED: with SLUICE_GUEST_NODE=1 it boots a guest, and takes 6 minutes")
	}
	c := bed.API(t)
	c.HighWeight(t)
	s := &session{Cluster: c, node: c.Guest(t, nodeName, bed.Equipment{Images: []string{"../../../bin/sluice-image.tar"}}), pods: map[string]*corev1.Pod{}}
	pin := fmt.Sprintf("{requests: {cpu: 1, memory: %d}, limits: {cpu: 1, memory: %[1]d}}", memory)
	s.start(t, "lsr", `annotations: {class.sluice.dev: LSR}`, pin)
	s.start(t, "ls", "", "{requests: {cpu: 250m}}")
	s.node.Run(t, "systemctl daemon-reload") // as below, so that what is compared differs by Sluice alone
	before := s.files(t, "lsr", "ls")

	s.Namespace(t, namespace, map[string]string{"pod-security.kubernetes.io/enforce": "privileged"})
	s.helm(t, values, "install", "sluice", "CHART", "--wait", "--timeout", "5m")
	t.Run("a new pin has no other container on its CPUs", func(t *testing.T) {
		s.pods["sluice"] = s.plugin(t)
		s.start(t, "late", `annotations: {class.sluice.dev: LSR}`, pin)
		s.apart(t, "late", "lsr", "ls", "sluice")
		s.stop(t, "late")
		delete(s.pods, "sluice")
		var now status.Status
		if err := json.Unmarshal([]byte(s.sluice(t, "status", "-o", "json")), &now); err != nil || now.Counters.WriteErrors > 0 {
			t.Errorf("the kernel has refused %d writes (%v)", now.Counters.WriteErrors, err)
		}
	})
	s.awaitOffer(t)
	batch := fmt.Sprintf("{%s: %d, batch.sluice.dev/memory: %d}", batchCPU, bought, memory)
	s.start(t, "batch", `annotations: {class.sluice.dev: BE}`, "{requests: "+batch+", limits: "+batch+"}")
	s.awaitSettings(t)
	t.Logf("the LSR container has CPUs %s", s.pin)

	t.Run("systemd reads its units again", func(t *testing.T) {
		s.node.Run(t, "systemctl daemon-reload")
		s.awaitSettings(t)
	})
	t.Run("the kubelet is restarted while the node is closed", func(t *testing.T) {
		s.sluice(t, "batch", "off")
		s.awaitClosed(t)
		s.node.RestartKubelet(t)
		s.keep(t)
		s.awaitClosed(t)
		s.awaitSettings(t)
	})
	t.Run("the uninstallation gives everything back", func(t *testing.T) {
		s.helm(t, "", "uninstall", "sluice", "--timeout", "5m")
		s.awaitRestored(t)
		s.keep(t)
		s.stop(t, "batch")
		s.deleteNamespace(t)
		bed.Await(t, "the cgroups to be as they were before Sluice", func() error { return differences(before, s.files(t, "lsr", "ls")) })
	})
}

// start starts a pod of one container.
func (s *session) start(t *testing.T, name, metadata, resources string) {
	t.Helper()
	began := time.Now()
	s.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, %s}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: %q, resources: %s}]
`, name, metadata, bed.Image, resources))
	s.pods[name] = s.AwaitReady(t, "default", name)
	t.Logf("pod %s is ready after %s", name, time.Since(began).Round(100*time.Millisecond))
}

func (s *session) stop(t *testing.T, name string) {
	t.Helper()
	api := s.Client(t).CoreV1().Pods("default")
	if err := api.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	bed.Await(t, "pod "+name+" to go", func() error {
		_, err := api.Get(t.Context(), name, metav1.GetOptions{})
		return bed.Gone(err)
	})
	delete(s.pods, name)
}

func (s *session) helm(t *testing.T, values string, args ...string) {
	t.Helper()
	if err := s.Helm(t, namespace, values, args...); err != nil {
		t.Fatalf("%v\n%s", err, s.trouble(t))
	}
}

// trouble tells what the pods of Sluice wait for.
func (s *session) trouble(t *testing.T) string {
	t.Helper()
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

// sluice runs a command of sluice in the plugin's pod.
func (s *session) sluice(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.Exec(t, s.plugin(t), "sluice", append([]string{"/usr/bin/sluice"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// plugin returns the plugin's pod.
func (s *session) plugin(t *testing.T) *corev1.Pod {
	t.Helper()
	pods, err := s.Client(t).CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=node"})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("the plugin has %d pods, want 1: %v", len(pods.Items), err)
	}
	return &pods.Items[0]
}

// awaitOffer waits until the node sells enough. One that begins to sell while it is busy publishes a rise only after five
// minutes; a new sluice-kube publishes at once.
func (s *session) awaitOffer(t *testing.T) {
	t.Helper()
	const patience = time.Minute
	began := time.Now()
	renewed := began
	bed.Await(t, "the node to sell "+batchCPU, func() error {
		has, open := s.selling(t)
		if has >= bought && open == "True Selling" {
			t.Logf("the node sells %d after another %s", has, time.Since(began).Round(100*time.Millisecond))
			return nil
		}
		if time.Since(renewed) > patience {
			renewed = time.Now()
			err := s.Client(t).CoreV1().Pods(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=kube"})
			if err != nil {
				return err
			}
		}
		return fmt.Errorf("it sells %d: %s", has, open)
	})
}

// awaitClosed waits until the node has exactly what the batch pod bought.
func (s *session) awaitClosed(t *testing.T) {
	t.Helper()
	bed.Await(t, "the node to be closed", func() error {
		if has, open := s.selling(t); has != bought || open != "False Switch" {
			return fmt.Errorf("it sells %d: %s", has, open)
		}
		return nil
	})
}

// selling returns what the node has of batch CPU, in thousandths, and its condition SluiceBatchOpen.
func (s *session) selling(t *testing.T) (milli int64, open string) {
	t.Helper()
	node, err := s.Client(t).CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == "SluiceBatchOpen" {
			open = string(c.Status) + " " + c.Reason
		}
	}
	amount := node.Status.Allocatable[batchCPU]
	return amount.Value(), open
}

// keep checks that the pods still have their containers.
func (s *session) keep(t *testing.T) {
	t.Helper()
	for name, pod := range s.pods {
		now := s.AwaitReady(t, "default", name)
		was, is := pod.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]
		if now.UID != pod.UID || is.ContainerID != was.ContainerID || is.RestartCount != was.RestartCount {
			t.Errorf("pod %s has another container: %s", name, bed.Trouble(now))
		}
	}
}

// awaitRestored waits until the pods of the uninstallation have given the node back.
func (s *session) awaitRestored(t *testing.T) {
	t.Helper()
	bed.Await(t, "the node to be given back", func() error {
		set, err := s.Client(t).AppsV1().DaemonSets(namespace).Get(t.Context(), "sluice-uninstall", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !bed.RolledOut(set) || set.Status.NumberReady != 1 {
			return errors.New(s.trouble(t))
		}
		return nil
	})
}

func (s *session) deleteNamespace(t *testing.T) {
	t.Helper()
	api := s.Client(t).CoreV1().Namespaces()
	if err := api.Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	bed.Await(t, "the namespace to go", func() error {
		_, err := api.Get(t.Context(), namespace, metav1.GetOptions{})
		return bed.Gone(err)
	})
}
