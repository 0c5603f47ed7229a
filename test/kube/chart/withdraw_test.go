package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

const offer corev1.ResourceName = "batch.sluice.dev/cpu"

// publish lets each node have what sluice-kube would publish.
func (s *stand) publish() {
	s.Helper()
	force := true
	for _, name := range nodeNames() {
		what := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": %q}, "status": {"capacity": {%q: "1000"}, "allocatable": {%[2]q: "1000"}}}`, name, offer)
		_, err := s.client.CoreV1().Nodes().Patch(s.Context(), name, types.ApplyPatchType, []byte(what), metav1.PatchOptions{FieldManager: "sluice-kube", Force: &force}, "status")
		s.must(err)
	}
}

// publishing is how many nodes have an offer.
func (s *stand) publishing() int {
	s.Helper()
	list, err := s.client.CoreV1().Nodes().List(s.Context(), metav1.ListOptions{})
	s.must(err)
	n := 0
	for i := range list.Items {
		_, capacity := list.Items[i].Status.Capacity[offer]
		_, allocatable := list.Items[i].Status.Allocatable[offer]
		if capacity || allocatable {
			n++
		}
	}
	return n
}

// taint gives each node a taint that keeps pods off, and lets one node die, which has the most room.
func (s *stand) taint(dead string) {
	s.Helper()
	s.kubelets.mu.Lock()
	s.kubelets.dead = dead
	s.kubelets.mu.Unlock()
	ctx, all := s.Context(), s.client.CoreV1().Nodes()
	status := `{"status": {"allocatable": {"cpu": "64", "memory": "64Gi"}, "conditions": [{"type": "Ready", "status": "False", "reason": "Test"}]}}`
	_, err := all.Patch(ctx, dead, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	s.must(err)
	for _, name := range nodeNames() {
		_, err := all.Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"spec": {"taints": [{"key": "dedicated", "value": "test", "effect": "NoSchedule"}]}}`), metav1.PatchOptions{})
		s.must(err)
	}
	bed.Await(s.T, "Kubernetes to see that the node is dead", func() error {
		node, err := all.Get(ctx, dead, metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }) {
			err = bed.ErrNotYet
		}
		return err
	})
}

// What sluice-kube has published goes with the upgrade that turns it off, and with the
// uninstallation also after a rollback to a revision without it. The Job runs on tainted nodes, and
// not on one that does not respond.
func TestWithdrawal(t *testing.T) {
	s := newStand(t)
	release := "sluice-" + strings.Repeat("r", 46) // as long as Helm allows
	s.taint("n0")
	expect := func(when string, published, jobs int) {
		t.Helper()
		if n := s.publishing(); n != published {
			t.Errorf("%s %d nodes publish something, want %d", when, n, published)
		}
		s.kubelets.mu.Lock()
		defer s.kubelets.mu.Unlock()
		if len(s.kubelets.jobs) != jobs || slices.Contains(s.kubelets.jobs, "n0") {
			t.Errorf("%s the Job's pods have run on %q, want %d, and none on n0", when, s.kubelets.jobs, jobs)
		}
		if s.kubelets.failed != nil {
			t.Error(s.kubelets.failed)
		}
	}
	s.must(s.helm("", "install", release, "CHART", "--wait"))
	s.must(s.helm("kube: {enabled: true}", "upgrade", release, "CHART", "--wait"))
	s.publish()
	expect("with sluice-kube", nodes, 0)
	s.must(s.helm("kube: {enabled: false}", "upgrade", release, "CHART", "--wait"))
	expect("after the upgrade that turns sluice-kube off", 0, 1)
	for _, name := range s.cluster.Unscoped(s.T, "sluice") {
		t.Errorf("%s is left after the upgrade that turns sluice-kube off", name)
	}
	s.must(s.helm("kube: {enabled: false}", "upgrade", release, "CHART", "--wait"))
	expect("after another upgrade", 0, 1)

	s.must(s.helm("kube: {enabled: true}", "upgrade", release, "CHART", "--wait"))
	s.publish()
	s.must(s.helm("", "rollback", release, "1", "--wait"))
	s.must(s.helm("", "uninstall", release))
	expect("after the uninstallation", 0, 2)
	for _, name := range s.cluster.Unscoped(s.T, "sluice") {
		t.Errorf("%s is left after the uninstallation", name)
	}
	jobs, err := s.client.BatchV1().Jobs(namespace).List(t.Context(), metav1.ListOptions{})
	s.must(err)
	for i := range jobs.Items {
		t.Errorf("Job %s is left after the uninstallation", jobs.Items[i].Name)
	}
}

// The NodeResourceTopologies go with the upgrade that turns them off, and everything else stays.
func TestTopologyTurnedOff(t *testing.T) {
	s := newStand(t)
	s.cluster.InstallTopologies(t)
	s.must(s.helm("kube: {enabled: true, pins: true, topology: true}", "install", "sluice", "CHART", "--wait"))
	s.publish()
	objects := s.client.Discovery().RESTClient()
	for node, manager := range map[string]string{"n0": "sluice-kube", "n1": "sluice-kube", "n2": "nfd-master"} {
		what := fmt.Sprintf(`{"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": %q}, "zones": []}`, node)
		s.must(objects.Patch(types.ApplyPatchType).AbsPath(bed.TopologiesPath, node).Param("fieldManager", manager).Body([]byte(what)).Do(t.Context()).Error())
	}
	left := func() string {
		t.Helper()
		var names []string
		for _, node := range nodeNames() {
			if objects.Get().AbsPath(bed.TopologiesPath, node).Do(t.Context()).Error() == nil {
				names = append(names, node)
			}
		}
		return strings.Join(names, " ")
	}
	s.must(s.helm("kube: {enabled: true, pins: true, topology: true}", "upgrade", "sluice", "CHART", "--wait"))
	if got := left(); got != "n0 n1 n2" {
		t.Errorf("after an upgrade that changes nothing, the nodes %q have a topology", got)
	}
	s.must(s.helm("kube: {enabled: true, pins: true}", "upgrade", "sluice", "CHART", "--wait"))
	if got := left(); got != "n2" || s.publishing() != nodes {
		t.Errorf("after it was turned off, the nodes %q have a topology, and %d publish an offer", got, s.publishing())
	}
	s.must(s.helm("kube: {enabled: true, pins: true}", "upgrade", "sluice", "CHART", "--wait"))
	s.kubelets.mu.Lock()
	defer s.kubelets.mu.Unlock()
	if len(s.kubelets.jobs) != 1 || s.kubelets.failed != nil {
		t.Errorf("%d Jobs have run, want 1: %v", len(s.kubelets.jobs), s.kubelets.failed)
	}
}
