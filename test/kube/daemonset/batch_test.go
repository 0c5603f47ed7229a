package daemonset

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

// onN1 lets the scheduler choose, of one node.
const onN1 = "nodeSelector: {kubernetes.io/hostname: n1}"

// bought is what the batch pods buy, in thousandths of a CPU: little, since a busy machine offers little.
const bought = 30

// squeeze runs a service that takes all CPUs beside batch work. What the nodes sell falls then, and rises again after
// minutes.
func (s session) squeeze(t *testing.T) {
	const floor = 20000 // a fifth of a CPU, as microseconds of CPU time in 100 ms
	before := ""
	for wait := 10; wait > 0 && (before == "" || before == strconv.Itoa(floor)); wait-- {
		time.Sleep(time.Second) // a machine that is busy with others' work keeps batch work at its floor
		before = s.bestEffort(t)
	}
	busy := `
apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  nodeName: n1
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "` + bed.Image + `", command: [sh, -c, "yes >/dev/null & yes >/dev/null"], resources: {requests: {cpu: 500m}}}
`
	began := time.Now()
	s.Apply(t, busy)
	bed.Await(t, "batch work to be squeezed to its floor", func() error {
		if quota := s.bestEffort(t); quota != strconv.Itoa(floor) {
			return fmt.Errorf("the quota is %s", quota)
		}
		return nil
	})
	t.Logf("with a service that takes all, batch work's quota fell from %s to %d µs in 100 ms, %s after the pod was applied", before, floor, time.Since(began).Round(time.Millisecond))
	s.Delete(t, busy)
}

// katalyst is a batch pod as Katalyst's webhook leaves it.
func katalyst() string {
	both := fmt.Sprintf(`{resource.katalyst.kubewharf.io/reclaimed_millicpu: %d, resource.katalyst.kubewharf.io/reclaimed_memory: 64Mi}`, bought)
	return pod("katalyst", `annotations: {katalyst.kubewharf.io/qos_level: reclaimed_cores}`, onN1, "{requests: "+both+", limits: "+both+"}", "sleep infinity")
}

// granted checks that the pod is of class BE and has what it bought, with 64 MiB.
func (s session) granted(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	c := s.container(t, pod)
	if c.Class != workload.BE || c.Requested != bought || c.RequestedMemoryBytes != 64<<20 {
		t.Errorf("pod %s is of class %s with a grant of %d thousandths of a CPU and %d bytes, want BE, %d and 64 MiB: %+v", pod.Name, c.Class, c.Requested, c.RequestedMemoryBytes, bought, c.Keys)
	}
	kernel := s.all(t, map[string]*corev1.Pod{"it": pod})["it"]
	if kernel.quota != strconv.Itoa(bought*100) || kernel.memory != strconv.Itoa(64<<20) {
		t.Errorf("in the kernel pod %s has %+v, want a quota of %d µs and 64 MiB", pod.Name, kernel, bought*100)
	}
}

// forged tries to get more than was bought.
func (s session) forged(t *testing.T) {
	offered := s.allocatable(t, "n1", "kubernetes.io/batch-memory")
	t.Run("an annotation", func(t *testing.T) {
		both := fmt.Sprintf(`{requests: {kubernetes.io/batch-cpu: %d, kubernetes.io/batch-memory: 64Mi}, limits: {kubernetes.io/batch-cpu: %[1]d, kubernetes.io/batch-memory: 64Mi}}`, bought)
		manifest := pod("forged", `annotations: {class.sluice.dev: BE, grant.sluice.dev: '{"main":{"cpu":"64","memory":"1Ti"}}'}`, onN1, both, "sleep infinity")
		p := s.start(t, manifest)["forged"]
		s.granted(t, p)
		s.awaitEvent(t, p, "GrantCut", "the record counts")
		s.Delete(t, manifest)
	})
	for name, amount := range map[string]string{
		"an amount that the node does not sell, bound by hand": "64Ti",
		"an amount that no machine has, bound by hand":         "9E",
	} {
		t.Run(name, func(t *testing.T) {
			both := fmt.Sprintf("{kubernetes.io/batch-memory: %s}", amount)
			manifest := pod("greedy", `annotations: {class.sluice.dev: BE}`, "nodeName: n1", "{requests: "+both+", limits: "+both+"}", "sleep infinity")
			s.Apply(t, manifest)
			var p *corev1.Pod
			bed.Await(t, "the kubelet to refuse the pod", func() error {
				var err error
				p, err = s.Client(t).CoreV1().Pods("default").Get(t.Context(), "greedy", metav1.GetOptions{})
				if err == nil && p.Status.Phase != corev1.PodFailed {
					err = fmt.Errorf("its phase is %s", p.Status.Phase)
				}
				return err
			})
			t.Logf("the pod failed: %s %s", p.Status.Reason, p.Status.Message)
			s.awaitEvent(t, p, "OutOfkubernetes.io/batch-memory", "")
			if now := s.allocatable(t, "n1", "kubernetes.io/batch-memory"); now > offered*11/10 {
				t.Errorf("the node sells %d bytes, and %d before that", now, offered)
			}
			s.stop(t, map[string]*corev1.Pod{"greedy": p})
		})
	}
}

func (s session) allocatable(t *testing.T, node string, resource corev1.ResourceName) int64 {
	t.Helper()
	n, err := s.Client(t).CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	amount := n.Status.Allocatable[resource]
	return amount.Value()
}

// awaitEvent waits for an event of the pod.
func (s session) awaitEvent(t *testing.T, pod *corev1.Pod, reason, says string) {
	t.Helper()
	bed.Await(t, "event "+reason+" of pod "+pod.Name, func() error {
		events, err := s.Client(t).CoreV1().Events(pod.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
		if err != nil {
			return err
		}
		var reasons []string
		for i := range events.Items {
			e := &events.Items[i]
			if e.Reason == reason && strings.Contains(e.Message, says) {
				t.Logf("event %s of %s: %s", e.Reason, e.Source.Component, e.Message)
				return nil
			}
			reasons = append(reasons, e.Reason+": "+e.Message)
		}
		return fmt.Errorf("the events are %q", reasons)
	})
}
