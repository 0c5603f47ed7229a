package agent

import (
	"github.com/sluice-dev/sluice/pkg/engine/cpusets"
	"github.com/sluice-dev/sluice/pkg/engine/node"
)

// updates is what the runtime must be told, in the reply to the present request,
// about containers that have no cgroup to write.
func (a *Agent) updates(skip string) []node.Update {
	if a.told == a.Ledger.Version() || !a.Authority().Cpusets {
		return nil
	}
	a.told = a.Ledger.Version()
	var updates []node.Update
	for _, c := range a.Order {
		want, ok := a.Ledger.Assignment(c.ID)
		if !ok || c.ID == skip || c.Uncontrolled || a.Reaches(c) || len(cpusets.Changes(c, want, false)) == 0 {
			continue
		}
		a.cpusets.Touch(c)
		c.Has, c.Recorded = want, a.settings(c, want)
		updates = append(updates, node.Update{ContainerID: c.ID, Settings: c.Recorded})
	}
	return updates
}
