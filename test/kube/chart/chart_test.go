package chart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

const (
	root  = "../../../"
	nodes = 3
)

func TestMain(m *testing.M) { os.Exit(bed.Main(m)) }

// stand is a control plane with nodes that are objects alone, and the chart.
type stand struct {
	*testing.T
	client   kubernetes.Interface
	cluster  *bed.Cluster
	kubelets *kubelets
}

func newStand(t *testing.T) *stand {
	t.Helper()
	c := bed.API(t)
	c.StartControllers(t)
	s := &stand{T: t, cluster: c, client: c.Client(t)}
	for _, name := range nodeNames() {
		c.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %s, labels: {kubernetes.io/os: linux, kubernetes.io/hostname: %[1]s}}
`, name))
		status := `{"status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9"}, "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}]}}`
		if _, err := s.client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	c.Namespace(t, namespace, map[string]string{"pod-security.kubernetes.io/enforce": "privileged"})
	s.kubelets = &kubelets{client: s.client, withdraw: s.withdraw}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.kubelets.run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return s
}

func nodeNames() []string {
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	return names
}

// withdraw runs the program of the Job's pod, with the pod's rights.
func (s *stand) withdraw(p *corev1.Pod) error {
	file := s.cluster.Kubeconfig(s.T, p.Name, s.cluster.PodToken(s.T, p))
	main := p.Spec.Containers[0]
	args := append(slices.Clone(main.Args), "--kubeconfig", file)
	out, err := exec.CommandContext(s.Context(), root+"bin/"+filepath.Base(main.Command[0]), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%q on %s: %w: %s", args, p.Spec.NodeName, err, out)
	}
	return nil
}

func (s *stand) helm(values string, args ...string) error {
	s.Helper()
	return s.cluster.Helm(s.T, namespace, values, args...)
}

func (s *stand) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// waits waits until each node has exactly the ready pod of the DaemonSet that it should have,
// by the nodes' order: its label component.
func (s *stand) waits(what string, want ...string) {
	s.Helper()
	bed.Await(s.T, what, func() error {
		pods, err := s.client.CoreV1().Pods(namespace).List(s.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		got := make([]string, nodes)
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.Spec.NodeName == "" || !bed.Ready(p) || p.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s is not ready", p.Name)
			}
			var n int
			if _, err := fmt.Sscanf(p.Spec.NodeName, "n%d", &n); err != nil {
				return err
			}
			got[n] += p.Labels["app.kubernetes.io/component"]
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("the nodes have the pods %q, want %q", got, want)
		}
		return nil
	})
}

// reset begins to count nodes without a ready plugin. Pods with another ConfigMap than the good
// one, if there is one, do not get ready.
func (s *stand) reset(good string) {
	s.kubelets.mu.Lock()
	defer s.kubelets.mu.Unlock()
	s.kubelets.unready, s.kubelets.good = 0, good
}

func (s *stand) unready() int {
	s.kubelets.mu.Lock()
	defer s.kubelets.mu.Unlock()
	if s.kubelets.failed != nil {
		s.Error(s.kubelets.failed)
	}
	return s.kubelets.unready
}

// config is the configuration of the DaemonSet's pods.
func (s *stand) config(set string) string {
	s.Helper()
	d, err := s.client.AppsV1().DaemonSets(namespace).Get(s.Context(), set, metav1.GetOptions{})
	s.must(err)
	i := slices.IndexFunc(d.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil })
	c, err := s.client.CoreV1().ConfigMaps(namespace).Get(s.Context(), d.Spec.Template.Spec.Volumes[i].ConfigMap.Name, metav1.GetOptions{})
	s.must(err)
	return c.Data["sluice.yaml"]
}

// TestLifecycle installs the chart, changes its configuration, moves one node to another
// group, rolls back, and uninstalls.
func TestLifecycle(t *testing.T) {
	s := newStand(t)
	s.must(s.helm("", "install", "sluice", "CHART", "--wait"))
	s.waits("the plugin on each node", "node", "node", "node")

	s.reset("")
	s.must(s.helm("config: 'control: {mode: preview}'", "upgrade", "sluice", "CHART", "--wait"))
	s.waits("the plugin on each node", "node", "node", "node")
	if !strings.Contains(s.config("sluice"), "control: {mode: preview}") {
		t.Error("the pods have the configuration from before the upgrade")
	}
	if n := s.unready(); n != 1 {
		t.Errorf("%d nodes were without Sluice at once during the upgrade, want 1", n)
	}

	const groups = "nodeGroups: [{name: leaving, nodeSelector: {kubernetes.io/hostname: n1}, mode: restore}]"
	s.must(s.helm(groups, "upgrade", "sluice", "CHART", "--wait"))
	s.waits("one node to be given back", "node", "node-leaving", "node")

	s.must(s.helm("", "rollback", "sluice", "2", "--wait"))
	s.waits("the plugin on each node", "node", "node", "node")
	if !strings.Contains(s.config("sluice"), "control: {mode: preview}") {
		t.Error("the rollback did not bring the configuration of revision 2 back")
	}

	s.must(s.helm("", "uninstall", "sluice"))
	s.waits("each node to be given back", "uninstall", "uninstall", "uninstall")
	s.leavesNothing()
}

// leavesNothing checks that the uninstallation leaves what gives the nodes back, and that the
// end of the namespace leaves nothing.
func (s *stand) leavesNothing() {
	s.Helper()
	bed.Await(s.T, "the DaemonSet that gives nodes back to be rolled out, alone", func() error {
		sets, err := s.client.AppsV1().DaemonSets(namespace).List(s.Context(), metav1.ListOptions{})
		if err == nil && (len(sets.Items) != 1 || !bed.RolledOut(&sets.Items[0])) {
			err = bed.ErrNotYet
		}
		return err
	})
	maps, err := s.client.CoreV1().ConfigMaps(namespace).List(s.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=sluice"})
	s.must(err)
	if len(maps.Items) > 0 {
		s.Errorf("%d ConfigMaps are left, the first %s", len(maps.Items), maps.Items[0].Name)
	}
	for _, name := range s.cluster.Unscoped(s.T, "sluice") {
		s.Errorf("%s is left", name)
	}
	s.must(s.client.CoreV1().Namespaces().Delete(s.Context(), namespace, metav1.DeleteOptions{}))
	bed.Await(s.T, "the namespace to go", func() error {
		if _, err := s.client.CoreV1().Namespaces().Get(s.Context(), namespace, metav1.GetOptions{}); err == nil {
			return bed.ErrNotYet
		}
		return nil
	})
}

// TestKube installs all that the chart can install. The token of sluice-kube's pod reaches the
// pod's node, and no other.
func TestKube(t *testing.T) {
	s := newStand(t)
	values := "{kube: {enabled: true, resources: koordinator}, policies: {batch: true, services: true}}"
	if bed.Version() == "1.34" {
		values = strings.Replace(values, "services: true", "services: true, mutatingVersion: v1beta1", 1)
	}
	s.must(s.helm(values, "install", "sluice", "CHART", "--wait"))
	if names := s.cluster.Unscoped(s.T, "sluice"); len(names) < 12 {
		t.Errorf("only these objects are in no namespace: %q", names)
	}
	pods, err := s.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=kube"})
	s.must(err)
	if len(pods.Items) != nodes {
		t.Fatalf("%d pods of sluice-kube, want %d", len(pods.Items), nodes)
	}
	own := pods.Items[0].Spec.NodeName
	agent, err := kubernetes.NewForConfig(s.cluster.PodToken(t, &pods.Items[0]))
	s.must(err)
	patch := []byte(`{"status": {"capacity": {"kubernetes.io/batch-cpu": "1000"}}}`)
	bed.Await(t, "the policy to be in force", func() error {
		_, err := agent.CoreV1().Nodes().Patch(t.Context(), map[bool]string{true: "n1", false: "n0"}[own == "n0"], types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err == nil || !strings.Contains(err.Error(), "may not change node") {
			return fmt.Errorf("a patch of another node is not refused by the policy: %w", errors.Join(err, bed.ErrNotYet))
		}
		return nil
	})
	if _, err := agent.CoreV1().Nodes().Patch(t.Context(), own, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Errorf("the own node: %v", err)
	}
	if _, err := agent.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the agent lists secrets: %v, want forbidden", err)
	}
	if _, err := agent.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the agent lists all ConfigMaps: %v, want forbidden", err)
	}
	if _, err := agent.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=sluice-switch"}); err != nil {
		t.Errorf("the fleet's switch: %v", err)
	}
	s.must(s.helm("", "uninstall", "sluice"))
	s.waits("each node to be given back", "uninstall", "uninstall", "uninstall")
	s.leavesNothing()
}

// A configuration with which a pod does not get ready reaches one node alone, and a rollback
// brings that one back.
func TestABadConfigurationStopsAtOneNode(t *testing.T) {
	s := newStand(t)
	s.must(s.helm("", "install", "sluice", "CHART", "--wait"))
	before := s.config("sluice")
	d, err := s.client.AppsV1().DaemonSets(namespace).Get(t.Context(), "sluice", metav1.GetOptions{})
	s.must(err)
	s.reset(d.Spec.Template.Spec.Volumes[0].ConfigMap.Name)
	if err := s.helm("config: 'contrl: {}'", "upgrade", "sluice", "CHART", "--wait", "--timeout", "10s"); err == nil {
		t.Error("helm upgrade succeeds though a pod does not get ready")
	}
	if n := s.unready(); n != 1 {
		t.Errorf("%d nodes were without Sluice at once, want 1", n)
	}
	s.must(s.helm("", "rollback", "sluice", "1", "--wait"))
	s.waits("the plugin on each node", "node", "node", "node")
	if s.config("sluice") != before {
		t.Error("the rollback did not bring the configuration back")
	}
}
