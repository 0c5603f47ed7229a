// Noop is an NRI plugin that does nothing: the floor of the plugin's benchmarks. It subscribes to
// the same events and answers each with nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

type plugin struct{}

func (plugin) Configure(context.Context, string, string, string) (api.EventMask, error) {
	var mask api.EventMask
	mask.Set(api.Event_CREATE_CONTAINER, api.Event_START_CONTAINER,
		api.Event_UPDATE_CONTAINER, api.Event_POST_UPDATE_CONTAINER,
		api.Event_STOP_CONTAINER, api.Event_REMOVE_CONTAINER, api.Event_REMOVE_POD_SANDBOX,
		api.Event_UPDATE_POD_SANDBOX)
	return mask, nil
}

func (plugin) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (plugin) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, nil
}

func (plugin) StartContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }

func (plugin) UpdateContainer(context.Context, *api.PodSandbox, *api.Container, *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (plugin) PostUpdateContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }

func (plugin) StopContainer(context.Context, *api.PodSandbox, *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (plugin) RemoveContainer(context.Context, *api.PodSandbox, *api.Container) error { return nil }

func (plugin) UpdatePodSandbox(context.Context, *api.PodSandbox, *api.LinuxResources, *api.LinuxResources) error {
	return nil
}

func (plugin) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }

func main() {
	socket := flag.String("socket", "", "the runtime's NRI socket")
	flag.Parse()
	s, err := stub.New(plugin{}, stub.WithPluginIdx("50"), stub.WithPluginName("noop"), stub.WithSocketPath(*socket))
	if err == nil {
		err = s.Run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
