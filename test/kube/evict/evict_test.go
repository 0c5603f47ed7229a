// Package evict tests evictions that a node orders, on a real API server.
package evict_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/pkg/kube"
	"github.com/sluice-dev/sluice/pkg/runtime/evict"
	"github.com/sluice-dev/sluice/pkg/runtime/kubelink"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/kubesocket"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
	"github.com/sluice-dev/sluice/test/kube/bed"
	"github.com/sluice-dev/sluice/topology"
)

func TestMain(m *testing.M) { os.Exit(bed.Main(m)) }

// source is a plugin without a status.
type source struct{}

func (source) Status() (*status.Status, error)     { return &status.Status{}, nil }
func (source) Machine() (*topology.Machine, error) { return &topology.Machine{}, nil }

// stand is an API server with a node, the plugin's side of the socket, and sluice-kube's.
type stand struct {
	*testing.T
	client     kubernetes.Interface
	link       *kubelink.Link
	socket     string
	kubeconfig string
}

func newStand(t *testing.T, c *bed.Cluster) *stand {
	t.Helper()
	s := &stand{T: t, client: c.Client(t), link: kubelink.New()}
	c.Namespace(t, "batch", nil)
	// RBAC allows the agent everything, so that the admission policies alone bound its evictions to the node.
	s.kubeconfig = c.Kubeconfig(t, "evict", c.Agent(t, "n1", bed.Everything))
	dir, err := os.MkdirTemp("", "evict") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.socket = filepath.Join(dir, "kube.sock")
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() {
		served <- kubesocket.Serve(ctx, kubesocket.Options{Path: s.socket, Log: logrus.New()}, source{}, s.link)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

// deaf is a connection to the plugin over which no answer gets through.
type deaf struct {
	kube.Node
	heard atomic.Int64
}

func (d *deaf) Answer(context.Context, string, evictorder.Answer) error {
	d.heard.Add(1)
	return errors.New("the process is killed before it answers")
}

// run runs sluice-kube's evictor until stop is called.
func (s *stand) run(node kube.Node) (stop func()) {
	s.Helper()
	log := logrus.New()
	log.SetOutput(s.Output())
	client, err := kube.NewClient(s.kubeconfig, "n1", "test")
	if err != nil {
		s.Fatal(err)
	}
	events := client.Events(log)
	pods := client.Pods(nil, func() {})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { events.Run(ctx) })
	running.Go(func() { pods.Run(ctx.Done()) })
	running.Go(func() { kube.NewEvictor(client, node, pods, events, log).Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	s.Cleanup(stop)
	bed.Await(s, "the evictor is connected and knows the pods", func() error {
		if !s.link.IsConnected() || !pods.Synced() {
			return errors.New("not yet")
		}
		return nil
	})
	return stop
}

func (s *stand) kube() kube.Node { return kubesocket.NewClient(s.socket) }

// pod makes a pod that runs and is ready on the node.
func (s *stand) pod(name, app string) *corev1.Pod {
	s.Helper()
	p, err := s.client.CoreV1().Pods("batch").Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	if p, err = s.client.CoreV1().Pods("batch").UpdateStatus(s.Context(), p, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
	return p
}

// remove ends a pod as its kubelet does.
func (s *stand) remove(name string) {
	s.Helper()
	zero := int64(0)
	if err := s.client.CoreV1().Pods("batch").Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil && !apierrors.IsNotFound(err) {
		s.Error(err)
	}
}

// budget makes a disruption budget for an app, which allows that many disruptions.
func (s *stand) budget(name, app string, allowed int32) {
	s.Helper()
	budgets := s.client.PolicyV1().PodDisruptionBudgets("batch")
	one := intstr.FromInt32(1)
	b, err := budgets.Create(s.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: allowed, CurrentHealthy: 1 + allowed, DesiredHealthy: 1, ExpectedPods: 1 + allowed}
	if _, err := budgets.UpdateStatus(s.Context(), b, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// evict orders an eviction as the control loop does.
func (s *stand) evict(pod *corev1.Pod, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return evict.Kubernetes{Orders: s.link}.Evict(ctx, evict.Pod{
		UID: string(pod.UID), Ref: pod.Namespace + "/" + pod.Name, Why: "memory is short", DecidedAt: time.Now(),
	})
}

// isEnding reports whether the pod of that UID is being deleted or gone.
func (s *stand) isEnding(pod *corev1.Pod) bool {
	s.Helper()
	now, err := s.client.CoreV1().Pods(pod.Namespace).Get(context.Background(), pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true
	}
	if err != nil {
		s.Fatal(err)
	}
	return now.UID != pod.UID || now.DeletionTimestamp != nil
}

func TestEvictions(t *testing.T) {
	cluster := bed.API(t)
	s := newStand(t, cluster)
	if err := s.evict(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "p", UID: "u"}}, time.Minute); !errors.Is(err, evictorder.ErrNobody) {
		t.Fatalf("without sluice-kube: %v", err)
	}
	stop := s.run(s.kube())

	t.Run("a pod is evicted, with the reason as an event", func(t *testing.T) {
		pod := s.pod("one", "one")
		began := time.Now()
		err := s.evict(pod, time.Minute)
		took := time.Since(began)
		t.Logf("from the order to the API server's eviction and back: %v (goal: 300 ms)", took.Round(time.Millisecond))
		if err != nil || !s.isEnding(pod) {
			t.Errorf("%v; it is ending: %v", err, s.isEnding(pod))
		}
		bed.Await(t, "the event", func() error {
			events, err := s.client.CoreV1().Events("batch").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
			if err != nil || len(events.Items) != 1 || !strings.Contains(events.Items[0].Message, "memory is short") {
				return fmt.Errorf("%+v, %w", events, err)
			}
			return nil
		})
		s.remove("one")
	})

	t.Run("a budget refuses at once, and the next pod goes", func(t *testing.T) {
		kept, next, two := s.pod("kept", "web"), s.pod("next", "other"), s.pod("two", "two")
		s.budget("web", "web", 0)
		s.budget("two-a", "two", 5)
		s.budget("two-b", "two", 5)
		for _, pod := range []*corev1.Pod{kept, two} {
			began := time.Now()
			err := s.evict(pod, time.Minute)
			if !errors.Is(err, evictorder.ErrRefused) || time.Since(began) > 2*time.Second || s.isEnding(pod) {
				t.Errorf("%s after %v: %v", pod.Name, time.Since(began), err)
			}
		}
		if err := s.evict(next, time.Minute); err != nil || !s.isEnding(next) {
			t.Errorf("the next one: %v", err)
		}
	})

	t.Run("a pod that was replaced is left alone", func(t *testing.T) {
		old := s.pod("set-0", "set")
		s.remove("set-0")
		successor := s.pod("set-0", "set")
		if err := s.evict(old, time.Minute); err != nil {
			t.Errorf("an order for a pod that is gone: %v", err)
		}
		if s.isEnding(successor) {
			t.Error("the successor is evicted")
		}
		s.direct(t, old, successor)
	})

	t.Run("a pod that takes a day to end ends at once", func(t *testing.T) {
		pod, day := s.pod("slow", "slow"), int64(86400)
		if err := s.client.CoreV1().Pods("batch").Delete(t.Context(), "slow", metav1.DeleteOptions{GracePeriodSeconds: &day}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // until sluice-kube knows that it is ending
		if err := s.evict(pod, time.Minute); err != nil {
			t.Error(err)
		}
		now, err := s.client.CoreV1().Pods("batch").Get(t.Context(), "slow", metav1.GetOptions{})
		if err != nil || *now.DeletionGracePeriodSeconds != 1 {
			t.Errorf("its grace period is %d s, want 1: %v", *now.DeletionGracePeriodSeconds, err)
		}
		s.remove("slow")
	})

	t.Run("100 evictions under churn", func(t *testing.T) { s.churn(t) })

	t.Run("sluice-kube is killed between order and answer", func(t *testing.T) {
		stop()
		pod := s.pod("killed", "killed")
		dying := &deaf{Node: s.kube()}
		kill := s.run(dying)
		result := make(chan error, 1)
		go func() { result <- s.evict(pod, time.Minute) }()
		bed.Await(t, "the eviction", func() error {
			if dying.heard.Load() == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		kill()
		stop = s.run(s.kube())
		if err := <-result; err != nil || !s.isEnding(pod) {
			t.Errorf("%v; it is ending: %v", err, s.isEnding(pod))
		}
	})

	t.Run("the API server is away: the order ends by its deadline", func(t *testing.T) {
		pod := s.pod("stays", "stays")
		cluster.APIServer.Kill(t)
		began := time.Now()
		err := s.evict(pod, 2*time.Second)
		if took := time.Since(began); err == nil || took > 3*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		stop()
	})
}

// direct asks the API server itself to evict a pod that was replaced: a watch may be late.
func (s *stand) direct(t *testing.T, old, successor *corev1.Pod) {
	t.Helper()
	uid := old.UID
	err := s.client.PolicyV1().Evictions("batch").Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: "batch", Name: old.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "UID") || s.isEnding(successor) {
		t.Errorf("the API server says %v, want a conflict of UIDs", err)
	}
}

// churn orders the eviction of every other pod, while a third of all are replaced.
func (s *stand) churn(t *testing.T) {
	const orders = 100
	pods := make([]*corev1.Pod, 2*orders)
	var making sync.WaitGroup
	for i := range pods {
		making.Go(func() { pods[i] = s.pod(fmt.Sprintf("churn-%d", i), "churn") })
	}
	making.Wait()
	order := slices.Clone(pods)
	var working sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	for i, pod := range order {
		if i%3 == 0 {
			working.Go(func() {
				s.remove(pod.Name)
				successor := s.pod(pod.Name, "churn")
				mu.Lock()
				defer mu.Unlock()
				pods[i] = successor
			})
		}
	}
	for slot := range 4 { // four at a time: the control loop has one or two
		working.Go(func() {
			for i := 2 * slot; i < len(order); i += 8 {
				began := time.Now()
				if err := s.evict(order[i], time.Minute); err != nil {
					t.Errorf("%s: %v", order[i].Name, err)
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	working.Wait()
	slices.Sort(took)
	t.Logf("%d orders under churn: median %v, longest %v", len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	for i, pod := range pods {
		meant := i%2 == 0 && pod.UID == order[i].UID
		if s.isEnding(pod) != meant {
			t.Errorf("pod %s (%s): it is ending: %v, and was meant: %v", pod.Name, pod.UID, !meant, meant)
		}
	}
	events, err := s.client.CoreV1().Events("batch").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	evicted := map[types.UID]int32{}
	for i := range events.Items {
		if e := &events.Items[i]; e.Reason == "EvictedBySluice" {
			evicted[e.InvolvedObject.UID] += e.Count
		}
	}
	for uid, n := range evicted {
		if n > 1 {
			t.Errorf("the pod of UID %s was evicted %d times", uid, n)
		}
	}
}
