// Package podsettings declares to the reconciler what the cgroups of pods, of their containers,
// and above pods are to have: what annotations and classes ask for (pkg/decide/qos), and what
// the control loop wants besides, such as quotas of batch work and weights of what isn't batch.
// It owns what is in force of the loop's wishes, and which pods the kubelet is resizing, whose
// settings stand back meanwhile.
package podsettings

import (
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Settings are the settings of all pods.
type Settings struct {
	*node.Node
	lacking   Lacking
	noReclaim bool

	// Want is what the control loop wants of CPU quotas and weights; Enforce brings it about.
	Want     colocation.CPUDesired
	inForce  colocation.CPUDesired
	version  uint64 // of what is in force
	released uint64 // counts the quotas that were let go without the loop

	resized map[string]podResize // by the pod's UID

	lsWeights  colocation.LSWeights
	siblings   map[string]*colocation.Siblings // by the path of their parent
	siblingsOf inputs
	inventory  colocation.Inventory // used again by each Collect
}

// Lacking adds to a list what this node lacks for a request besides files of cgroups.
type Lacking func(r *workload.Request, notes []qos.Note) []qos.Note

// inputs are the versions of what a list of cgroups was made from.
type inputs struct {
	changes uint64
	ledger  node.LedgerState
}

// New makes the settings of a node without pods. noReclaim says that the kernel can't reclaim
// memory on request.
func New(n *node.Node, lacking Lacking, noReclaim bool) *Settings {
	return &Settings{
		Node: n, lacking: lacking, noReclaim: noReclaim,
		Want: colocation.NewCPUDesired(), inForce: colocation.NewCPUDesired(), resized: map[string]podResize{},
	}
}

// InForce is what is in force of the loop's wishes. It must not be changed.
func (s *Settings) InForce() colocation.CPUDesired { return s.inForce }

// Inherit takes what Want says for what is in force already, by an earlier run.
func (s *Settings) Inherit() { s.inForce = s.Want.Clone() }

// Version counts the changes of what is in force.
func (s *Settings) Version() uint64 { return s.version }

// Released counts the quotas of batch pods that were let go without the loop, whose budget is
// then to be divided anew.
func (s *Settings) Released() uint64 { return s.released }

// Collected is what the last Collect found.
func (s *Settings) Collected() *colocation.Inventory { return &s.inventory }

// Saved is what the loop wants, and what is in force of it, at one point in time.
type Saved struct{ want, inForce colocation.CPUDesired }

// Save keeps a copy of what the loop wants and of what is in force.
func (s *Settings) Save() Saved { return Saved{s.Want.Clone(), s.inForce.Clone()} }

// Restore goes back to what was saved.
func (s *Settings) Restore(saved Saved) { s.Want, s.inForce = saved.want, saved.inForce }
