package agent

import (
	"context"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/runtime/evict"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Evictor ends pods; see pkg/runtime/evict. It blocks until the pod has ended.
type Evictor interface {
	Evict(ctx context.Context, pod evict.Pod) error
}

// evictionTime is how long an evictor may take over a pod's grace.
const evictionTime = 2 * time.Minute

// evict ends a pod in a goroutine of its own: a runtime may take long.
func (a *Agent) evict(victim control.Victim) {
	ctx, cancel := context.WithTimeout(a.life, victim.Grace+evictionTime)
	var err error
	evictor := a.options.Evictor // another configuration may bring another
	a.Aside("evicted", func() {
		defer cancel()
		err = evictor.Evict(ctx, evict.Pod{UID: victim.UID, Ref: victim.Ref, Grace: victim.Grace})
	}, func() {
		a.loop.controllers.Eviction.Done(victim.UID, err, a.Now())
		if err != nil {
			a.Log.WithField("pod", victim.Ref).WithError(err).Warn("Pod could not be evicted; it counts for nothing, and another may be chosen")
		}
	})
}

// given is the CPU that batch work may use now, 0 where that isn't known.
func (a *Agent) given() workload.MilliCPU {
	v := &a.loop.view.View
	if len(v.Pools) == 0 {
		return 0
	}
	if b := &a.loop.budget; b.Amount > 0 && !b.Hold {
		return b.Amount
	}
	return workload.MilliCPU(v.Pools[len(v.Pools)-1].Size) * 1000
}

// mayStart refuses batch work while the node takes none, and what was just evicted.
func (a *Agent) mayStart(c *node.Container, r *workload.Request) error {
	now := a.Now()
	if err := colocation.RefusePod(a.loop.refusal.Pods, c.Pod.UID, now); err != nil || r.Class != workload.BE {
		return err
	}
	if err := a.noBatch(now).Err(); err != nil {
		return err
	}
	return a.memory.MayStart(c, r)
}

// noBatch is whether, why and until when no batch work may start on this node: for the
// container that is about to start, and for the status.
func (a *Agent) noBatch(now time.Time) colocation.Refusal {
	l := &a.loop
	r := colocation.Refusals{Rule: l.ruleRefuses}
	if a.Authority().Acts("") {
		r.SwitchedOff, r.Batch = a.switchedOff(now), l.view.Batch
	}
	if a.Config.Control.Eviction.RefuseNew {
		r.Eviction = l.refusal
	}
	return r.NewBatch(now)
}
