package agent

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/grantrecord"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// lookInterval is how often other managers of CPUs are looked for.
const lookInterval = 30 * time.Second

// lookAround looks now and then for who else on this node sets CPUs. It reads all
// of /proc, so the loop does not wait for it.
func (a *Agent) lookAround(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookInterval):
		}
		found, err := peers.Detect(a.Host)
		record := grantrecord.Find(a.Host)
		a.events.Do("neighbours", func() error { //nolint:errcheck // only a closed agent fails it
			a.meet(found, err)
			a.groups.SetUp() // who has gone may have kept Sluice from it
			a.Grants.Follow(record)
			return nil
		})
	}
}

// meet takes note of who else sets CPUs.
func (a *Agent) meet(found []peers.Neighbour, err error) {
	if before := a.unseen; err != nil && (before == nil || before.Error() != err.Error()) {
		a.Log.WithError(err).Warn("Other resource managers could not be looked for: those known before count as still there")
	}
	if a.unseen = err; err != nil {
		for _, n := range a.Neighbours {
			if !slices.ContainsFunc(found, func(f peers.Neighbour) bool { return f.Kind == n.Kind }) {
				found = append(found, n)
			}
		}
	}
	for _, n := range found {
		if a.Neighbour(n.Kind) == nil {
			a.Log.WithField("evidence", n.Evidence).Warnf("%s: %s. %s", n.Kind, n.Response, n.Fix)
		}
	}
	a.Neighbours = found
	a.QoS.BurstLoop = a.Authority().Acts(a.Config.Control.Burst.Mode)
	a.Ledger.SetExternal(a.External())
}

// SetMachine moves everything to a machine with other CPUs or memory nodes.
func (a *Agent) SetMachine(m *topology.Machine) {
	a.events.Do("hotplug", func() error { //nolint:errcheck // only a closed agent fails it
		old := a.Ledger.Machine()
		a.Ledger.SetMachine(m)
		a.Log.WithField("online", m.Online.String()).WithField("was", old.Online.String()).Info("The machine changed")
		a.cpusets.MachineChanged(old)
		a.mend()
		if !cpuset.Difference(old.Online, m.Online).IsEmpty() {
			a.cpusets.CPUsWent()
		}
		a.cpusets.LiftAll()
		a.noteChange()
		return nil
	})
}
