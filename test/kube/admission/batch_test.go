package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/pkg/workload"
	nodeannotation "github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/pkg/workload/grants"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

const batchCPU = "batch.sluice.dev/cpu"

// injector is another policy, as of a service mesh: it adds a container after the batch policy has run.
const injector = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: zz-mesh}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  matchConditions:
  - {name: once, expression: "!object.spec.containers.exists(c, c.name == 'mesh')"}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [JSONPatch{op: 'add', path: '/spec/containers/-', value: Object.spec.containers{name: 'mesh', image: 'x',
          resources: Object.spec.containers.resources{requests: {'cpu': '100m', 'memory': '64Mi'}, limits: {'memory': '128Mi'}}}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: zz-mesh}
spec: {policyName: zz-mesh}
`

// TestAnotherPolicyAddsAContainer: the batch policy runs again, and the grant has both containers.
func TestAnotherPolicyAddsAContainer(t *testing.T) {
	cluster := start(t)
	client := cluster.Client(t)
	install(t, cluster, "sluice")
	mesh := injector
	if beta() {
		mesh = strings.ReplaceAll(mesh, "k8s.io/v1\n", "k8s.io/v1beta1\n")
	}
	cluster.Apply(t, mesh)
	var got *corev1.Pod
	bed.Await(t, "a container is added", func() (err error) {
		got, err = create(t, client, pod("etl", "p", limits("cpu", "1", "memory", "1Gi")), true)
		if err == nil && len(got.Spec.Containers) < 2 {
			err = bed.ErrNotYet
		}
		return err
	})
	const want = `{"main":{"cpu":"1000m","memory":"1073741824"},"mesh":{"cpu":"100m","memory":"134217728"}}`
	if got.Annotations["grant.sluice.dev"] != want {
		t.Errorf("the grant is %s, want %s", got.Annotations["grant.sluice.dev"], want)
	}
	for _, c := range got.Spec.Containers {
		if _, ok := c.Resources.Requests[corev1.ResourceCPU]; ok || len(c.Resources.Requests) != 2 {
			t.Errorf("%s requests %v", c.Name, c.Resources.Requests)
		}
	}
}

// TestMissingParameters: without the ConfigMap, batch pods of labelled namespaces are refused, and all others created
// as they are.
func TestMissingParameters(t *testing.T) {
	cluster := start(t)
	client := cluster.Client(t)
	install(t, cluster, "sluice")
	if err := client.CoreV1().ConfigMaps("sluice").Delete(t.Context(), "sluice-admission", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitRefusal(t, client)
	be := pod("default", "p", limits("cpu", "1", "memory", "1Gi"))
	be.Annotations["class.sluice.dev"] = "BE"
	for _, p := range []*corev1.Pod{be, pod("default", "p", limits("cpu", "1", "memory", "1Gi"))} {
		got, err := create(t, client, p, true)
		if err != nil || got.Spec.Containers[0].Resources.Requests.Cpu().String() != "1" {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// awaitRefusal waits until the batch policy refuses pods of the labelled namespace.
func awaitRefusal(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	bed.Await(t, "pods of the labelled namespace are refused", func() error {
		_, err := create(t, client, pod("etl", "p", limits("cpu", "1", "memory", "1Gi")), true)
		switch {
		case err == nil:
			return bed.ErrNotYet
		case !strings.Contains(err.Error(), "sluice-batch-namespaces"):
			return err
		}
		return nil
	})
}

// TestBrokenParameters: a ConfigMap without its keys stops batch pods alone.
func TestBrokenParameters(t *testing.T) {
	cluster := start(t)
	client := cluster.Client(t)
	install(t, cluster, "sluice")
	broken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "sluice-admission", Namespace: "sluice"}}
	if _, err := client.CoreV1().ConfigMaps("sluice").Update(t.Context(), broken, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitRefusal(t, client)
	service := pod("etl", "p", limits("cpu", "1", "memory", "1Gi"))
	service.Annotations["class.sluice.dev"] = "LS"
	for _, p := range []*corev1.Pod{service, pod("default", "p", limits("cpu", "1", "memory", "1Gi"))} {
		if _, err := create(t, client, p, true); err != nil {
			t.Errorf("a service in %s: %v", p.Namespace, err)
		}
	}
}

// TestDebugContainer: a batch pod takes an ephemeral container, which requests nothing, and stays as it is.
func TestDebugContainer(t *testing.T) {
	cluster := start(t)
	client := cluster.Client(t)
	install(t, cluster, "sluice")
	cluster.Apply(t, policy(t, "annotations.yaml")+"---\n"+policy(t, "pinned.yaml"))
	made, err := create(t, client, pod("etl", "p", limits("cpu", "1", "memory", "1Gi")), false)
	if err != nil {
		t.Fatal(err)
	}
	changed := made.DeepCopy()
	changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "x"}}}
	got, err := client.CoreV1().Pods("etl").UpdateEphemeralContainers(t.Context(), "p", changed, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Spec.EphemeralContainers) != 1 || got.Annotations["grant.sluice.dev"] != made.Annotations["grant.sluice.dev"] {
		t.Errorf("got %s", show(got))
	}
}

// TestCost prints what admission costs the API server: CPU time per pod, without the policies and with them. The bound
// is for a busy machine; it is there for a policy that costs ten times as much.
func TestCost(t *testing.T) {
	cluster := start(t)
	client := cluster.Client(t)
	large := pod("etl", "p", limits("cpu", "1", "memory", "1Gi"))
	for i := range 15 {
		c := large.Spec.Containers[0]
		c.Name = fmt.Sprintf("c%d", i)
		large.Spec.Containers = append(large.Spec.Containers, c)
	}
	measure := func(when string) {
		for _, what := range []struct {
			name string
			pod  *corev1.Pod
			most time.Duration
		}{
			{"a service", pod("default", "p", limits("cpu", "1", "memory", "1Gi")), 40 * time.Millisecond},
			{"a batch pod", pod("etl", "p", limits("cpu", "1", "memory", "1Gi")), 60 * time.Millisecond},
			{"a batch pod of 16 containers", large, 200 * time.Millisecond},
		} {
			const rounds = 100
			before := cpuTime(t, cluster)
			for range rounds {
				if _, err := create(t, client, what.pod, true); err != nil {
					t.Fatal(err)
				}
			}
			used := (cpuTime(t, cluster) - before) / rounds
			t.Logf("%s, %s: %v of CPU time", when, what.name, used)
			if used > what.most {
				t.Errorf("%s, %s costs %v of CPU time, and at most %v were expected", when, what.name, used, what.most)
			}
		}
	}
	measure("without policies")
	install(t, cluster, "sluice")
	cluster.Apply(t, policy(t, "annotations.yaml")+"---\n"+policy(t, "pinned.yaml"))
	measure("with policies")
}

// TestQuota: a quota of the batch resources counts the pods that the policy has made.
func TestQuota(t *testing.T) {
	cluster := start(t)
	client := cluster.Client(t)
	install(t, cluster, "sluice")
	hard := corev1.ResourceList{"requests." + batchCPU: resource.MustParse("1500")}
	quota, err := client.CoreV1().ResourceQuotas("etl").Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "batch"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// No controller manager runs here, whose part this is.
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{"requests." + batchCPU: resource.MustParse("0")}}
	if _, err := client.CoreV1().ResourceQuotas("etl").UpdateStatus(t.Context(), quota, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	bed.Await(t, "the quota refuses", func() error {
		_, err := create(t, client, pod("etl", "p", limits("cpu", "2", "memory", "1Gi")), true)
		switch {
		case err == nil:
			return bed.ErrNotYet
		case !strings.Contains(err.Error(), "requested: requests.batch.sluice.dev/cpu=2k"):
			return err
		}
		return nil
	})
	if _, err := create(t, client, pod("etl", "p", limits("cpu", "1", "memory", "1Gi")), true); err != nil {
		t.Errorf("a pod within the quota: %v", err)
	}
}

// TestControllersMakeBatchPods: the pods of workloads that name nothing of Sluice, in a labelled namespace.
func TestControllersMakeBatchPods(t *testing.T) {
	cluster := start(t)
	client := cluster.Client(t)
	install(t, cluster, "sluice")
	cluster.StartControllers(t)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "w"}}, Spec: pod("etl", "", limits("cpu", "1", "memory", "1Gi")).Spec}
	replicas := int32(2)
	_, err := client.AppsV1().Deployments("etl").Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "w"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	template.Labels = nil
	job := batchv1.JobSpec{Parallelism: &replicas, Completions: &replicas, Template: template}
	if _, err := client.BatchV1().Jobs("etl").Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}, Spec: job}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bed.Await(t, "four batch pods are there", func() error {
		pods, err := client.CoreV1().Pods("etl").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			cpu := p.Spec.Containers[0].Resources.Requests[batchCPU]
			if p.Annotations["class.sluice.dev"] != "BE" || cpu.Value() != 1000 || p.Spec.PriorityClassName != "sluice-batch" || *p.Spec.Priority != -1000 {
				t.Fatalf("%s is no batch pod: %s", p.Name, show(&p))
			}
		}
		if len(pods.Items) != 4 {
			return fmt.Errorf("%d pods are there", len(pods.Items))
		}
		return nil
	})
}

// TestForgedGrants: what a pod writes itself is replaced, cannot be changed later, and the node grants no more than
// the kubelet did.
func TestForgedGrants(t *testing.T) {
	cluster := start(t)
	client := cluster.Client(t)
	install(t, cluster, "sluice")
	cluster.Apply(t, policy(t, "annotations.yaml"))
	p := pod("etl", "p", limits("cpu", "1", "memory", "1Gi"))
	const forged = `{"main":{"cpu":"64","memory":"1Ti"}}`
	p.Annotations = map[string]string{
		"grant.sluice.dev": forged, "grant.sluice.dev/pod": forged, "grant.sluice.dev/container.main": forged,
		"node.koordinator.sh/extended-resource-spec": `{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"64000"},"limits":{"kubernetes.io/batch-memory":"1Ti"}}}}`,
	}
	made, err := create(t, client, p, false)
	if err != nil {
		t.Fatal(err)
	}
	changed := made.DeepCopy()
	changed.Annotations["grant.sluice.dev"] = forged
	bed.Await(t, "the grant cannot be changed", func() error {
		_, err := client.CoreV1().Pods("etl").Update(t.Context(), changed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case err == nil:
			return bed.ErrNotYet
		case !strings.Contains(err.Error(), "annotation grant.sluice.dev: may not be changed"):
			return err
		}
		return nil
	})
	sandbox := &workload.Pod{UID: string(made.UID), Namespace: "etl", Name: "p", Annotations: made.Annotations, CgroupParent: "/kubepods/besteffort/pod" + string(made.UID)}
	rules := nodeannotation.Rules{}
	rules.Dialects.Koordinator = true
	requests := grants.Requests{}
	for name, amount := range made.Spec.Containers[0].Resources.Requests {
		requests[string(name)] = amount.String()
	}
	record, err := grants.Admitted(string(made.UID), map[string]grants.Requests{"main": requests}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, facts := range map[string]nodeannotation.Facts{
		"without the kubelet's record": {},
		"with it":                      {Granted: record.Of(string(made.UID), "main")},
	} {
		got, warnings, err := rules.Request(facts, sandbox, &workload.Container{Name: "main"})
		b := got.Batch
		if err != nil || got.Class != workload.BE || b.CPURequest.Value != 1000 || b.MemoryRequest.Value != 1<<30 || b.MemoryLimit.Value != 1<<30 || b.CPULimit.Value > 1000 {
			t.Errorf("%s the node gives %+v: %v, %v", name, b, warnings, err)
		}
	}
}
