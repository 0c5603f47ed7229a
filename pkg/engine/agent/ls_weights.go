package agent

import (
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// failsafeWeights gives back the weights that the kubelet gave, so that what starts while the
// plugin is away competes with the others as it is due.
func (a *Agent) failsafeWeights(changes []knobs.Change) []knobs.Change {
	for t := range a.Reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if k.Knob != knobs.Weight || k.Favour == 0 {
				continue
			}
			e, kept := a.Journal.Entry(t.Path, knobs.Weight)
			if !kept || e.Wrote == nil {
				continue
			}
			without := k.Setting
			without.Favour = 100
			to := reconcile.Target(&without, e.Value, a.QoS.Features.Knobs[knobs.Weight].V2)
			changes = append(changes, knobs.Change{Object: t.Object, Knob: knobs.Weight, From: to, To: to, Why: "the loop is gone: the weight without its favour"})
		}
	}
	return changes
}
