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
	Unlimited  bool         // no CFS quota
	Carried    knobs.Values // of the other knobs that runtimes can set (see knobs.RuntimeField)
}

// Adjustment is what a new container gets.
type Adjustment struct {
	Settings
	OOMScoreAdj workload.Optional[int]
	RDTGroup    string // a resctrl group; "" none
}
