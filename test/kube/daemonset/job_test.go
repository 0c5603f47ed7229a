package daemonset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/sluice-dev/sluice/test/docs/markdown"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

// documentedJob is the Job of docs/batch.md.
func documentedJob(t *testing.T) *batchv1.Job {
	t.Helper()
	pages, err := markdown.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	var job batchv1.Job
	found := 0
	for _, page := range pages {
		for _, block := range page.Blocks {
			if page.Name != "docs/batch.md" || !strings.Contains(block.Text, "podFailurePolicy:") {
				continue
			}
			found++
			if err := yaml.Unmarshal([]byte(block.Text), &job); err != nil {
				t.Fatalf("%s, line %d: %v", page.Name, block.Line, err)
			}
		}
	}
	if found != 1 {
		t.Fatalf("docs/batch.md has %d Jobs with a podFailurePolicy, want 1", found)
	}
	return &job
}

// byKubernetes is an eviction through the API server.
func byKubernetes(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if !isDisrupted(p) {
		t.Errorf("the evicted pod lacks the condition DisruptionTarget: %+v", p.Status.Conditions)
	}
}

func isDisrupted(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// byCRI is a stop through the container runtime.
func byCRI(t *testing.T, p *corev1.Pod) {
	t.Helper()
	ended := p.Status.ContainerStatuses[0].State.Terminated
	if p.Status.Phase != corev1.PodFailed || ended == nil || ended.ExitCode != 137 || ended.Reason != "Error" || isDisrupted(p) {
		t.Errorf("the stopped pod is %s: %+v, %+v", p.Status.Phase, ended, p.Status.Conditions)
	}
}

// eviction evicts the pod of the documented Job, which may not fail once, from the node that it prefers. Its successor runs
// on the other one.
func (s session) eviction(t *testing.T, cpu corev1.ResourceName, check func(*testing.T, *corev1.Pod)) {
	none, second := int32(0), int64(1)
	job := documentedJob(t)
	job.Spec.BackoffLimit = &none
	spec := &job.Spec.Template.Spec
	spec.TerminationGracePeriodSeconds = &second
	spec.Containers[0].Image, spec.Containers[0].Command = bed.Image, []string{"sh", "-c", "while :; do :; done"}
	amounts := corev1.ResourceList{cpu: *resource.NewQuantity(bought, resource.DecimalSI)}
	spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts, Limits: amounts}
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight: 100,
		Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"n2"},
		}}},
	}}}}
	jobs := s.Client(t).BatchV1().Jobs("default")
	if _, err := jobs.Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer s.deleteJob(t, job.Name)
	first := s.jobPod(t, job.Name, "n2")
	began := time.Now()
	defer func() {
		if out, err := s.sluice(t, "n2", "batch", "auto"); err != nil {
			t.Errorf("sluice batch auto: %v: %s", err, out)
		}
	}()
	if out, err := s.sluice(t, "n2", "batch", "off", "--evict"); err != nil {
		t.Errorf("sluice batch off --evict: %v: %s", err, out)
	}
	last := first
	bed.Await(t, "the pod to end", func() error {
		pod, err := s.Client(t).CoreV1().Pods("default").Get(t.Context(), first.Name, metav1.GetOptions{})
		if bed.Gone(err) == nil {
			return nil
		}
		if err != nil {
			return err
		}
		if last = pod; pod.Status.Phase != corev1.PodFailed {
			return errors.New(bed.Trouble(pod))
		}
		return nil
	})
	t.Logf("%s after the order the pod was %s: %s", time.Since(began).Round(time.Millisecond), last.Status.Phase, bed.Trouble(last))
	check(t, last)
	s.jobPod(t, job.Name, "n1")
	t.Logf("its successor ran on the other node %s after the order", time.Since(began).Round(time.Millisecond))
	now, err := jobs.Get(t.Context(), job.Name, metav1.GetOptions{})
	if err != nil || now.Status.Failed != 0 || now.Status.Active != 1 {
		t.Errorf("the Job has counted %d failures, and has %d pods: %v", now.Status.Failed, now.Status.Active, err)
	}
}

func (s session) deleteJob(t *testing.T, name string) {
	t.Helper()
	jobs := s.Client(t).BatchV1().Jobs("default")
	foreground := metav1.DeletePropagationForeground
	if err := jobs.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Error(err)
	}
	bed.Await(t, "the Job to go", func() error {
		_, err := jobs.Get(t.Context(), name, metav1.GetOptions{})
		return bed.Gone(err)
	})
}

// jobPod waits until a pod of the Job runs on the node.
func (s session) jobPod(t *testing.T, job, node string) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	bed.Await(t, "a pod of Job "+job+" to run on "+node, func() error {
		pods, err := s.Client(t).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
		if err != nil {
			return err
		}
		var said []string
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.Spec.NodeName == node && bed.Ready(p) && p.DeletionTimestamp == nil {
				found = p
				return nil
			}
			said = append(said, fmt.Sprintf("%s on %q: %s", p.Name, p.Spec.NodeName, bed.Trouble(p)))
		}
		return fmt.Errorf("the pods are %q", said)
	})
	return found
}
