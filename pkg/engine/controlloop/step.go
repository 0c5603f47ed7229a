package controlloop

import (
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// loopSettings is the part of a configuration that the controllers follow, with the modes that
// are effective on this node.
func (l *Loop) loopSettings(cfg *config.Config) *colocation.Settings {
	return &colocation.Settings{
		Config: &cfg.Control, Authority: l.AuthorityBy(cfg).Authority,
		PoolLaw: cfg.PoolLaw(), ExclusivePools: cfg.Pools.Mode == config.Exclusive, Zone: l.Now().Location(),
	}
}

// step steps the controllers, all of them or the fast ones alone, and carries out what they
// want.
func (l *Loop) step(all bool) {
	c := &l.Controllers
	in := colocation.Inputs{Config: &l.Config.Control, Authority: l.Authority().Authority, Evicts: l.Evictor != nil, NestedQuotas: l.Settings.NestsQuotas()}
	if all {
		batchSwitch := l.switchInForce(l.View.Now)
		windows := c.StepWindows(&l.View, &in, batchSwitch)
		l.Decisions.Add(l.View.Now, windows.Mode, windows.Decisions)
		c.StepPrediction(&l.View, &in)
		notice, decided := c.StepNotices(&l.View, &in, batchSwitch)
		l.Decisions.Add(l.View.Now, decided.Mode, decided.Decisions)
		l.stepNotices(notice)
	}
	l.stepPools(&in, all)
	if !all {
		l.Settings.Enforce()
		return
	}

	l.View.Stuck, l.View.HasCRI = l.stuck.list(l.View.Now), l.LastResort != nil
	var apiPods map[string]evictorder.Pod
	if l.APIPods != nil {
		apiPods = l.APIPods()
	}
	l.View.SetAPIPods(apiPods)
	in.Short, in.Given, in.Owed, in.Resizing, in.Separated = l.short, l.givenCPU(), l.Memory.Owed(), l.Settings.Resizing(), l.Ledger.Separations()
	l.perform(c.Step(&l.View, &in, l.Settings.Want))
	l.stepAdvisors(&l.View.View)
	l.stepSeparation(&in)
}

// stepSeparation keeps noisy pods apart from the others of their pools.
func (l *Loop) stepSeparation(in *colocation.Inputs) {
	pods, acts, decided := l.Controllers.StepSeparation(&l.View, in, l.disturbed, l.Authority().Cpusets, l.Ledger.Separable)
	l.Decisions.Add(l.View.Now, decided.Mode, decided.Decisions)
	if !acts {
		pods = nil
	}
	l.separate(pods)
}

// separate keeps these pods apart, and no others.
func (l *Loop) separate(pods []string) {
	before := l.Ledger.Version()
	l.Ledger.Separate(pods)
	if l.Ledger.Version() != before {
		l.moveShared()
	}
}

// moveShared moves containers without CPUs of their own after the ledger has divided the CPUs anew.
func (l *Loop) moveShared() {
	l.Record.PoolsResized()
	l.CPUSets.TryApply()
	l.measurePools()
}

// perform carries out what the controllers want.
func (l *Loop) perform(d *colocation.Desired) {
	for _, by := range d.Decisions {
		l.Decisions.Add(l.View.Now, by.Mode, by.Decisions)
	}
	l.disturbed = d.Disturbed
	l.Groups.ShareCache(d.Cache)
	l.Memory.Apply(d)
	l.refusal, l.ruleRefuses = d.Refusal, d.RuleRefuse
	if d.Evict != nil {
		l.evict(*d.Evict)
	}
	l.Settings.Enforce()
}

// stepPools divides the CPUs: between exclusive pools, or, where batch work overlaps the other
// pools, into those that it may use and the rest.
func (l *Loop) stepPools(in *colocation.Inputs, all bool) {
	c, cfg := &l.Controllers, in.Config
	v, may := &l.View.View, in.Authority
	if l.Config.Pools.Mode == config.Exclusive {
		if v.Lent = 0; !may.Decides(cfg.Pools.Mode) {
			return
		}
		var decided colocation.Decided
		l.poolSizes, l.short, decided = c.StepPools(&l.View, in, l.short[:0])
		l.Decisions.Add(l.View.Now, decided.Mode, decided.Decisions)
		if may.Acts(cfg.Pools.Mode) {
			l.keepWeights(all)
			if l.Authority().Cpusets {
				l.Ledger.SetSpare(l.poolSizes.Spare)
			}
			l.resizePools(l.poolSizes.CPUs)
		}
		return
	}
	if all && may.Decides(cfg.Demotion.Mode) {
		l.short = control.Crowded(l.short[:0], v, l.Config.PoolLaw(), cfg.Batch.Floor(v), cfg.Interval)
	}
	if !may.Decides(cfg.Batch.Mode) {
		return
	}
	l.keepWeights(all)
	l.lend(v)
	budget, decided := c.Batch.Step(v)
	l.Decisions.Add(l.View.Now, may.Of(cfg.Batch.Mode), decided)
	l.budget = budget
	if may.Acts(cfg.Batch.Mode) && !budget.Hold {
		l.bound(&budget, all)
	}
}

// keepWeights keeps the weight of services above that of batch work where both share CPUs.
func (l *Loop) keepWeights(all bool) {
	if all {
		l.Settings.Reweigh()
	} else {
		l.Settings.KeepClasses()
	}
}

// resizePools changes the pools' sizes and moves their containers; nil restores the configured
// sizes.
func (l *Loop) resizePools(sizes []int) {
	if l.Authority().Foreign {
		return
	}
	l.Ledger.SetSizes(sizes)
	if l.LedgerState() != l.poolsOf {
		l.moveShared()
	}
}

// bound limits batch work to its budget, by CPU set, quota or both.
func (l *Loop) bound(b *control.Budget, all bool) {
	by := l.Settings.Mechanism()
	l.sizes = colocation.PoolSizesFor(l.sizes[:0], b, by, len(l.View.Pools))
	l.resizePools(l.sizes)
	if by == control.ByCPUSet || b.Unlimited {
		l.Settings.Want.ForgetBatchQuotas()
		l.dividedBudget = notDivided
		return
	}
	if all || b.Amount != l.dividedBudget || l.dividedReleased != l.Settings.Released() {
		l.dividedBudget = b.Amount
		l.divide(b.Amount)
	}
}

// notDivided means that no budget has been divided yet.
const notDivided workload.MilliCPU = -1

// divide divides batch work's budget between the batch cgroups and the pods outside of them.
func (l *Loop) divide(amount workload.MilliCPU) {
	l.dividedReleased = l.Settings.Released()
	l.divider.Divide(&l.View, &colocation.Budget{
		Amount: amount, Floor: l.Config.Control.Batch.Floor(&l.View.View),
		Now: l.Now(), Resizing: l.Settings.Resizing(), NestedQuotas: l.Settings.NestsQuotas(), IdleClass: l.Settings.QoS.IdleClass(),
	}, l.Settings.InForce(), l.Settings.Want)
}

// lend lets batch work run on the CPUs of idle LSR pins, and takes it off those of pins that
// are idle no longer.
func (l *Loop) lend(v *control.View) {
	if !l.Config.Control.Batch.LendLSR {
		l.lendCPUs(cpuset.Set{})
		return
	}
	idle, decided := l.Controllers.Lend.Step(v, v.Isolated)
	l.Decisions.Add(l.View.Now, l.Authority().Of(l.Config.Control.Batch.Mode), decided)
	var cpus cpuset.Set
	for _, id := range idle {
		if h, ok := l.Ledger.Holder(id); ok {
			cpus = cpuset.Union(cpus, h.CPUs)
		}
	}
	if !l.Settings.Lends() {
		cpus = cpuset.Set{}
	}
	l.lendCPUs(cpus)
}

func (l *Loop) lendCPUs(cpus cpuset.Set) {
	before := l.Ledger.Version()
	l.Ledger.Lend(cpus)
	l.View.Lent = node.Milli(l.Ledger.Lent())
	if l.Ledger.Version() != before {
		l.moveShared()
	}
}

// stepAdvisors steps the controllers that only report, and saves what they have learned.
func (l *Loop) stepAdvisors(v *control.View) {
	c := &l.Controllers
	noisy, decided := c.Noisy.Step(v)
	l.Decisions.Add(l.View.Now, control.Preview, decided)
	l.advice = append(append(append(l.advice[:0], c.Burst.Advice()...), noisy...), c.OverAsk.Step(v)...)
	l.advice = append(l.advice, c.Outgrown.Step(v)...)

	given := l.givenCPU()
	squeezed := 0
	if given < l.givenBefore {
		squeezed = 1
	}
	l.givenBefore = given
	kills := c.Eviction.Counts().Evicted
	c.Benefit.Step(v, control.Given{CPU: given, Squeezes: squeezed, Kills: kills - l.evictedBefore})
	l.evictedBefore = kills
	l.free = l.Ledger.Pinnable(l.free[:0])
	if l.Authority().Foreign { // next to a neighbour that sets CPUs, pins are refused
		clear(l.free)
	}
	l.offer, decided = c.Offering.Step(v, l.free)
	l.Decisions.Add(l.View.Now, control.Preview, decided)
	l.tellHosts()
	l.saveRegularly()
	l.saveUsage()
}
