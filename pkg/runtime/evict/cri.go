package evict

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// uidLabel is the label that the kubelet sets on sandboxes (pkg/kubelet/types/labels.go).
const uidLabel = "io.kubernetes.pod.uid"

// DefaultTimeout is ample for a busy runtime, and shorter than the time after which the control
// loop gives up on the pod.
const DefaultTimeout = 30 * time.Second

// CRI ends pods by stopping their sandbox through the runtime's CRI socket. To Kubernetes this
// looks like a crash: the kubelet restarts the pod unless its containers are refused for a
// while.
type CRI struct {
	Socket  string
	Timeout time.Duration // for the runtime to end a pod, in addition to its grace; 0 means DefaultTimeout
}

// Evict stops the pod's ready sandboxes, normally one. With a grace period, it first stops the
// containers, which may then end by themselves. If the pod has no ready sandbox it has ended,
// which is no error.
func (c CRI) Evict(ctx context.Context, pod Pod) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout()+pod.Grace)
	defer cancel()
	// Each eviction uses a new connection: after a restart of the runtime, an old one would
	// keep failing for a second (gRPC's backoff), and evictions are rare.
	conn, err := grpc.NewClient("unix://"+c.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return c.failed(pod, "connecting", err)
	}
	defer conn.Close() //nolint:errcheck // all answers have arrived
	runtime := cri.NewRuntimeServiceClient(conn)
	ready, err := ready(ctx, runtime, pod)
	if err != nil {
		return c.failed(pod, "listing its sandboxes", err)
	}
	for _, id := range ready {
		if pod.Grace > 0 {
			if err := stopContainers(ctx, runtime, id, pod.Grace); err != nil {
				return c.failed(pod, "stopping the containers of sandbox "+id, err)
			}
		}
		if _, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil && !gone(err) {
			return c.failed(pod, "stopping sandbox "+id, err)
		}
	}
	return nil
}

func (c CRI) timeout() time.Duration { return cmp.Or(c.Timeout, DefaultTimeout) }

// ready lists the pod's ready sandboxes. It compares the UID again in the kubelet's own field,
// so that no pod is stopped because of the way in which a runtime interprets a filter.
func ready(ctx context.Context, runtime cri.RuntimeServiceClient, pod Pod) ([]string, error) {
	list, err := runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		State:         &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{uidLabel: pod.UID},
	}})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, s := range list.GetItems() {
		if s.GetMetadata().GetUid() == pod.UID && s.GetState() == cri.PodSandboxState_SANDBOX_READY {
			ids = append(ids, s.GetId())
		}
	}
	return ids, nil
}

// stopContainers stops the sandbox's containers concurrently.
func stopContainers(ctx context.Context, runtime cri.RuntimeServiceClient, sandbox string, grace time.Duration) error {
	list, err := runtime.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		PodSandboxId: sandbox,
		State:        &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return err
	}
	errs := make([]error, len(list.GetContainers()))
	var stopping sync.WaitGroup
	for i, container := range list.GetContainers() {
		stopping.Go(func() {
			_, err := runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: container.GetId(), Timeout: seconds(grace)})
			if err != nil && !gone(err) {
				errs[i] = err
			}
		})
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// seconds rounds up, because 0 would kill at once.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func gone(err error) bool { return status.Code(err) == codes.NotFound }

func (c CRI) failed(pod Pod, doing string, err error) error {
	next := "it goes on running"
	switch status.Code(err) {
	case codes.Unavailable:
		next = "is the runtime up, and may Sluice open its socket?"
	case codes.DeadlineExceeded:
		next = fmt.Sprintf("there was no answer within %v; it may end yet", c.timeout()+pod.Grace)
	}
	return fmt.Errorf("pod %s (%s), %s through %s: %w; %s", pod.Ref, pod.UID, doing, c.Socket, err, next)
}
