// Package podsettings declares to the reconciler the settings of the cgroups of pods, of their
// containers, and above pods: what annotations and classes ask for (pkg/decide/qos), and what
// the control loop wants in addition, such as quotas of batch work and weights of services. It
// records which of the loop's quotas and weights are in force, and which pods the kubelet is
// resizing, whose quotas are suspended meanwhile.
//
// The package owns Container.Notes and Container.Reclaim.
package podsettings

import (
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Settings declares the settings of all pods.
type Settings struct {
	*node.Node
	lacking   MissingFeatures
	noReclaim bool

	// Want is the CPU quotas and weights that the control loop wants; Enforce puts them in
	// force.
	Want     colocation.CPUDesired
	inForce  colocation.CPUDesired
	version  uint64 // changes with what is in force
	released uint64 // number of quotas that were given back without the loop

	resized map[string]podResize // pods under resize, by UID

	hosts []colocation.HostApplication // those whose cgroups existed at the last FindHosts

	lsWeights  colocation.LSWeights
	siblings   map[string]*colocation.Siblings // by the path of their parent
	siblingsOf inputs
	inventory  colocation.Inventory // reused by each Collect
}

// MissingFeatures appends to notes the features, other than cgroup files, that a request needs and this
// node lacks.
type MissingFeatures func(r *workload.Request, notes []qos.Note) []qos.Note

// inputs are the versions of the data that a list of cgroups was made from.
type inputs struct {
	changes uint64
	ledger  node.LedgerState
}

// New makes the settings of a node without pods. noReclaim reports that the kernel can't
// reclaim memory on request.
func New(n *node.Node, lacking MissingFeatures, noReclaim bool) *Settings {
	return &Settings{
		Node: n, lacking: lacking, noReclaim: noReclaim,
		Want: colocation.NewCPUDesired(), inForce: colocation.NewCPUDesired(), resized: map[string]podResize{},
	}
}

// InForce is the part of the loop's quotas and weights that is in force. The caller must not
// change it.
func (s *Settings) InForce() colocation.CPUDesired { return s.inForce }

// Inherit records that all of Want is in force already, since an earlier run set it.
func (s *Settings) Inherit() { s.inForce = s.Want.Clone() }

// Version changes whenever InForce does.
func (s *Settings) Version() uint64 { return s.version }

// Released counts the quotas of batch pods that were given back without the loop. When it
// changes, the budget has to be divided again.
func (s *Settings) Released() uint64 { return s.released }

// Collected is the result of the last Collect.
func (s *Settings) Collected() *colocation.Inventory { return &s.inventory }

// Saved is a copy of what the loop wants and of what is in force.
type Saved struct{ want, inForce colocation.CPUDesired }

// Save copies what the loop wants and what is in force.
func (s *Settings) Save() Saved { return Saved{s.Want.Clone(), s.inForce.Clone()} }

// Restore goes back to a saved state.
func (s *Settings) Restore(saved Saved) { s.Want, s.inForce = saved.want, saved.inForce }
