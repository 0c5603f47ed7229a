package node

import (
	"errors"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// ErrNoAnswer means that the connection to the runtime ended before its answer: it may apply the update
// all the same, at any later time.
var ErrNoAnswer = errors.New("the connection ended before the runtime's answer")

// Runtime sends unsolicited updates to the container runtime; see pkg/runtime/nri. It blocks
// until the runtime has applied or refused them, or the connection has ended (ErrNoAnswer).
type Runtime interface {
	Update(Update) error
}

// Update is an update of one container by the runtime.
type Update struct {
	ContainerID string
	Settings
}

// Settings are the values that the runtime can set. It ignores an empty set of CPUs or memory
// nodes.
type Settings struct {
	CPUs, Mems cpuset.Set
	Unlimited  bool         // without a CFS quota
	Carried    knobs.Values // values of the other knobs that runtimes can set (see knobs.RuntimeField)
}

// Adjustment is what the runtime sets of a new container.
type Adjustment struct {
	Settings
	OOMScoreAdj workload.Optional[int]
	RDTGroup    string // the resctrl group; "" for none
	Notices     string // the node's folder with the pod's notices (pkg/engine/notices), to mount; "" for none
}
