package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/protocol"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

const madeUp = "2 packages 8 cores 2 threads"

// syntheticNode is the runtime of the protocol tests, whose containers are records.
type syntheticNode struct {
	binary     string
	host       *topology.Machine
	root       string // folder with the machine's sysfs tree
	rt         *protocol.Runtime
	scope      *scope
	pods       map[string]*api.PodSandbox
	containers map[string]*protocol.Container
}

func startSynthetic(binary string) (n node, err error) {
	m, err := synth.Machine(madeUp)
	if err != nil {
		return nil, err
	}
	s := &syntheticNode{binary: binary, host: m, scope: &scope{}, pods: map[string]*api.PodSandbox{}, containers: map[string]*protocol.Container{}}
	err = s.scope.try(func() {
		s.rt = protocol.New(s.scope)
		s.root = s.rt.Host(s.scope, madeUp)
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (n *syntheticNode) machine() *topology.Machine { return n.host }

func (*syntheticNode) seen() string { return "What the runtime would start each container with:" }

func (n *syntheticNode) run(p pod) (first, error) {
	qos := "burstable"
	switch {
	case p.guaranteed:
		qos = "guaranteed"
	case p.cpu == 0 && p.memory == 0:
		qos = "besteffort"
	}
	sandbox, err := n.rt.RunPod(protocol.Pod{Namespace: p.namespace, Name: p.name, QoS: qos, Annotations: p.annotations()})
	if err != nil {
		return first{}, err
	}
	n.pods[p.name] = sandbox
	c, err := n.rt.Run(sandbox, "main", protocol.Requests{CPU: int64(p.cpu), Memory: p.memory})
	if err != nil {
		return first{}, err
	}
	n.containers[p.name] = c
	cpus, err := n.cpus(p.name)
	if err != nil {
		return first{}, err
	}
	nodes, err := cpuset.Parse(c.Linux.Resources.Cpu.Mems)
	if nodes.IsEmpty() {
		nodes = n.host.MemoryNodes()
	}
	limit := workload.MilliCPU(unlimited)
	if quota := c.Linux.Resources.Cpu.GetQuota().GetValue(); quota > 0 {
		limit = workload.MilliCPU(quota * 1000 / int64(c.Linux.Resources.Cpu.GetPeriod().GetValue()))
	}
	return first{cpus: cpus, nodes: nodes, limit: limit}, err
}

func (n *syntheticNode) cpus(name string) (cpuset.Set, error) {
	cpus, err := n.containers[name].CPUs()
	if cpus.IsEmpty() {
		cpus = n.host.Online
	}
	return cpus, err
}

func (n *syntheticNode) remove(name string) error {
	var errs []error
	if c, ok := n.containers[name]; ok {
		delete(n.containers, name)
		errs = append(errs, n.rt.Stop(c), n.rt.Remove(c))
	}
	if sandbox, ok := n.pods[name]; ok {
		delete(n.pods, name)
		errs = append(errs, n.rt.RemovePod(sandbox))
	}
	return errors.Join(errs...)
}

func (n *syntheticNode) startSluice() error {
	return n.scope.try(func() { n.rt.Sluice(n.scope, n.binary, n.root, "") })
}

func (n *syntheticNode) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, n.binary, append(args, "--status-socket", filepath.Join(n.rt.Dir, "status.sock"))...)
}

func (n *syntheticNode) close() error { return n.scope.end() }

// scope replaces the test whose end stops the protocol tests' runtime.
type scope struct {
	testing.TB
	cleanups []func()
	errs     []error
}

type failed struct{ text string }

func (f failed) Error() string { return f.text }

func (*scope) Helper() {}

func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) Error(args ...any) { s.errs = append(s.errs, failed{fmt.Sprint(args...)}) }

func (*scope) Fatal(args ...any) { panic(failed{fmt.Sprint(args...)}) }

func (*scope) Fatalf(format string, args ...any) { panic(failed{fmt.Sprintf(format, args...)}) }

// try runs a function that may call Fatal.
func (s *scope) try(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failed:
			err = p
		default:
			panic(p)
		}
	}()
	f()
	return nil
}

func (s *scope) end() error {
	for _, cleanup := range slices.Backward(s.cleanups) {
		cleanup()
	}
	return errors.Join(s.errs...)
}
