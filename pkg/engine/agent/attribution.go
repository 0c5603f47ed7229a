package agent

import (
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// suspectOf names who is likely to have moved a container from what it was known
// to have to what it is seen to have.
func (a *Agent) suspectOf(c *node.Container, known placement.Assignment) string {
	switch {
	case c.Has.CPUs != known.CPUs:
		return a.Suspect(c.Object(), knobs.CPUs, knobs.CPUSet(c.Has.CPUs))
	case c.Has.Mems != known.Mems:
		return a.Suspect(c.Object(), knobs.Mems, knobs.CPUSet(c.Has.Mems))
	}
	return a.Suspect(c.Object(), knobs.Quota, c.Quota)
}
