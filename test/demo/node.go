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
	// seen is the heading of what run returns.
	seen() string
	// run runs a pod and returns what its container saw first. A pod whose
	// container was refused is there, too, until it is removed.
	run(pod) (first, error)
	// cpus is where the pod's container may run now.
	cpus(name string) (cpuset.Set, error)
	remove(name string) error
	startSluice() error
	// command is the command line of the running plugin.
	command(ctx context.Context, args ...string) *exec.Cmd
	close() error
}

// pod is a pod of one container, main.
type pod struct {
	name, namespace string
	class           workload.Class
	annotated       bool // the class is said in an annotation; else it is the default
	guaranteed      bool // limits are the requests
	cpu             workload.MilliCPU
	memory          int64 // bytes
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
	limit       workload.MilliCPU // by its CFS quota; unlimited without one
}

// unlimited is the limit of a container without a quota.
const unlimited = -1
