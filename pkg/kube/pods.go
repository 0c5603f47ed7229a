package kube

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/resource"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/cluster/selling"
)

// Pod is what Sluice keeps of a pod of the node. It takes less than 2 KiB whatever the pod has: a
// pod may have 1.3 MB of owner references, labels and containers, and a node may have hundreds of
// pods.
type Pod struct {
	metav1.ObjectMeta        // name, namespace, UID, resource version and deletion
	Owner             string // its controller, as "Job batch/report"; "" if it has none
	Priority          int32  // spec.priority; 0 if unset
	Admitted          bool   // by the kubelet

	requests selling.Amounts
	wrong    error             // names an amount that cannot be; nil if there is none
	ordinary nodereport.Amount // CPU and memory that it requests
}

// grace is the grace period of a pod that is ending; 0 if the API server does not say.
func (p *Pod) grace() time.Duration {
	if p.DeletionGracePeriodSeconds == nil {
		return 0
	}
	return time.Duration(min(max(*p.DeletionGracePeriodSeconds, 0), int64(longestGrace/time.Second))) * time.Second
}

// longestGrace bounds grace periods, so that they do not overflow.
const longestGrace = 10000 * time.Hour

// endsIn returns what is left of the grace period, and whether the pod is ending. The end is a
// time of the API server's clock: where that clock is ahead, the grace period bounds what is left.
func (p *Pod) endsIn(now time.Time) (left time.Duration, ending bool) {
	if p.DeletionTimestamp == nil {
		return 0, false
	}
	return min(p.grace(), max(0, p.DeletionTimestamp.Sub(now))), true
}

// Pods are the pods of the node that have not ended, with what Sluice needs of them.
type Pods struct {
	store      cache.Store
	controller cache.Controller
	names      map[selling.Kind]string
	changes    atomic.Int64
	denied     denial

	known    int64 // number of changes that the rest knows
	requests []selling.Pod
	ordinary nodereport.Amount // of all pods that the kubelet has admitted
}

// Pods returns the pods of the node. They are followed while Run runs; changed is called after
// each change, and must not block.
func (c *Client) Pods(names map[selling.Kind]string, changed func()) *Pods {
	which := fields.ParseSelectorOrDie("status.phase!=" + string(corev1.PodSucceeded) + ",status.phase!=" + string(corev1.PodFailed))
	which = fields.AndSelectors(fields.OneTermEqualSelector("spec.nodeName", c.node), which)
	p := &Pods{names: names, known: -1}
	p.store, p.controller = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: p.denied.noted(cache.NewListWatchFromClient(c.rest, "pods", metav1.NamespaceAll, which)),
		ObjectType:    &corev1.Pod{},
		Transform:     func(object any) (any, error) { return p.trim(object), nil },
		Handler: tell(func() {
			p.changes.Add(1)
			changed()
		}),
	})
	return p
}

// Run follows the pods until stop is closed.
func (p *Pods) Run(stop <-chan struct{}) { p.controller.Run(stop) }

// Synced reports whether all pods are known. They are not any more if the API server denies them for long.
func (p *Pods) Synced() bool { return p.controller.HasSynced() && !p.denied.lasts(time.Now()) }

// All returns the pods. They must not be changed.
func (p *Pods) All() []*Pod {
	var all []*Pod
	for _, object := range p.store.List() {
		if pod, ok := object.(*Pod); ok {
			all = append(all, pod)
		}
	}
	return all
}

// Requests returns what the pods request of the resources that are sold, and the CPU and memory
// that all pods request which the kubelet has admitted. Pods with an amount that cannot be are left
// out of the former: refused is called for each. One goroutine alone may call it.
func (p *Pods) Requests(refused func(*Pod, error)) ([]selling.Pod, nodereport.Amount) {
	changes := p.changes.Load()
	if changes == p.known {
		return p.requests, p.ordinary
	}
	var all []selling.Pod
	var ordinary nodereport.Amount
	for _, pod := range p.All() {
		if pod.Admitted {
			ordinary.MilliCPU = min(ordinary.MilliCPU+pod.ordinary.MilliCPU, selling.Most)
			ordinary.MemoryBytes = min(ordinary.MemoryBytes+pod.ordinary.MemoryBytes, selling.Most)
		}
		if pod.wrong != nil {
			refused(pod, pod.wrong)
			continue
		}
		if pod.requests != (selling.Amounts{}) {
			all = append(all, selling.Pod{
				UID: string(pod.UID), Requests: pod.requests, Admitted: pod.Admitted,
				Ending: pod.DeletionTimestamp != nil, Grace: pod.grace(),
			})
		}
	}
	p.known, p.requests, p.ordinary = changes, all, ordinary
	return all, ordinary
}

// ordinary is the CPU and the memory among requests. What is beyond all nodes is bounded: it is for
// people to read.
func ordinary(requests corev1.ResourceList) nodereport.Amount {
	cpu, memory := requests.Cpu(), requests.Memory()
	return nodereport.Amount{
		MilliCPU:    bounded(cpu, cpu.MilliValue(), selling.Most/1000),
		MemoryBytes: bounded(memory, memory.Value(), selling.Most),
	}
}

// bounded is the value of a quantity, which overflows far above most.
func bounded(q *quantity.Quantity, value, most int64) int64 {
	switch {
	case q.Sign() < 0:
		return 0
	case q.CmpInt64(most) > 0:
		return selling.Most
	}
	return value
}

// largest is more than any node has of a resource.
const largest = 1e30

// requestsOf returns what a pod requests, as the scheduler and the kubelet count it. It refuses amounts
// such as 1e44444444400, because Kubernetes' library computes with all their digits.
func requestsOf(pod *corev1.Pod) (corev1.ResourceList, error) {
	lists := []corev1.ResourceList{pod.Spec.Overhead}
	if r := pod.Spec.Resources; r != nil {
		lists = append(lists, r.Requests, r.Limits)
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			lists = append(lists, containers[i].Resources.Requests, containers[i].Resources.Limits)
		}
	}
	for _, list := range lists {
		for name, quantity := range list {
			if math.Abs(quantity.AsApproximateFloat64()) > largest {
				return nil, fmt.Errorf("pod %s/%s requests more than %.0e of %s; correct the pod's requests", pod.Namespace, pod.Name, float64(largest), name)
			}
		}
	}
	return resource.PodRequests(pod, resource.PodResourcesOptions{}), nil
}

// requested returns what a pod requests of the resources that are sold.
func requested(pod *corev1.Pod, requests corev1.ResourceList, names map[selling.Kind]string) (selling.Amounts, error) {
	var amounts selling.Amounts
	for kind, name := range names {
		quantity, ok := requests[corev1.ResourceName(name)]
		if !ok {
			continue
		}
		if quantity.Sign() < 0 || quantity.CmpInt64(selling.Most) > 0 {
			return amounts, fmt.Errorf("pod %s/%s requests %s of %s: an amount is from 0 to %d; correct the pod's requests", pod.Namespace, pod.Name, quantity.String(), name, selling.Most)
		}
		amounts[kind] = quantity.Value()
	}
	return amounts, nil
}

// trim keeps what Sluice reads of a pod. What it has trimmed before stays as it is.
func (p *Pods) trim(object any) any {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object
	}
	trimmed := &Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		},
		Owner:    owner(pod),
		Admitted: pod.Status.StartTime != nil || pod.Status.Phase == corev1.PodRunning,
	}
	if pod.Spec.Priority != nil {
		trimmed.Priority = *pod.Spec.Priority
	}
	var requests corev1.ResourceList
	if requests, trimmed.wrong = requestsOf(pod); trimmed.wrong == nil {
		trimmed.ordinary = ordinary(requests)
		trimmed.requests, trimmed.wrong = requested(pod, requests, p.names)
	}
	return trimmed
}

// owner names the pod's controller. The API server does not bound the lengths of its kind and name.
func owner(pod *corev1.Pod) string {
	c := metav1.GetControllerOf(pod)
	if c == nil {
		return ""
	}
	return clip(c.Kind, validation.DNS1035LabelMaxLength) + " " + pod.Namespace + "/" + clip(c.Name, validation.DNS1123SubdomainMaxLength)
}

// clip returns a copy of the first bytes of a text, without a part of a character at the end. A
// plain slice would keep all of the text in memory.
func clip(text string, most int) string {
	return strings.Clone(strings.ToValidUTF8(text[:min(len(text), most)], ""))
}

// tell calls a function after each change of a store.
func tell(changed func()) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	}
}
