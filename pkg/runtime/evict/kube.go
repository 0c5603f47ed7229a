package evict

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// Orders carries an order to sluice-kube and waits for the answer; see pkg/runtime/kubelink.
type Orders interface {
	Order(ctx context.Context, o evictorder.Order) (evictorder.Answer, error)
}

// leastGrace is the shortest grace period. With a grace period of zero the API server would
// remove the pod's object without waiting for the kubelet, and a StatefulSet would start a
// successor beside the running pod. The kubelet uses one second for urgent evictions, too.
const leastGrace = time.Second

// Kubernetes evicts pods through sluice-kube, which asks the API server. It waits for the API
// server's answer, which comes before the pod's grace period.
type Kubernetes struct{ Orders Orders }

// Evict returns nil if the API server has accepted the eviction or the pod is gone. It returns
// evictorder.ErrRefused if a disruption budget forbids the eviction, and evictorder.ErrNobody if
// sluice-kube is not connected. The context needs a deadline, after which nobody carries the
// order out.
func (k Kubernetes) Evict(ctx context.Context, pod Pod) error {
	namespace, name, err := evictorder.SplitRef(pod.Ref)
	if err != nil {
		return err
	}
	answer, err := k.Orders.Order(ctx, evictorder.Order{
		UID: pod.UID, Namespace: namespace, Name: name, GraceSeconds: seconds(max(pod.Grace, leastGrace)),
		Why: evictorder.Clip(pod.Why), DecidedAt: pod.DecidedAt, CoolDownUntil: pod.CoolDown,
	})
	if err != nil {
		return fmt.Errorf("pod %s (%s): %w", pod.Ref, pod.UID, err)
	}
	switch answer.Outcome {
	case evictorder.Evicted, evictorder.Gone:
		return nil
	case evictorder.Refused:
		return fmt.Errorf("pod %s (%s): %w: %s", pod.Ref, pod.UID, evictorder.ErrRefused, answer.Reason)
	case evictorder.Failed:
	}
	return fmt.Errorf("pod %s (%s): sluice-kube could not evict it: %s", pod.Ref, pod.UID, answer.Reason)
}
