package node

import (
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Authority is what Sluice may change on this node: by its configuration, by who else sets
// the same things, and by what the node has.
type Authority struct {
	colocation.Authority             // of the control loop
	Mode                 config.Mode // in force
	Cgroups              bool        // settings of cgroups
	Foreign              bool        // cpusets are the kubelet's, whose static CPU manager is on: there must be no second writer
	Cpusets              bool        // cpusets are Sluice's
	RDT                  bool        // resctrl groups, and the configuration has something done with them
}

// Authority is that of the configuration in force.
func (n *Node) Authority() Authority { return n.AuthorityBy(n.Config) }

// AuthorityBy is that of a configuration which need not be in force.
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

// SecondWriter is who sets all that Sluice sets, so that it only previews; nil if nobody.
func (n *Node) SecondWriter(cfg *config.Config) *peers.Neighbour {
	if cfg.Mode != config.On || cfg.Neighbours != config.NeighboursPreview {
		return nil
	}
	return n.Neighbour(peers.Koordlet, peers.Katalyst)
}

// WhyLess is why less may be changed than is configured; "" where all may.
func (n *Node) WhyLess() string {
	if n := n.SecondWriter(n.Config); n != nil {
		return fmt.Sprintf("%s: %s", n.Kind, n.Fix)
	}
	if n.Authority().Foreign {
		return "cpusets are the kubelet's: its static CPU manager is on"
	}
	return ""
}

// Neighbour returns the first neighbour whose kind is listed, nil where there is none.
func (n *Node) Neighbour(kinds ...peers.Kind) *peers.Neighbour {
	for i := range n.Neighbours {
		if slices.Contains(kinds, n.Neighbours[i].Kind) {
			return &n.Neighbours[i]
		}
	}
	return nil
}

// External is the CPUs that the kubelet's static CPU manager gave away.
func (n *Node) External() cpuset.Set {
	var cpus cpuset.Set
	if n := n.Neighbour(peers.CPUManager); n != nil {
		for _, pin := range n.Pins {
			cpus = cpuset.Union(cpus, pin.CPUs)
		}
	}
	return cpus
}
