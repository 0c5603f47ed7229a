package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/probe/sight"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// realNode is a private containerd on this machine.
type realNode struct {
	binary string
	host   *topology.Machine
	rt     *runtime.Runtime
	sluice *runtime.Sluice
	pods   map[string]*runtime.Pod
}

func startReal(binary string) (node, error) {
	m, err := sysfs.Read(os.DirFS("/"))
	if err != nil {
		return nil, err
	}
	rt, err := runtime.Start(runtime.Options{})
	if err != nil {
		return nil, err
	}
	return &realNode{binary: binary, host: m, rt: rt, pods: map[string]*runtime.Pod{}}, nil
}

func (n *realNode) machine() *topology.Machine { return n.host }

func (*realNode) seen() string { return "What each container saw at its first instruction:" }

func (n *realNode) run(p pod) (first, error) {
	resources := runtime.Resources{CPURequest: p.cpu, MemoryRequest: p.memory}
	if p.guaranteed {
		resources = runtime.Whole(p.cpu, p.memory)
	}
	container := runtime.ContainerSpec{Name: "main", Resources: resources}
	pod, err := n.rt.RunPod(runtime.PodSpec{
		Name: p.name, Namespace: p.namespace, Annotations: p.annotations(), Containers: []runtime.ContainerSpec{container},
	})
	if err != nil {
		return first{}, err
	}
	n.pods[p.name] = pod
	c, err := pod.Create(container)
	if err != nil {
		return first{}, err
	}
	if err := c.Start(); err != nil {
		return first{}, err
	}
	saw, err := c.First()
	if err != nil {
		return first{}, err
	}
	limit, err := limitOf(saw)
	return first{cpus: saw.CPUs, nodes: saw.Mems, limit: limit}, err
}

// limitOf returns the CPU limit in the cgroup files that the container saw, of either version.
func limitOf(saw sight.First) (workload.MilliCPU, error) {
	text, ok := saw.Files["cpu.max"]
	if !ok {
		text = saw.Files["cpu.cfs_quota_us"] + " " + saw.Files["cpu.cfs_period_us"]
	}
	quota, period, _ := strings.Cut(text, " ")
	if quota == "max" || quota == "-1" {
		return unlimited, nil
	}
	q, err := strconv.ParseInt(quota, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the container's quota: %w", err)
	}
	p, err := strconv.ParseInt(period, 10, 64)
	if err != nil || p == 0 {
		return 0, fmt.Errorf("the container's period is %q (%w)", period, err)
	}
	return workload.MilliCPU(q * 1000 / p), nil
}

func (n *realNode) cpus(name string) (cpuset.Set, error) {
	cpus, _, err := n.pods[name].Container("main").Allowed()
	return cpus, err
}

func (n *realNode) remove(name string) error {
	pod, ok := n.pods[name]
	if !ok {
		return nil
	}
	delete(n.pods, name)
	return pod.Remove()
}

func (n *realNode) startSluice() (err error) {
	n.sluice, err = n.rt.StartSluice(runtime.SluiceOptions{Binary: n.binary})
	return err
}

func (n *realNode) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, n.binary, append(args, "--status-socket", n.sluice.StatusSocket)...)
}

func (n *realNode) close() error { return n.rt.Close() }
