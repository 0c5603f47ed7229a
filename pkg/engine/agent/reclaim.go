package agent

import (
	"maps"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/kernel/reclaim"
)

// Reclaimer reclaims memory in the background; see pkg/kernel/reclaim.
type Reclaimer interface {
	Set(targets map[string]reclaim.Target)
}

// retarget passes the cgroups' memory targets to the reclaimer when they have changed.
func (a *Agent) retarget() {
	if a.options.Reclaimer == nil {
		return
	}
	targets := map[string]reclaim.Target{}
	for _, c := range a.Order {
		if c.Started && c.Reclaim != (qos.Reclaim{}) && a.Authority().Cgroups {
			targets[c.Path] = reclaim.Target(c.Reclaim)
		}
	}
	if !maps.Equal(targets, a.targets) {
		a.targets = targets
		a.options.Reclaimer.Set(targets)
	}
}

// stopReclaiming clears the reclaimer's targets.
func (a *Agent) stopReclaiming() {
	if a.options.Reclaimer != nil {
		a.targets = nil
		a.options.Reclaimer.Set(nil)
	}
}
