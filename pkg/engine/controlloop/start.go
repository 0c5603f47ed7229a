package controlloop

import (
	"context"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/runtime/evict"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Evictor ends pods; see pkg/runtime/evict. It blocks until the pod has ended or the API server
// has accepted the eviction.
type Evictor interface {
	Evict(ctx context.Context, pod evict.Pod) error
}

// evictionTime is how long an eviction may take beyond the pod's grace period.
const evictionTime = 2 * time.Minute

// evict ends a pod in a goroutine of its own, since a runtime may take long.
func (l *Loop) evict(victim control.Victim) {
	ctx, cancel := context.WithTimeout(l.ctx, victim.Grace+evictionTime)
	var err error
	evictor := l.Evictor // a reload may replace it
	if victim.By == control.EvictCRI && l.LastResort != nil {
		evictor = l.LastResort
	}
	pod := evict.Pod{UID: victim.UID, Ref: victim.Ref, Grace: victim.Grace, Why: victim.Why, DecidedAt: l.Now(), CoolDown: victim.CoolDown}
	l.Aside("evicted", func() {
		defer cancel()
		err = evictor.Evict(ctx, pod)
	}, func() {
		l.Controllers.Eviction.Done(victim.UID, victim.By, err, l.Now())
		if err != nil {
			l.Log.WithField("pod", victim.Ref).WithError(err).Warn("Pod could not be evicted; it counts for nothing, and another may be chosen")
		}
	})
}

// givenCPU is the CPU that batch work may use now; 0 if that isn't known.
func (l *Loop) givenCPU() workload.MilliCPU {
	v := &l.View.View
	if len(v.Pools) == 0 {
		return 0
	}
	if b := &l.budget; b.Amount > 0 && !b.Hold {
		return b.Amount
	}
	return l.apartCPU()
}

// apartCPU is the CPU that batch work can use if its pool has CPUs of its own: these, and what the
// other pools leave of their spare ones.
func (l *Loop) apartCPU() workload.MilliCPU {
	v := &l.View.View
	return workload.MilliCPU(v.Pools[len(v.Pools)-1].Size)*1000 + v.Idle()
}

// Admitted records whether a container may start, so that a pod that never may is evicted.
func (l *Loop) Admitted(c *node.Container, r *workload.Request, err error) {
	l.stuck.admitted(c, r, err, l.Now())
}

// MayStart refuses batch work while the node accepts none, and pods that were evicted a short
// time ago.
func (l *Loop) MayStart(c *node.Container, r *workload.Request) error {
	now := l.Now()
	if err := colocation.RefusePod(l.refusal.Pods, c.Pod.UID, now); err != nil || r.Class != workload.BE {
		return err
	}
	if err := l.noBatch(now).Err(); err != nil {
		return err
	}
	return l.Memory.MayStart(c, r)
}

// noBatch reports whether, why and until when no batch work may start on this node. Both the
// refusal of a start and the status use it.
func (l *Loop) noBatch(now time.Time) colocation.Refusal {
	r := colocation.Refusals{Rule: l.ruleRefuses}
	if l.Authority().Acts("") {
		r.Switch, r.Batch = l.switchInForce(now), l.View.Batch
	}
	if l.Config.Control.Eviction.RefuseNew {
		r.Eviction = l.refusal
	}
	return r.NewBatch(now)
}

// readSwitch reads the node's own batch switch. If that fails, the switch stays as it was.
func (l *Loop) readSwitch() {
	if l.switchReader == nil {
		return
	}
	s, err := l.switchReader.Read(l.Now())
	l.batchSwitch = control.Switch{To: s.To, Evict: s.Evict, Until: s.Until}
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem == l.switchProblem {
		return
	}
	l.switchProblem = problem
	if err != nil {
		l.Log.WithError(err).Error("The batch switch can't be read; what it said before counts")
	} else {
		l.Log.Info("The batch switch can be read again")
	}
}

// switchInForce returns what the node's own switch and the fleet's say together. It holds even
// while the loop makes no steps.
func (l *Loop) switchInForce(now time.Time) control.Switch {
	l.readSwitch()
	var fleet control.Switch
	if l.FleetSwitch != nil {
		s := l.FleetSwitch()
		fleet = control.Switch{To: s.State, Evict: s.Evict, Until: s.EndsAt}
	}
	return control.Strictest(now, l.batchSwitch, fleet)
}

// BoundBeforeStart divides the budget again before a container starts, so that a batch pod is
// bounded from its first instruction, and a service starts in no cgroup that bounds batch work.
func (l *Loop) BoundBeforeStart() {
	if !l.begun || !l.Settings.BoundsByQuota() {
		return
	}
	l.Refresh()
	switch {
	case l.budget.Unlimited:
		return
	case l.budget.Amount > 0:
		l.dividedBudget = l.budget.Amount
		l.divide(l.dividedBudget)
	default: // the controllers have made no decision yet
		for dir := range l.Settings.Want.BatchCgroups {
			if !l.View.BatchCgroups.Bounds(dir) {
				delete(l.Settings.Want.BatchCgroups, dir)
			}
		}
	}
	l.Settings.Enforce()
}
