package agent

import (
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// loopSettings are the controllers' part of a configuration, as far as it is, or would be, in
// force.
func (a *Agent) loopSettings(cfg *config.Config) *colocation.Settings {
	return &colocation.Settings{
		Config: &cfg.Control, Authority: a.AuthorityBy(cfg).Authority,
		PoolLaw: cfg.PoolLaw(), ExclusivePools: cfg.Pools.Mode == config.Exclusive, Zone: a.Now().Location(),
	}
}

// step lets the controllers decide, all or the fast ones alone, and carries out what
// they want.
func (a *Agent) step(all bool) {
	l, c := &a.loop, &a.loop.controllers
	in := colocation.Inputs{Config: &a.Config.Control, Authority: a.Authority().Authority, Evicts: a.options.Evictor != nil}
	if all {
		windows := c.StepWindows(&l.view, &in, a.switched())
		a.decisions.Add(l.view.Now, windows.Mode, windows.Decisions)
	}
	a.stepPools(&in, all)
	if !all {
		a.podsettings.Enforce()
		return
	}

	in.Short, in.Given, in.Owed, in.Resizing = l.short, a.given(), a.memory.Owed(), a.podsettings.Resizing()
	a.perform(c.Step(&l.view, &in, a.podsettings.Want))
	a.count(&l.view.View)
}

// perform carries out what the controllers want.
func (a *Agent) perform(d *colocation.Desired) {
	l := &a.loop
	for _, by := range d.Decisions {
		a.decisions.Add(l.view.Now, by.Mode, by.Decisions)
	}
	l.disturbed = d.Disturbed
	a.groups.ShareCache(d.Cache)
	a.memory.Apply(d)
	l.refusal, l.ruleRefuses = d.Refusal, d.RuleRefuse
	if d.Evict != nil {
		a.evict(*d.Evict)
	}
	a.podsettings.Enforce()
}

// stepPools divides the CPUs: between pools that are apart, or what batch work may
// use of those that it shares.
func (a *Agent) stepPools(in *colocation.Inputs, all bool) {
	l, c, cfg := &a.loop, &a.loop.controllers, in.Config
	v, may := &l.view.View, in.Authority
	if a.Config.Pools.Mode == config.Exclusive {
		if !may.Decides(cfg.Pools.Mode) {
			return
		}
		var decided colocation.Decided
		l.poolSizes, l.short, decided = c.StepPools(&l.view, in, l.short[:0])
		a.decisions.Add(l.view.Now, decided.Mode, decided.Decisions)
		if may.Acts(cfg.Pools.Mode) {
			a.resizePools(l.poolSizes.CPUs)
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
		a.podsettings.Reweigh()
	} else {
		a.podsettings.KeepClasses()
	}
	a.lend(v)
	budget, decided := c.Batch.Step(v)
	a.decisions.Add(l.view.Now, may.Of(cfg.Batch.Mode), decided)
	l.budget = budget
	if may.Acts(cfg.Batch.Mode) && !budget.Hold {
		a.bound(&budget, all)
	}
}

// resizePools moves the pools to these sizes, and their containers with them; none is
// the configuration's own.
func (a *Agent) resizePools(sizes []int) {
	if a.Authority().Foreign {
		return
	}
	a.Ledger.SetSizes(sizes)
	if a.Ledger.Version() == a.loop.sized {
		return
	}
	a.record.PoolsResized()
	a.cpusets.TryApply()
	a.measurePools()
}
