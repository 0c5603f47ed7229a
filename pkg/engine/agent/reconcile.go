package agent

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// newReconciler makes the reconciler of cgroups' settings. The journal must be loaded before.
func (a *Agent) newReconciler() *reconcile.Reconciler {
	return reconcile.New(reconcile.Options{
		Kernel: a.Kernel, Journal: a.Journal, Features: &a.QoS.Features, Log: a.Log, Now: a.Now,
		MayWrite:      func() bool { return a.Authority().Cgroups },
		DriftInterval: func() time.Duration { return a.Config.DriftInterval },
		Carried:       func(at reconcile.Key) (knobs.Value, bool) { return a.record.Unadjusted(at) },
		Updating:      func(path string) bool { return a.record.Updating(path) },
		Starting:      a.IsStarting,
		Suspect:       a.Suspect,
		Failed: func(at reconcile.Key) {
			if c := a.ByPath[at.Path]; c != nil {
				a.cpusets.Observe(c, at.Knob)
			}
		},
		Blocking: a.Clock != nil,
		Spawn:    a.Spawn,
		Post:     a.Post,
		Panicked: func() { a.Counters.Panics++ },
	})
}
