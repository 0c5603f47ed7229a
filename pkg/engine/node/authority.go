package node

import (
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Authority is what Sluice may change on this node. It depends on the configuration, on
// neighbours that set the same things, and on the node's features.
type Authority struct {
	colocation.Authority             // what the control loop may change
	Mode                 config.Mode // the effective mode
	Cgroups              bool        // Sluice may write settings of cgroups
	Foreign              bool        // the kubelet's static CPU manager owns cpusets: Sluice must not write them
	Cpusets              bool        // Sluice may write cpusets
	RDT                  bool        // the configuration uses resctrl groups, and Sluice may write them
}

// Authority is what Sluice may change under the configuration in force.
func (n *Node) Authority() Authority { return n.AuthorityBy(n.Config) }

// AuthorityBy is what Sluice could change under a configuration that need not be in force.
func (n *Node) AuthorityBy(cfg *config.Config) Authority {
	may := Authority{Mode: cfg.Mode, Foreign: n.Neighbour(peers.CPUManager) != nil, Authority: colocation.Authority{Loop: cfg.Control.Mode}}
	if n.SecondWriter(cfg) != nil {
		may.Mode = config.Preview
	}
	r := &cfg.RDT
	may.Writes = may.Mode == config.On
	may.Cgroups = may.Writes && n.Kernel != nil
	may.Cpusets = may.Writes && !may.Foreign
	may.RDT = may.Writes && n.HasRDT && r.Mode == config.RDTOn && (len(r.Classes) > 0 || r.PerPod || r.Monitor)
	return may
}

// SecondWriter returns the neighbour that sets everything that Sluice sets, so that Sluice must
// only preview, or nil.
func (n *Node) SecondWriter(cfg *config.Config) *peers.Neighbour {
	if cfg.Mode != config.On || cfg.Neighbours != config.NeighboursPreview {
		return nil
	}
	return n.Neighbour(peers.Koordlet, peers.Katalyst)
}

// WhyLess explains why Sluice may change less than is configured; "" if it may change all.
func (n *Node) WhyLess() string {
	if n := n.SecondWriter(n.Config); n != nil {
		return fmt.Sprintf("%s: %s", n.Kind, n.Fix)
	}
	if n.Authority().Foreign {
		return "cpusets are the kubelet's: its static CPU manager is on"
	}
	return ""
}

// Neighbour returns the first neighbour of one of the listed kinds, or nil.
func (n *Node) Neighbour(kinds ...peers.Kind) *peers.Neighbour {
	for i := range n.Neighbours {
		if slices.Contains(kinds, n.Neighbours[i].Kind) {
			return &n.Neighbours[i]
		}
	}
	return nil
}

// External is the set of CPUs that the kubelet's static CPU manager has granted.
func (n *Node) External() cpuset.Set {
	var cpus cpuset.Set
	if n := n.Neighbour(peers.CPUManager); n != nil {
		for _, pin := range n.Pins {
			cpus = cpuset.Union(cpus, pin.CPUs)
		}
	}
	return cpus
}
