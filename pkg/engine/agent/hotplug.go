package agent

import (
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// SetMachine moves all containers to a machine with other CPUs or memory nodes.
func (a *Agent) SetMachine(m *topology.Machine) {
	a.events.Do("hotplug", func() error { //nolint:errcheck // fails only if the agent has ended
		old := a.Ledger.Machine()
		a.Ledger.SetMachine(m)
		a.Log.WithField("online", m.Online.String()).WithField("was", old.Online.String()).Info("The machine changed")
		a.cpusets.MachineChanged(old)
		a.completePins()
		if !cpuset.Difference(old.Online, m.Online).IsEmpty() {
			a.cpusets.CPUsWent()
		}
		a.cpusets.LiftAll()
		a.noteChange()
		return nil
	})
}
