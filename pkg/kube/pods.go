package kube

import (
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/resource"

	"github.com/sluice-dev/sluice/pkg/cluster/selling"
)

// Pods are the pods of the node that have not ended, with what Sluice needs of them.
type Pods struct {
	store      cache.Store
	controller cache.Controller
	names      map[selling.Kind]string
	changes    atomic.Int64

	known    int64 // number of changes that requests knows
	requests []selling.Pod
}

// Pods returns the pods of the node. They are followed while Run runs; changed is called after
// each change, and must not block.
func (c *Client) Pods(names map[selling.Kind]string, changed func()) *Pods {
	which := fields.ParseSelectorOrDie("status.phase!=" + string(corev1.PodSucceeded) + ",status.phase!=" + string(corev1.PodFailed))
	which = fields.AndSelectors(fields.OneTermEqualSelector("spec.nodeName", c.node), which)
	p := &Pods{names: names, known: -1}
	p.store, p.controller = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(c.rest, "pods", metav1.NamespaceAll, which),
		ObjectType:    &corev1.Pod{},
		Transform:     trimPod,
		Handler: tell(func() {
			p.changes.Add(1)
			changed()
		}),
	})
	return p
}

// Run follows the pods until stop is closed.
func (p *Pods) Run(stop <-chan struct{}) { p.controller.Run(stop) }

// Synced reports whether all pods are known.
func (p *Pods) Synced() bool { return p.controller.HasSynced() }

// All returns the pods. They must not be changed.
func (p *Pods) All() []*corev1.Pod {
	var all []*corev1.Pod
	for _, object := range p.store.List() {
		if pod, ok := object.(*corev1.Pod); ok {
			all = append(all, pod)
		}
	}
	return all
}

// Requests returns what the pods request of the resources that are sold. Pods with an amount
// that cannot be are left out: refused is called for each. One goroutine alone may call it.
func (p *Pods) Requests(refused func(*corev1.Pod, error)) []selling.Pod {
	changes := p.changes.Load()
	if changes == p.known {
		return p.requests
	}
	var all []selling.Pod
	for _, pod := range p.All() {
		amounts, err := requested(pod, p.names)
		if err != nil {
			refused(pod, err)
			continue
		}
		if amounts != (selling.Amounts{}) {
			all = append(all, selling.Pod{Requests: amounts, Admitted: pod.Status.StartTime != nil || pod.Status.Phase == corev1.PodRunning})
		}
	}
	p.known, p.requests = changes, all
	return all
}

// requested returns what a pod requests of the resources that are sold, as the scheduler and
// the kubelet count it.
func requested(pod *corev1.Pod, names map[selling.Kind]string) (selling.Amounts, error) {
	var amounts selling.Amounts
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
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

// trimPod keeps what Sluice reads of a pod.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp, OwnerReferences: pod.OwnerReferences,
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources,
			Priority: pod.Spec.Priority, PriorityClassName: pod.Spec.PriorityClassName,
			InitContainers: trimContainers(pod.Spec.InitContainers), Containers: trimContainers(pod.Spec.Containers),
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, StartTime: pod.Status.StartTime, QOSClass: pod.Status.QOSClass},
	}, nil
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	trimmed := make([]corev1.Container, 0, len(containers))
	for i := range containers {
		c := &containers[i]
		trimmed = append(trimmed, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: corev1.ResourceRequirements{Requests: c.Resources.Requests}})
	}
	return trimmed
}

// tell calls a function after each change of a store.
func tell(changed func()) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	}
}
