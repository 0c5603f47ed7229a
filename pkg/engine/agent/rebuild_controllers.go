package agent

import (
	"reflect"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// renew makes the controllers anew whose part of the configuration has changed: they
// begin with what they find. The others go on with what they have learned.
func (a *Agent) renew(before *config.Config) {
	l := &a.loop
	l.stale = true
	l.requests, l.short = l.requests[:0], l.short[:0]
	if !l.made {
		l.failed = ""
		return
	}
	old := l.controllers
	a.book.KeepState(benefitState, old.benefit.Counts()) //nolint:errcheck // begins anew
	a.book.KeepState(peaksState, old.sell.Peaks())       //nolint:errcheck // begins anew
	fresh, err := a.newControllers()
	if err != nil { // its windows are checked with the file
		a.Log.WithError(err).Error("The control loop goes on by the configuration before")
		return
	}
	l.controllers = fresh
	c, was, now := &l.controllers, &before.Control, &a.Config.Control
	c.interference, c.noisy, c.overAsk, c.outgrown, c.benefit = old.interference, old.noisy, old.overAsk, old.outgrown, old.benefit
	law := reflect.DeepEqual(before.PoolLaw(), a.Config.PoolLaw()) && before.Pools.Mode == a.Config.Pools.Mode
	same := func(own, other control.Mode, x, y any) bool {
		return a.authorityBy(before).Of(own) == a.authority().Of(other) && reflect.DeepEqual(x, y)
	}
	if reflect.DeepEqual(was.Windows, now.Windows) {
		c.windows = old.windows
	}
	if law && same("", "", was.Rules, now.Rules) {
		c.rules, c.tellRules = old.rules, old.tellRules
	} else {
		l.ruleRefuses = ""
	}
	if law && same(was.Pools.Mode, now.Pools.Mode, was.Pools, now.Pools) {
		c.pools = old.pools
	} else {
		l.poolSizes = control.PoolSizes{}
	}
	if law && same(was.Batch.Mode, now.Batch.Mode, was.Batch, now.Batch) {
		c.batch, c.lend = old.batch, old.lend
	}
	if same(was.Cache.Mode, now.Cache.Mode, was.Cache, now.Cache) && sameRDT(before, a.Config) {
		c.cache = old.cache
	} else {
		l.slice = control.Slice{}
	}
	if same(was.Burst.Mode, now.Burst.Mode, was.Burst, now.Burst) {
		c.burst = old.burst
	}
	if law && same(was.Demotion.Mode, now.Demotion.Mode, was.Demotion, now.Demotion) {
		c.demotion = old.demotion
	}
	if law && same(was.Memory.Mode, now.Memory.Mode, was.Memory, now.Memory) {
		c.memory = old.memory
	}
	if same(was.Eviction.Mode, now.Eviction.Mode, was.Eviction, now.Eviction) {
		c.eviction = old.eviction
	} else {
		l.refusal, l.evicted = control.Refusal{}, 0
	}
	if same("", "", was.Sell, now.Sell) && was.Batch.Reserved == now.Batch.Reserved && was.Memory.Reserve == now.Memory.Reserve {
		c.sell = old.sell
	}
	a.look()
}
