package agent

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/workload/grants"
)

// neighboursInterval is the time between two searches for neighbours.
const neighboursInterval = 30 * time.Second

// watchNeighbours searches for neighbours, other agents that set CPUs on this node, and for swap. A
// search reads much of /proc, so it runs outside of the event loop.
func (a *Agent) watchNeighbours(ctx context.Context, search *peers.Search) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(neighboursInterval):
		}
		kubelet, found, err := search.Detect()
		swap, swapErr := procfs.HasSwap(a.Host)
		a.events.Do("neighbours", func() error { //nolint:errcheck // fails only if the agent has ended
			wrote := a.Authority().Writes
			a.setNeighbours(found, err)
			if !wrote { // a neighbour that is gone may have kept Sluice from both
				a.raiseWatermarks()
				a.setNewidle()
			}
			a.setDisks()     // some may be new
			a.groups.SetUp() // a neighbour that is gone may have kept Sluice from core scheduling
			a.Grants.Follow(kubelet.File(grants.File))
			if swapErr == nil {
				a.setSwap(swap)
			}
			return nil
		})
	}
}

// setNeighbours records who else sets CPUs on this node.
func (a *Agent) setNeighbours(found []peers.Neighbour, err error) {
	if before := a.detectProblem; err != nil && (before == nil || before.Error() != err.Error()) {
		a.Log.WithError(err).Warn("Other resource managers could not be looked for: those known before count as still there")
	}
	if a.detectProblem = err; err != nil {
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

// setSwap records whether the node has swap. If that changes, containers that stay out of swap get
// their setting, or their original value back.
func (a *Agent) setSwap(has bool) {
	if has == a.QoS.Swap {
		return
	}
	a.QoS.Swap = has
	if a.Synced { // before that, no container is known, and all that they have would be given back
		a.podsettings.ReconcileAll(a.loop.Memory.Owns)
		a.noteChange()
	}
}
