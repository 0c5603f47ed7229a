package agent

import (
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/peers"
)

// authority is what Sluice may change on this node: by its configuration, by who else sets
// the same things, and by what the node has.
type authority struct {
	colocation.Authority             // of the control loop
	Mode                 config.Mode // in force
	Cgroups              bool        // settings of cgroups
	Foreign              bool        // cpusets are the kubelet's, whose static CPU manager is on: there must be no second writer
	Cpusets              bool        // cpusets are Sluice's
	RDT                  bool        // resctrl groups, and the configuration has something done with them
}

// authority is that of the configuration in force.
func (a *Agent) authority() authority { return a.authorityBy(a.Config) }

// authorityBy is that of a configuration which need not be in force.
func (a *Agent) authorityBy(cfg *config.Config) authority {
	may := authority{Mode: cfg.Mode, Foreign: a.neighbour(peers.CPUManager) != nil, Authority: colocation.Authority{Loop: cfg.Control.Mode}}
	if a.secondWriter(cfg) != nil {
		may.Mode = config.Preview
	}
	r := &cfg.RDT
	may.Writes = may.Mode == config.On
	may.Cgroups = may.Writes && a.Kernel != nil
	may.Cpusets = may.Writes && !may.Foreign
	may.RDT = may.Writes && a.RDT != nil && r.Mode == config.RDTOn && (len(r.Classes) > 0 || r.PerPod || r.Monitor)
	return may
}

// secondWriter is who sets all that Sluice sets, so that it only previews; nil if nobody.
func (a *Agent) secondWriter(cfg *config.Config) *peers.Neighbour {
	if cfg.Mode != config.On || cfg.Neighbours != config.NeighboursPreview {
		return nil
	}
	return a.neighbour(peers.Koordlet, peers.Katalyst)
}

// whyLess is why less may be changed than is configured; "" where all may.
func (a *Agent) whyLess() string {
	if n := a.secondWriter(a.Config); n != nil {
		return fmt.Sprintf("%s: %s", n.Kind, n.Fix)
	}
	if a.authority().Foreign {
		return "cpusets are the kubelet's: its static CPU manager is on"
	}
	return ""
}

// neighbour returns the first neighbour whose kind is listed, nil where there is none.
func (a *Agent) neighbour(kinds ...peers.Kind) *peers.Neighbour {
	for i := range a.neighbours {
		if slices.Contains(kinds, a.neighbours[i].Kind) {
			return &a.neighbours[i]
		}
	}
	return nil
}
