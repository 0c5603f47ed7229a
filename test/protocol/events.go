package protocol

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// RunPod starts a pod's sandbox.
func (r *Runtime) RunPod(p Pod) (*api.PodSandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serial++
	pod := p.sandbox(r.serial)
	if err := r.nri.RunPodSandbox(context.Background(), &api.RunPodSandboxRequest{Pod: pod}); err != nil {
		return nil, told(err)
	}
	r.pods = append(r.pods, pod)
	return pod, nil
}

// Create creates a container. A container that a plugin refuses is not in the record, and no other
// event follows.
func (r *Runtime) Create(pod *api.PodSandbox, name string, q Requests) (*Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serial++
	id := fmt.Sprintf("%064x", r.serial)
	c := &Container{Pod: pod, Label: r.label(pod, name), Container: &api.Container{
		Id: id, PodSandboxId: pod.Id, Name: name, State: api.ContainerState_CONTAINER_CREATED,
		CreatedAt: int64(r.serial) * int64(time.Second),
		Linux: &api.LinuxContainer{
			CgroupsPath: pod.Linux.CgroupParent + "/" + id,
			Resources:   q.resources(isGuaranteed(pod)),
			OomScoreAdj: api.Int(q.oomScoreAdj(pod, r.Memory)),
			Devices:     q.Devices,
		},
	}}
	for _, name := range q.CDIDevices {
		c.CDIDevices = append(c.CDIDevices, &api.CDIDevice{Name: name})
	}
	reply, err := r.nri.CreateContainer(context.Background(), &api.CreateContainerRequest{Pod: pod, Container: proto.Clone(c.Container).(*api.Container)})
	if err != nil {
		return nil, told(err)
	}
	if err := c.set(reply.GetAdjust().GetLinux().GetResources()); err != nil {
		return nil, err
	}
	if err := r.apply(reply.GetUpdate()); err != nil {
		return nil, err
	}
	r.containers = append(r.containers, c)
	return c, nil
}

// label distinguishes containers of the same name in one pod.
func (r *Runtime) label(pod *api.PodSandbox, name string) string {
	label := pod.Name + "/" + name
	for n := 2; slices.ContainsFunc(r.containers, func(c *Container) bool { return c.Label == label }); n++ {
		label = fmt.Sprintf("%s/%s#%d", pod.Name, name, n)
	}
	return label
}

// Start starts a container. If a plugin fails it, the container is stopped.
func (r *Runtime) Start(c *Container) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Pid = uint32(r.serial)
	if err := r.nri.StartContainer(context.Background(), &api.StartContainerRequest{Pod: c.Pod, Container: c.Container}); err != nil {
		c.State = api.ContainerState_CONTAINER_STOPPED
		reply, stopped := r.nri.StopContainer(context.Background(), &api.StopContainerRequest{Pod: c.Pod, Container: c.Container})
		return errors.Join(told(err), told(stopped), r.apply(reply.GetUpdate()))
	}
	c.State = api.ContainerState_CONTAINER_RUNNING
	return nil
}

// Run creates a container and starts it.
func (r *Runtime) Run(pod *api.PodSandbox, name string, q Requests) (*Container, error) {
	c, err := r.Create(pod, name, q)
	if err != nil {
		return nil, err
	}
	return c, r.Start(c)
}

// Update changes a container's requests, as the kubelet does for an in-place
// resize.
func (r *Runtime) Update(c *Container, q Requests) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	reply, err := r.nri.UpdateContainer(context.Background(), &api.UpdateContainerRequest{
		Pod: c.Pod, Container: c.Container, LinuxResources: q.resources(isGuaranteed(c.Pod)),
	})
	if err != nil {
		return told(err)
	}
	if err := r.apply(reply.GetUpdate()); err != nil {
		return err
	}
	return told(r.nri.PostUpdateContainer(context.Background(), &api.PostUpdateContainerRequest{Pod: c.Pod, Container: c.Container}))
}

// Exit ends a container without any event, like one that ends by itself.
func (r *Runtime) Exit(c *Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.State = api.ContainerState_CONTAINER_STOPPED
}

// Stop ends a container.
func (r *Runtime) Stop(c *Container) error {
	r.Exit(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	reply, err := r.nri.StopContainer(context.Background(), &api.StopContainerRequest{Pod: c.Pod, Container: c.Container})
	return errors.Join(told(err), r.apply(reply.GetUpdate()))
}

// Remove forgets a container.
func (r *Runtime) Remove(c *Container) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers = slices.DeleteFunc(r.containers, func(other *Container) bool { return other == c })
	return told(r.nri.RemoveContainer(context.Background(), &api.RemoveContainerRequest{Pod: c.Pod, Container: c.Container}))
}

// FailedCreate creates a container whose creation fails in the runtime after the plugin has
// granted it. The only event is a removal, which only has the ID.
func (r *Runtime) FailedCreate(c *Container) error {
	r.Discard(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	return told(r.nri.RemoveContainer(context.Background(), &api.RemoveContainerRequest{Container: &api.Container{Id: c.Id}}))
}

// Discard forgets a container without any event.
func (r *Runtime) Discard(c *Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers = slices.DeleteFunc(r.containers, func(other *Container) bool { return other == c })
}

// RemovePod removes a pod's sandbox.
func (r *Runtime) RemovePod(pod *api.PodSandbox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods = slices.DeleteFunc(r.pods, func(other *api.PodSandbox) bool { return other == pod })
	return told(r.nri.RemovePodSandbox(context.Background(), &api.RemovePodSandboxRequest{Pod: pod}))
}

// Containers returns a copy of the record, the oldest first.
func (r *Runtime) Containers() []*Container {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Container, len(r.containers))
	for i, c := range r.containers {
		all[i] = &Container{Container: proto.Clone(c.Container).(*api.Container), Pod: c.Pod, Label: c.Label}
	}
	return all
}

// told returns an error as the pod's events would show it, without the words of the transport.
func told(err error) error {
	if s, ok := status.FromError(err); ok && err != nil {
		return errors.New(s.Message())
	}
	return err
}
