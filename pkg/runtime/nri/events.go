package nri

import (
	"context"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/sluice-dev/sluice/pkg/engine/latency"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Synchronize receives all pods and containers after each connection.
func (p *Plugin) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	defer p.agent.Latencies.Answered(latency.Synchronize, time.Now())
	known := make([]*workload.Pod, len(pods))
	index := make(map[string]int, len(pods))
	for i, pod := range pods {
		known[i] = podOf(pod)
		index[pod.GetId()] = i
	}
	specs := make([]workload.Container, len(containers))
	for i, c := range containers {
		specs[i] = containerOf(c)
		if pod, ok := index[c.GetPodSandboxId()]; ok {
			complete(known[pod], c)
		}
	}
	updates, err := p.agent.Synchronize(ctx, known, specs)
	return updatesOf(updates), err
}

// CreateContainer adjusts a container before it exists.
func (p *Plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	defer p.agent.Latencies.Answered(latency.Create, time.Now())
	adjustment, updates, err := p.agent.CreateContainer(ctx, podOfContainer(pod, c), containerOf(c))
	if err != nil {
		return nil, nil, err
	}
	return adjustmentOf(adjustment), updatesOf(updates), nil
}

// PostCreateContainer runs after the runtime has created the container.
func (p *Plugin) PostCreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	defer p.agent.Latencies.Answered(latency.PostCreate, time.Now())
	return p.agent.PostCreateContainer(c.GetId())
}

// StartContainer runs when the container's cgroup exists and its process waits before exec.
func (p *Plugin) StartContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	defer p.agent.Latencies.Answered(latency.Start, time.Now())
	return p.agent.StartContainer(ctx, podOfContainer(pod, c), containerOf(c))
}

// UpdateContainer runs before the runtime applies a change of resources.
func (p *Plugin) UpdateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container, r *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	defer p.agent.Latencies.Answered(latency.Update, time.Now())
	updates, err := p.agent.UpdateContainer(ctx, podOfContainer(pod, c), containerOf(c), resourcesOf(r))
	return updatesOf(updates), err
}

// PostUpdateContainer runs after the runtime has applied a change.
func (p *Plugin) PostUpdateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	defer p.agent.Latencies.Answered(latency.PostUpdate, time.Now())
	return p.agent.PostUpdateContainer(c.GetId())
}

// StopContainer runs after the container has ended.
func (p *Plugin) StopContainer(ctx context.Context, _ *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	defer p.agent.Latencies.Answered(latency.Stop, time.Now())
	updates, err := p.agent.StopContainer(ctx, c.GetId())
	return updatesOf(updates), err
}

// RemoveContainer may be the only event for a container whose creation failed, and may have
// only the container's ID.
func (p *Plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	defer p.agent.Latencies.Answered(latency.Remove, time.Now())
	return p.agent.RemoveContainer(c.GetId())
}

// UpdatePodSandbox runs when the kubelet has resized a pod as a whole.
func (p *Plugin) UpdatePodSandbox(ctx context.Context, pod *api.PodSandbox, _, r *api.LinuxResources) error {
	defer p.agent.Latencies.Answered(latency.UpdatePod, time.Now())
	return p.agent.UpdatePod(ctx, pod.GetId(), resourcesOf(r))
}

// RemovePodSandbox is the last event of a pod.
func (p *Plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	defer p.agent.Latencies.Answered(latency.RemovePod, time.Now())
	return p.agent.RemovePod(pod.GetId(), podOf(pod).UID)
}
