package placement

import (
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Lend lets batch work that overlaps the other pools run on these CPUs too, as far as they
// are LSR pins'; of other CPUs it has none. What an LSR pin gives up is lent no more.
func (l *Ledger) Lend(cpus cpuset.Set) {
	if lent := l.lendable(cpus); lent != l.lent {
		l.lent = lent
		l.version++
	}
}

// Lent is the CPUs of LSR pins that batch work may run on.
func (l *Ledger) Lent() cpuset.Set { return l.lent }

// lendable is what of these CPUs may be lent.
func (l *Ledger) lendable(cpus cpuset.Set) cpuset.Set {
	var of cpuset.Set
	if l.config.Mode != Overlap || cpus.IsEmpty() {
		return of
	}
	for _, h := range l.holders {
		if h.Request.Class == workload.LSR && h.State == Held {
			of = cpuset.Union(of, cpuset.Intersect(cpus, h.CPUs))
		}
	}
	return of
}
