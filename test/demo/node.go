package main

import (
	"context"
	"os/exec"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// node is a machine with a container runtime.
type node interface {
	machine() *topology.Machine
	// seen returns the heading of run's results.
	seen() string
	// run runs a pod and returns what its container saw first. A pod whose container was refused
	// exists as well, until it is removed.
	run(pod) (first, error)
	// cpus returns the CPUs on which the pod's container may run now.
	cpus(name string) (cpuset.Set, error)
	remove(name string) error
	startSluice() error
	// command returns a command line of the running plugin.
	command(ctx context.Context, args ...string) *exec.Cmd
	close() error
}

// pod is a pod with the single container main.
type pod struct {
	name, namespace string
	class           workload.Class
	annotated       bool // the class is in an annotation; otherwise it is the default
	guaranteed      bool // limits equal requests
	cpu             workload.MilliCPU
	memory          int64 // in bytes
}

const classKey = "class.sluice.dev"

func (p pod) annotations() map[string]string {
	if !p.annotated {
		return nil
	}
	return map[string]string{classKey: p.class.String()}
}

// first is what a container sees at its first instruction.
type first struct {
	cpus, nodes cpuset.Set
	limit       workload.MilliCPU // from its CFS quota; unlimited without one
}

// unlimited is the limit of a container without a quota.
const unlimited = -1
