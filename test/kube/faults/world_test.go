package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
	"github.com/sluice-dev/sluice/test/kube/bed"
	"github.com/sluice-dev/sluice/test/kube/standin"
)

// world is a node without a kubelet, whose pods come and go.
type world struct {
	*testing.T
	client     kubernetes.Interface
	plugin     *standin.Plugin
	kubeconfig string
	published  *history
	stop       context.CancelFunc
	working    sync.WaitGroup

	mu       sync.Mutex
	pods     map[types.UID]*corev1.Pod // that exist
	ended    map[types.UID]bool        // by the test itself
	ordered  map[types.UID]error       // evictions that were ordered, with the last answer; errUnanswered while there is none
	offers   []move
	bounds   []move // what pods have that the kubelet has admitted, but for those that end by an order
	totals   []move // what all pods have
	coolDown bool
}

var errUnanswered = errors.New("no answer yet")

func newWorld(t *testing.T, c *bed.Cluster) *world {
	w := &world{
		T: t, client: c.Client(t), plugin: standin.Start(t),
		pods: map[types.UID]*corev1.Pod{}, ended: map[types.UID]bool{}, ordered: map[types.UID]error{},
	}
	c.Namespace(t, "batch", nil)
	w.kubeconfig = c.Kubeconfig(t, "sluice", c.Agent(t, nodeName, bed.Everything))
	w.published = follow(t, w.client)
	return w
}

// offer sets the offer and whether the node is in a cool-down.
func (w *world) offer(milli int64, coolDown bool) {
	w.mu.Lock()
	w.offers, w.coolDown = append(w.offers, move{time.Now(), milli}), coolDown
	w.mu.Unlock()
	if coolDown {
		w.plugin.CoolDown(milli)
	} else {
		w.plugin.Offer(milli)
	}
}

// work lets pods come and go, and the node order evictions, until end.
func (w *world) work(seed uint64) {
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	w.Cleanup(w.stop)
	w.working.Go(func() { w.kubelet(ctx) })
	w.working.Go(func() {
		random := rand.New(rand.NewPCG(seed, 1))
		for i := 0; ctx.Err() == nil; i++ {
			if random.IntN(4) == 0 {
				w.remove(random)
			} else {
				w.bind(fmt.Sprintf("p%d", i%200), least+random.Int64N(1000-least))
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	for n := range uint64(2) { // the control loop has one or two orders at a time
		w.working.Go(func() {
			random := rand.New(rand.NewPCG(seed, 2+n))
			for ctx.Err() == nil {
				w.evict(random)
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
}

// end waits until all that was begun has come to its end.
func (w *world) end() {
	w.Helper()
	time.Sleep(settle)
	w.stop()
	w.working.Wait()
	time.Sleep(settle)
}

// bind makes a pod on the node if there is room for it, as the scheduler does, and none of its name.
func (w *world) bind(name string, milli int64) {
	node, err := w.client.CoreV1().Nodes().Get(context.Background(), nodeName, metav1.GetOptions{})
	if err != nil {
		w.Error(err)
		return
	}
	w.mu.Lock()
	free := amount(node)
	for _, p := range w.pods {
		free -= requested(p)
	}
	w.mu.Unlock()
	if milli > free {
		return
	}
	requests := corev1.ResourceList{batchCPU: *resource.NewQuantity(milli, resource.DecimalSI)}
	pod, err := w.client.CoreV1().Pods("batch").Create(context.Background(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{
			Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests},
		}}},
	}, metav1.CreateOptions{})
	switch {
	case err == nil:
		w.mu.Lock()
		w.pods[pod.UID] = pod
		w.mu.Unlock()
	case !apierrors.IsAlreadyExists(err):
		w.Error(err)
	}
}

// remove deletes a pod that is not to be evicted, as its owner does.
func (w *world) remove(random *rand.Rand) {
	if pod, _ := w.take(random, func(uid types.UID) { w.ended[uid] = true }); pod != nil {
		w.delete(pod, 1)
	}
}

// delete deletes a pod; with a grace period of 0 its object is gone at once.
func (w *world) delete(pod *corev1.Pod, grace int64) {
	uid := pod.UID
	options := metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &uid}}
	err := w.client.CoreV1().Pods("batch").Delete(context.Background(), pod.Name, options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		w.Error(err)
	}
}

// take returns a running pod that nobody ends yet, and notes that somebody does; nil if there is none.
func (w *world) take(random *rand.Rand, note func(types.UID)) (pod *corev1.Pod, coolDown bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*corev1.Pod
	for uid, p := range w.pods {
		if _, ordered := w.ordered[uid]; !ordered && !w.ended[uid] && p.Status.Phase == corev1.PodRunning {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil, false
	}
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	pod = all[random.IntN(len(all))]
	note(pod.UID)
	return pod, w.coolDown
}

// evict orders an eviction, again and again while nobody is there, as the control loop does. A tenth of the pods are
// deleted and made anew under the same name at the same time.
func (w *world) evict(random *rand.Rand) {
	pod, coolDown := w.take(random, func(uid types.UID) { w.ordered[uid] = errUnanswered })
	if pod == nil {
		return
	}
	if random.IntN(10) == 0 {
		w.delete(pod, 0)
		w.bind(pod.Name, least)
	}
	length := time.Duration(0)
	if coolDown {
		length = time.Hour
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		err := w.plugin.Evict(ctx, pod, length)
		w.mu.Lock()
		w.ordered[pod.UID] = err
		w.mu.Unlock()
		if !errors.Is(err, evictorder.ErrNobody) || ctx.Err() != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// kubelet starts and ends pods until the context ends, and records what they have.
func (w *world) kubelet(ctx context.Context) {
	ending := map[types.UID]time.Time{} // since when it is known
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		list, err := w.client.CoreV1().Pods("batch").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			w.Error(err)
			continue
		}
		w.see(list.Items)
		for i := range list.Items {
			switch p := &list.Items[i]; {
			case p.DeletionTimestamp == nil && p.Status.StartTime == nil:
				now := metav1.Now()
				p.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now}
				if _, err := w.client.CoreV1().Pods("batch").UpdateStatus(context.Background(), p, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
					w.Error(err)
				}
			case p.DeletionTimestamp != nil && ending[p.UID].IsZero():
				ending[p.UID] = time.Now()
			case p.DeletionTimestamp != nil && time.Since(ending[p.UID]) > 300*time.Millisecond:
				w.delete(p, 0)
			}
		}
	}
}

// see records which pods there are, and what they have.
func (w *world) see(pods []corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.pods)
	var bound, total int64
	for i := range pods {
		p := &pods[i]
		w.pods[p.UID] = p
		_, ordered := w.ordered[p.UID]
		if p.DeletionTimestamp != nil && !ordered && !w.ended[p.UID] {
			w.Errorf("nobody wanted pod %s (%s) to end", p.Name, p.UID)
		}
		total += requested(p)
		if evicted := ordered && p.DeletionTimestamp != nil; p.Status.StartTime != nil && !evicted {
			bound += requested(p)
		}
	}
	now := time.Now()
	w.bounds, w.totals = append(w.bounds, move{now, bound}), append(w.totals, move{now, total})
}

func requested(p *corev1.Pod) int64 {
	request := p.Spec.Containers[0].Resources.Requests[batchCPU]
	return request.Value()
}
