package agent

import (
	"cmp"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// controllers decide; see pkg/decide/control. They step in the order of the fields.
type controllers struct {
	windows      *control.Windows
	pools        *control.Pools
	batch        *control.Batch
	interference *control.Interference
	cache        *control.Cache
	burst        *control.Burst
	demotion     *control.Demotion
	memory       *control.Memory
	rules        *control.Rules
	tellRules    *control.Rules // those in preview
	eviction     *control.Eviction
	lend         *control.Lend
	noisy        *control.Noisy
	overAsk      *control.OverAsk
	outgrown     *control.Outgrown
	benefit      *control.Benefit
	sell         *control.Sell
}

// newControllers makes them by the configuration, which has been checked.
func (a *Agent) newControllers() (c controllers, err error) {
	cfg := &a.Config.Control
	pools := a.Config.PoolLaw()
	if c.windows, err = control.NewWindows(cfg.Windows, a.now().Location(), cfg.Interval); err != nil {
		return c, err
	}
	if c.rules, err = control.NewRules(cfg.Rules, control.On, cfg.Mode, pools, cfg.Interval); err != nil {
		return c, err
	}
	if c.tellRules, err = control.NewRules(cfg.Rules, control.Preview, cfg.Mode, pools, cfg.Interval); err != nil {
		return c, err
	}
	c.pools = control.NewPools(cfg.Pools, pools, cfg.Interval)
	c.batch = control.NewBatch(cfg.Batch, cfg.Interval)
	c.lend = control.NewLend(cfg.FastInterval)
	c.interference = control.NewInterference(cfg.Interval)
	c.cache = control.NewCache(cfg.Cache, cfg.Interval)
	c.burst = control.NewBurst(cfg.Burst, cfg.Interval)
	c.demotion = control.NewDemotion(cfg.Demotion, cfg.Interval)
	c.memory = control.NewMemory(cfg.Memory, pools, cfg.Interval)
	c.eviction = control.NewEviction(cfg.Eviction, cmp.Or(cfg.Eviction.Mode, cfg.Mode), cfg.Interval)
	c.noisy = control.NewNoisy(cfg.Interval)
	c.overAsk = control.NewOverAsk(cfg.Interval)
	c.outgrown = control.NewOutgrown(cfg.Interval)
	c.benefit = control.NewBenefit(cfg.Interval, a.keptBenefit())
	c.sell = control.NewSell(cfg.Sell, control.Amount{CPU: workload.MilliCPU(cfg.Batch.Reserved), Memory: int64(cfg.Memory.Reserve)}, cfg.Interval, a.keptPeaks())
	return c, nil
}

// step lets the controllers decide, all or the fast ones alone, and carries out what
// they want.
func (a *Agent) step(all bool) {
	may := a.authority()
	l, c, cfg := &a.loop, &a.loop.controllers, &a.Config.Control
	v := &l.view.View
	if all {
		state, decided := c.windows.Step(v, a.switched())
		v.Batch = state
		v.Batch.Evict = state.Evict && may.Heeds(cfg.Eviction.Mode, "")
		a.decide(may.Of(""), decided)
	}
	a.stepPools(v, all)
	if !all {
		a.intend(l.want)
		return
	}

	clear(l.want.Containers)
	victims, decided := c.interference.Step(v)
	a.decide(may.Of(cfg.Interference.Mode), decided)
	if may.Decides(cfg.Cache.Mode) {
		slice, decided := c.cache.Step(v)
		a.decide(may.Of(cfg.Cache.Mode), decided)
		a.narrow(slice, may.Acts(cfg.Cache.Mode))
	}
	if may.Decides(cfg.Burst.Mode) {
		quotas, decided := c.burst.Step(v)
		a.decide(may.Of(cfg.Burst.Mode), decided)
		a.wantQuotas(quotas, may.Acts(cfg.Burst.Mode))
	}
	v.Demoted = 0
	if may.Decides(cfg.Demotion.Mode) {
		quotas, decided := c.demotion.Step(v, l.short)
		a.decide(may.Of(cfg.Demotion.Mode), decided)
		a.wantQuotas(quotas, may.Acts(cfg.Demotion.Mode))
		if may.Acts(cfg.Demotion.Mode) {
			v.Demoted = c.demotion.Taken(v)
		}
	}
	l.requests = l.requests[:0]
	a.stepMemory(v)
	a.stepRules(v)
	a.pressMemory()
	a.stepEviction(v)
	a.intend(l.want)
	a.count(v, victims)
}

// stepPools divides the CPUs: between pools that are apart, or what batch work may
// use of those that it shares.
func (a *Agent) stepPools(v *control.View, all bool) {
	may := a.authority()
	l, c, cfg := &a.loop, &a.loop.controllers, &a.Config.Control
	if a.Config.Pools.Mode == config.Exclusive {
		if !may.Decides(cfg.Pools.Mode) {
			return
		}
		sizes, decided := c.pools.Step(v)
		a.decide(may.Of(cfg.Pools.Mode), decided)
		l.poolSizes = sizes
		l.short = l.short[:0]
		for i, missing := range sizes.Short {
			if missing > 0 && may.Heeds(cfg.Demotion.Mode, cfg.Pools.Mode) {
				l.short = append(l.short, control.Shortage{Pool: i, Missing: workload.MilliCPU(missing) * 1000, Apart: true})
			}
		}
		if may.Acts(cfg.Pools.Mode) {
			a.resizePools(sizes.CPUs)
		}
		return
	}
	if all && may.Decides(cfg.Demotion.Mode) {
		l.short = control.Crowded(l.short[:0], v, a.Config.PoolLaw(), cfg.Batch.Floor(v), cfg.Interval)
	}
	if !may.Decides(cfg.Batch.Mode) {
		return
	}
	if all {
		a.reweigh()
	} else {
		a.keepClasses()
	}
	a.lend(v)
	budget, decided := c.batch.Step(v)
	a.decide(may.Of(cfg.Batch.Mode), decided)
	l.budget = budget
	if may.Acts(cfg.Batch.Mode) && !budget.Hold {
		a.bound(&budget, all)
	}
}

// resizePools moves the pools to these sizes, and their containers with them; none is
// the configuration's own.
func (a *Agent) resizePools(sizes []int) {
	if a.authority().Foreign {
		return
	}
	a.ledger.SetSizes(sizes)
	if a.ledger.Version() == a.loop.sized {
		return
	}
	a.lane.pools = a.now().Add(steadyPools)
	a.settle("") //nolint:errcheck // what failed is in the log and is tried again
	a.measurePools()
	a.loop.unsafe = true
}

// steadyPools is for how long pools must have kept their sizes before the runtime is
// told of them: an update of its records takes it a fork for each container, and writes
// older quotas.
const steadyPools = time.Minute

// wantQuotas notes the quotas of containers that a controller wants.
func (a *Agent) wantQuotas(quotas []control.Quota, acting bool) {
	if !acting {
		return
	}
	for _, q := range quotas {
		a.wantQuota(q.ID, qos.Loop{Quota: colocation.Quota(q.CPU), Why: q.Why})
	}
}
