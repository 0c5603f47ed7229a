package node

import (
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Runtime sends updates to the container runtime outside any request; see
// pkg/runtime/nri. It blocks until the runtime has applied them.
type Runtime interface {
	Update(Update) error
}

// Update is what the runtime is told about one container.
type Update struct {
	ContainerID string
	Settings
}

// Settings are the values that the runtime can carry. An empty set is left as it is.
type Settings struct {
	CPUs, Mems cpuset.Set
	Unlimited  bool // no CFS quota
	Carried
}

// Carried is what the runtime can carry of what a container asks for beside its
// place; zero leaves a value as it is.
type Carried struct {
	Shares                           knobs.Shares
	Quota                            knobs.CPUQuota
	Memory                           knobs.Bytes // limit
	MemoryMin, MemoryLow, MemoryHigh knobs.Bytes // on cgroup v2
}

// Adjustment is what a new container gets.
type Adjustment struct {
	Settings
	OOMScoreAdj workload.Optional[int]
	RDTGroup    string // a resctrl group; "" none
}
