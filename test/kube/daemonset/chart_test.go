package daemonset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

const namespace = "sluice"

// values are the chart's values. The offer keeps no margin of CPU, because the machine is busy with two nodes.
func values(kube, eviction string) string {
	return fmt.Sprintf(`
image: {repository: localhost/sluice/sluice, tag: latest}
mode: "on"
kube: %s
config: |
  control:
    mode: on
    offer: {cpuMarginPercent: 0}
    eviction: {by: %s, coolDown: 10s}
`, kube, eviction)
}

// chart takes a release through its life while services run, which must keep their containers and settings.
func (s session) chart(t *testing.T) {
	s.Namespace(t, namespace, map[string]string{"pod-security.kubernetes.io/enforce": "privileged"})
	pods := s.start(t, services())
	kubelets := s.all(t, pods)
	const withKoordinator = "{enabled: true, evictions: true, resources: koordinator}"

	s.helm(t, values(withKoordinator, "kubernetes"), "install", "sluice", "CHART", "--wait", "--timeout", "3m")
	s.awaitOffer(t, "kubernetes.io/batch-cpu")
	s.stop(t, pods)
	pods = s.start(t, services()) // the same pods, which Sluice places from their start
	placed := s.all(t, pods)
	var batch map[string]*corev1.Pod
	stay := func(t *testing.T) {
		t.Helper()
		s.keep(t, pods)
		s.keep(t, batch)
		if now := s.all(t, pods); !maps.Equal(now, placed) {
			t.Errorf("the settings were %+v and are %+v", placed, now)
		}
	}

	t.Run("a pod written for Koordinator buys what the nodes sell", func(t *testing.T) {
		batch = s.start(t, koordinator("koordinator", onN1, bought))
		s.granted(t, batch["koordinator"])
	})
	t.Run("forged grants and amounts give nothing", s.forged)
	t.Run("a Job does not count an eviction", func(t *testing.T) { s.eviction(t, "kubernetes.io/batch-cpu", byKubernetes) })

	t.Run("a busy service squeezes batch work", s.squeeze)

	t.Run("an upgrade replaces the pods node after node", func(t *testing.T) {
		away := s.watchPlugins(t)
		s.helm(t, values("{enabled: true, resources: katalyst}", "cri"), "upgrade", "sluice", "CHART", "--wait", "--timeout", "3m")
		if n := away(); n != 1 {
			t.Errorf("%d nodes were without Sluice at once, want 1", n)
		}
		s.awaitOffer(t, "resource.katalyst.kubewharf.io/reclaimed_millicpu")
		s.lack(t, "kubernetes.io/")
		stay(t)
	})
	t.Run("a pod written for Katalyst buys what the nodes sell", func(t *testing.T) {
		manifest := katalyst()
		s.granted(t, s.start(t, manifest)["katalyst"])
		s.Delete(t, manifest)
	})
	t.Run("a Job does not count a stop through the runtime", func(t *testing.T) {
		s.eviction(t, "resource.katalyst.kubewharf.io/reclaimed_millicpu", byCRI)
	})
	t.Run("a rollback brings the first configuration back", func(t *testing.T) {
		s.helm(t, "", "rollback", "sluice", "1", "--wait", "--timeout", "3m")
		s.awaitOffer(t, "kubernetes.io/batch-cpu")
		s.lack(t, "resource.katalyst")
		stay(t)
	})
	t.Run("an upgrade without sluice-kube removes what it has published", func(t *testing.T) {
		s.helm(t, values("{enabled: false}", "cri"), "upgrade", "sluice", "CHART", "--wait", "--timeout", "3m")
		none(t, s.Leftovers(t))
		stay(t)
	})
	t.Run("the uninstallation leaves nothing", func(t *testing.T) {
		s.helm(t, "", "uninstall", "sluice")
		s.awaitDaemonSet(t, namespace, "sluice-uninstall")
		if after := s.all(t, pods); !maps.Equal(after, kubelets) {
			t.Errorf("the settings are %+v, want the kubelet's own %+v", after, kubelets)
		}
		if quota := s.bestEffort(t); quota != "-1" && quota != "max" {
			t.Errorf("BestEffort pods keep the quota %s", quota)
		}
		s.deleteNamespace(t)
		none(t, slices.Concat(s.Leftovers(t), s.n1.Leftovers(t), s.n2.Leftovers(t)))
	})
}

func (s session) helm(t *testing.T, values string, args ...string) {
	t.Helper()
	if err := s.Helm(t, namespace, values, args...); err != nil {
		t.Fatalf("%v\n%s", err, s.trouble(t, namespace))
	}
}

// plugins are the pods of the plugin.
const plugins = "app.kubernetes.io/component=node"

// sluice runs a command of sluice on the node.
func (s session) sluice(t *testing.T, node string, args ...string) (string, error) {
	t.Helper()
	pods, err := s.Client(t).CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: plugins, FieldSelector: "spec.nodeName=" + node})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("node %s has %d pods of the plugin, want 1: %v", node, len(pods.Items), err)
	}
	return s.Exec(t, &pods.Items[0], "sluice", append([]string{"/usr/bin/sluice"}, args...)...)
}

// container returns what Sluice says of a pod's container main.
func (s session) container(t *testing.T, pod *corev1.Pod) *status.Container {
	t.Helper()
	out, err := s.sluice(t, pod.Spec.NodeName, "status", "-o", "json")
	var now status.Status
	if err == nil {
		err = json.Unmarshal([]byte(out), &now)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range now.Containers {
		if now.Containers[i].PodUID == string(pod.UID) {
			return &now.Containers[i]
		}
	}
	t.Fatalf("the status of node %s has no container of pod %s", pod.Spec.NodeName, pod.Name)
	return nil
}

// awaitOffer waits until both nodes sell enough of the resource. A node that begins to sell while the machine is busy
// sells little, and publishes a rise only after five minutes. A restart of sluice-kube publishes it at once.
func (s session) awaitOffer(t *testing.T, resource corev1.ResourceName) {
	t.Helper()
	const patience = 15 * time.Second
	began := time.Now()
	restarted := began
	bed.Await(t, "both nodes to sell "+string(resource), func() error {
		var errs []error
		for _, name := range []string{"n1", "n2"} {
			node, err := s.Client(t).CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			has := node.Status.Allocatable[resource]
			if open := condition(node, "SluiceBatchOpen"); has.Value() < 3*bought || open == nil || open.Status != corev1.ConditionTrue {
				errs = append(errs, fmt.Errorf("%s has %s: %+v", name, has.String(), open))
			}
		}
		if len(errs) > 0 && time.Since(restarted) > patience {
			restarted = time.Now()
			errs = append(errs, s.Client(t).CoreV1().Pods(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=kube"}))
		}
		return errors.Join(errs...)
	})
	t.Logf("both nodes sell %s after another %s", resource, time.Since(began).Round(time.Millisecond))
}

// condition returns a condition of the node; nil if it has none of that type.
func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// lack checks that no node has a resource whose name has the prefix.
func (s session) lack(t *testing.T, prefix string) {
	t.Helper()
	nodes, err := s.Client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		for _, list := range []corev1.ResourceList{nodes.Items[i].Status.Capacity, nodes.Items[i].Status.Allocatable} {
			for name, amount := range list {
				if strings.HasPrefix(string(name), prefix) {
					t.Errorf("node %s has %s of %s", nodes.Items[i].Name, amount.String(), name)
				}
			}
		}
	}
}

// watchPlugins follows the plugin's pods until the returned function is called, which tells for how many nodes none was
// ready at once.
func (s session) watchPlugins(t *testing.T) (most func() int) {
	t.Helper()
	client := s.Client(t)
	ctx, stop := context.WithCancel(t.Context())
	away := make(chan int)
	go func() {
		most := 0
		for ctx.Err() == nil {
			pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: plugins})
			if err == nil {
				ready := 0
				for i := range pods.Items {
					if bed.Ready(&pods.Items[i]) && pods.Items[i].DeletionTimestamp == nil {
						ready++
					}
				}
				most = max(most, 2-ready)
			}
			time.Sleep(50 * time.Millisecond)
		}
		away <- most
	}()
	return func() int { stop(); return <-away }
}

func (s session) deleteNamespace(t *testing.T) {
	t.Helper()
	if err := s.Client(t).CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	bed.Await(t, "the namespace to go", func() error {
		_, err := s.Client(t).CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		return bed.Gone(err)
	})
}

func none(t *testing.T, left []string) {
	t.Helper()
	for _, name := range left {
		t.Errorf("%s is left", name)
	}
}
