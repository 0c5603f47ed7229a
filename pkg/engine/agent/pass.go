package agent

import (
	"runtime/debug"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Pass runs one periodic pass, for an agent with Options.Clock.
func (a *Agent) Pass() {
	a.events.Do("pass", func() error { a.pass(); return nil }) //nolint:errcheck // fails only if the agent has ended
}

// pass frees the grants of containers that have ended or never started, completes pins that lack
// CPUs, and compares every container that Sluice has set with the kernel. While the loop is silent,
// which leaves the node to the failsafe, only pins are compared.
func (a *Agent) pass() {
	defer func() {
		if p := recover(); p != nil {
			a.Counters.Panics++
			a.Log.Errorf("panic in the periodic pass: %v\n%s", p, debug.Stack())
		}
	}()
	a.events.Moved()
	a.Reconciler.BeginEvent()
	a.loop.NoteFailsafe()
	silent := a.loop.Silent()
	a.shown.draft = nil // free its memory: no reader has asked for it since the last pass
	if !a.Synced {
		return
	}
	a.FindBarred()
	for _, c := range a.Order {
		if a.ended(c) {
			a.Ledger.Release(c.ID)
			a.dropFreed([]string{c.ID})
		}
	}
	for _, id := range a.Ledger.Stale(placement.Identity{}, a.Now(), a.Config.ReserveTimeout) {
		if c, ok := a.Containers[id]; !ok || !a.hasProcesses(c) {
			a.Ledger.Release(id) // a pin that lacks CPUs asks for it earlier; claims, and what is offered, do not
			a.dropFreed([]string{id})
		}
	}
	a.Claims.Pass()
	a.findRunningRefused()
	a.Grants.Refresh(0)
	a.regrantAll()
	a.completePins()
	if !silent {
		a.cpusets.ApplyDue()
	}
	for _, c := range a.Order {
		if h, ok := a.Ledger.Holder(c.ID); !silent || ok && !h.CPUs.IsEmpty() {
			a.cpusets.Repair(c, "")
		}
		a.cpusets.ReadForeign(c)
	}
	if !a.Now().After(a.cpusets.RejoinUntil) {
		a.cpusets.RejoinAll()
	}
	if !silent {
		a.cpusets.LiftAll()
		a.podsettings.Pass()
	}
	a.groups.Pass()
	a.retarget()
	a.record.Update()
	a.confine()
	a.steer()
	a.Reconciler.Save()
}

// confine binds the plugin's own threads to CPUs that aren't pinned: the system CPUs if there
// are any, the pools' otherwise.
func (a *Agent) confine() {
	if a.options.Confine == nil || a.confined == a.LedgerState() || !a.Authority().Writes {
		return
	}
	a.confined = a.LedgerState()
	cpus := cpuset.Intersect(a.Config.System, a.Ledger.Machine().Online)
	if cpus.IsEmpty() {
		cpus = a.Ledger.Shared()
	}
	if err := a.options.Confine(cpus); err != nil {
		a.Log.WithError(err).Warn("Sluice's own threads may run on pinned CPUs")
	}
}
