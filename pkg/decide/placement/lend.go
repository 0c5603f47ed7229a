package placement

import (
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Lend lets batch work that overlaps the other pools run on those of the given CPUs that
// belong to LSR pins, without those of claims, which several containers may use. CPUs that an LSR pin gives up are no longer lent.
func (l *Ledger) Lend(cpus cpuset.Set) {
	if lent := l.lendable(cpus); lent != l.lent {
		l.lent = lent
		l.version++
	}
}

// Lent returns the CPUs of LSR pins on which batch work may run.
func (l *Ledger) Lent() cpuset.Set { return l.lent }

// lentTo returns those that a container of batch work may use: at its home only.
func (l *Ledger) lentTo(h *Holder) cpuset.Set {
	if h.Home.IsEmpty() {
		return l.lent
	}
	return l.within(l.lent, h.Home)
}

// lendable returns those of the CPUs that may be lent.
func (l *Ledger) lendable(cpus cpuset.Set) cpuset.Set {
	var of cpuset.Set
	if l.config.Mode != Overlap || cpus.IsEmpty() {
		return of
	}
	for _, h := range l.holders {
		if h.Request.Class == workload.LSR && h.State == Held && !h.claim && len(h.Request.Claims) == 0 {
			of = cpuset.Union(of, cpuset.Intersect(cpus, h.CPUs))
		}
	}
	return of
}
