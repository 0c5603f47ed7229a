package agent

import (
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/node"
)

// settings is an assignment as the runtime is told it. A container that once had
// a cpuset is told all CPUs by number: the runtime knows no "as the parent".
func (a *Agent) settings(c *node.Container, as placement.Assignment) node.Settings {
	if c.Uncontrolled {
		return node.Settings{}
	}
	if a.Authority().Foreign {
		return node.Settings{Carried: c.Carried}
	}
	s := node.Settings{CPUs: as.CPUs, Mems: as.Mems, Unlimited: as.Unlimited, Carried: c.Carried}
	if c.Touched && s.CPUs.IsEmpty() {
		s.CPUs = a.Usable()
	}
	if c.Touched && s.Mems.IsEmpty() && !c.Recorded.Mems.IsEmpty() {
		s.Mems = a.Ledger.Machine().MemoryNodes()
	}
	return s
}
