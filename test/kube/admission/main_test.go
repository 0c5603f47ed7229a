// Package admission tests the policies of configs/kubernetes/policies on a real API server.
package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/pkg/workload/convert"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

func TestMain(m *testing.M) { os.Exit(bed.Main(m)) }

const root = "../../.."

// policy reads a file of the policies. Before 1.36 the API that mutates is beta.
func policy(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "configs/kubernetes/policies", name))
	if err != nil {
		t.Fatal(err)
	}
	if beta() && (name == "batch-pods.yaml" || name == "pins.yaml") {
		return strings.ReplaceAll(string(text), "admissionregistration.k8s.io/v1\n", "admissionregistration.k8s.io/v1beta1\n")
	}
	return string(text)
}

func beta() bool { return bed.Version() == "1.34" || bed.Version() == "1.35" }

// start starts an API server with the namespaces "sluice" and "etl", of which the latter is labelled for batch.
func start(t *testing.T) *bed.Cluster {
	t.Helper()
	var flags []string
	if beta() {
		flags = []string{"--feature-gates=MutatingAdmissionPolicy=true", "--runtime-config=admissionregistration.k8s.io/v1beta1=true"}
	}
	cluster := bed.API(t, flags...)
	cluster.Namespace(t, "sluice", nil)
	cluster.Namespace(t, "etl", map[string]string{"sluice.dev/batch": "true"})
	return cluster
}

// parameters are the parameters as shipped, but for what depends on the names of the batch resources.
func parameters(t *testing.T, target convert.Target) string {
	t.Helper()
	text := policy(t, "parameters.yaml")
	text = strings.Replace(text, "\n  cpu: batch.sluice.dev/cpu\n", "\n  cpu: "+target.CPU+"\n", 1)
	text = strings.Replace(text, "\n  keptPriorityClasses: sluice-batch-high sluice-mid sluice-free\n", "\n  keptPriorityClasses: "+strings.Join(target.KeptPriorityClasses, " ")+"\n", 1)
	return strings.Replace(text, "\n  memory: batch.sluice.dev/memory\n", "\n  memory: "+target.Memory+"\n", 1)
}

// pod makes a pod of one container with these resources.
func pod(namespace, name string, resources corev1.ResourceRequirements) *corev1.Pod {
	automount := false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &automount,
			Containers:                   []corev1.Container{{Name: "main", Image: "x", Resources: resources}},
		},
	}
}

// create creates a pod; a dry run goes through admission too, and leaves nothing.
func create(t *testing.T, client kubernetes.Interface, p *corev1.Pod, dryRun bool) (*corev1.Pod, error) {
	t.Helper()
	options := metav1.CreateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, options)
}

// install applies the batch policy and waits until it acts, with the resources of a scheme.
func install(t *testing.T, cluster *bed.Cluster, scheme string) {
	t.Helper()
	target := convert.For(scheme)
	cluster.Apply(t, policy(t, "priorities.yaml")+"---\n"+parameters(t, target)+"---\n"+policy(t, "batch-pods.yaml"))
	client := cluster.Client(t)
	bed.Await(t, "the batch policy acts with "+target.CPU, func() error {
		got, err := create(t, client, pod("etl", "probe", limits("cpu", "1", "memory", "1Gi")), true)
		if err != nil {
			return err
		}
		requests := got.Spec.Containers[0].Resources.Requests
		if _, ok := requests[corev1.ResourceName(target.CPU)]; !ok {
			return fmt.Errorf("it requests %v", requests)
		}
		return nil
	})
}
