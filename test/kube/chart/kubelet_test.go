// Package chart installs the Helm chart on a real control plane, whose nodes are objects alone.
package chart

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

const namespace = "sluice"

// kubelets stand for those of all nodes: they say that nodes and pods are well, run the Job of the
// chart, and remove deleted pods.
type kubelets struct {
	client   kubernetes.Interface
	withdraw func(*corev1.Pod) error // runs the program of the Job's pod

	mu      sync.Mutex
	good    string   // the only ConfigMap with which pods get ready; "" for any
	unready int      // the most nodes at once whose plugin was not ready, since it was set to 0
	dead    string   // the node that does not respond; "" for none
	jobs    []string // the nodes of the Job's pods
	failed  error
}

func (k *kubelets) run(ctx context.Context) {
	var beat time.Time
	for ctx.Err() == nil {
		if time.Since(beat) > beatInterval {
			beat = time.Now()
			k.note(ctx, k.beat(ctx))
		}
		k.note(ctx, k.step(ctx))
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (k *kubelets) note(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed = err
}

// beatInterval is how often a kubelet tells that it is alive. Kubernetes gives up a node after 50 s.
const beatInterval = 10 * time.Second

// beat lets all nodes be alive but the dead one.
func (k *kubelets) beat(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, node := range nodeNames() {
		if node == k.dead {
			continue
		}
		status := `{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": "` + time.Now().UTC().Format(time.RFC3339) + `"}]}}`
		if _, err := k.client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	return nil
}

func (k *kubelets) step(ctx context.Context) error {
	pods, err := k.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	k.look(pods.Items)
	for i := range pods.Items {
		if err := k.sync(ctx, &pods.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (k *kubelets) look(pods []corev1.Pod) {
	ready := 0
	for i := range pods {
		if isPlugin(&pods[i]) && bed.Ready(&pods[i]) && pods[i].DeletionTimestamp == nil {
			ready++
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unready = max(k.unready, nodes-ready)
}

func isPlugin(p *corev1.Pod) bool {
	return strings.HasPrefix(p.Labels["app.kubernetes.io/component"], "node")
}

func (k *kubelets) sync(ctx context.Context, p *corev1.Pod) error {
	switch {
	case p.Spec.NodeName == "":
		return nil
	case p.DeletionTimestamp != nil:
		now := int64(0)
		return k.client.CoreV1().Pods(namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	case bed.Ready(p) || k.isBroken(p) || p.Status.Phase == corev1.PodSucceeded:
		return nil
	}
	if p.Labels["app.kubernetes.io/component"] == "withdraw" {
		return k.runJob(ctx, p)
	}
	status := `{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "` + time.Now().UTC().Format(time.RFC3339) + `"}]}}`
	_, err := k.client.CoreV1().Pods(namespace).Patch(ctx, p.Name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	return err
}

// runJob runs the program of the Job's pod, unless its node does not respond.
func (k *kubelets) runJob(ctx context.Context, p *corev1.Pod) error {
	k.mu.Lock()
	dead := k.dead
	k.jobs = append(k.jobs, p.Spec.NodeName)
	k.mu.Unlock()
	if p.Spec.NodeName == dead {
		return nil
	}
	if err := k.withdraw(p); err != nil {
		return err
	}
	_, err := k.client.CoreV1().Pods(namespace).Patch(ctx, p.Name, types.MergePatchType, []byte(`{"status": {"phase": "Succeeded"}}`), metav1.PatchOptions{}, "status")
	return err
}

func (k *kubelets) isBroken(p *corev1.Pod) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.good != "" && slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.ConfigMap != nil && v.ConfigMap.Name != k.good })
}
