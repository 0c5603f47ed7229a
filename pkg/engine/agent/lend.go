package agent

import (
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// lend lets batch work run on the CPUs of idle LSR pins, and takes it off those of pins that
// are idle no longer.
func (a *Agent) lend(v *control.View) {
	l := &a.loop
	if !a.Config.Control.Batch.LendLSR {
		a.lendCPUs(cpuset.Set{})
		return
	}
	idle, decided := l.controllers.Lend.Step(v, v.Isolated)
	a.decisions.Add(l.view.Now, a.Authority().Of(a.Config.Control.Batch.Mode), decided)
	var cpus cpuset.Set
	for _, id := range idle {
		if h, ok := a.Ledger.Holder(id); ok {
			cpus = cpuset.Union(cpus, h.CPUs)
		}
	}
	if !a.podsettings.Lends() {
		cpus = cpuset.Set{}
	}
	a.lendCPUs(cpus)
}

func (a *Agent) lendCPUs(cpus cpuset.Set) {
	before := a.Ledger.Version()
	a.Ledger.Lend(cpus)
	a.loop.view.Lent = node.Milli(a.Ledger.Lent())
	if a.Ledger.Version() == before {
		return
	}
	a.record.PoolsResized()
	a.cpusets.TryApply()
	a.measurePools()
}
