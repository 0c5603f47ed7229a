package agent

import (
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/groups"
)

// renew makes the controllers whose part of the configuration has changed again: they begin
// with what they find. The others go on with what they have learned.
func (a *Agent) renew(before *config.Config) {
	l := &a.loop
	a.Changed()
	l.short = l.short[:0]
	if !l.made {
		l.failed = ""
		return
	}
	a.keepLearned()
	old := l.controllers
	next, err := old.Renew(a.loopSettings(before), a.loopSettings(a.Config), groups.SameRDT(before, a.Config))
	if err != nil { // its windows are checked with the file
		a.Log.WithError(err).Error("The control loop goes on by the configuration before")
		return
	}
	l.controllers = next
	if next.Rules != old.Rules {
		l.ruleRefuses = ""
	}
	if next.Pools != old.Pools {
		l.poolSizes = control.PoolSizes{}
	}
	if next.Cache != old.Cache {
		a.groups.ShareCache(control.CacheShare{})
	}
	if next.Eviction != old.Eviction {
		l.refusal, l.evicted = control.Refusal{}, 0
	}
	a.look()
}
