package placement

import (
	"cmp"
	"slices"

	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Domain is a part of the machine that is one device for resource claims.
type Domain struct {
	claim.Domain
	CPUs cpuset.Set // its online CPUs; never empty
	// Claimable is the number of CPUs that claims can have there together, with what those there have
	// asked for: that many the scheduler takes away for each.
	Claimable int
}

// Claimable lists the domains of a kind with what claims can have there. It counts whole cores. What the
// shared pools need is kept in the first domains, so that claims get all that is listed, in any order and
// in all domains at once.
func (l *Ledger) Claimable(kind claim.DomainKind) []Domain {
	domains := l.domains(kind)
	reserved := map[claim.Domain]int{}
	for _, h := range l.holders {
		if h.claim {
			reserved[h.Domain] += h.Request.CPUs
		}
	}
	h := Holder{}
	free := l.wholeCores(l.freeFor(&h))
	left, due, _ := l.due(&h)
	keep := due - cpuset.Difference(left, free).Size() // of the free CPUs
	core := l.machine.ThreadsPerCore()
	for i := range domains {
		d := &domains[i]
		here := cpuset.IntersectSize(free, d.CPUs)
		kept := min(here, max(0, (keep+core-1)/core*core))
		keep -= kept
		d.Claimable = here - kept + reserved[d.Domain]
		if reserved[d.Domain] > 0 && kind == claim.Core { // a core is one claim's, also with siblings that came later
			d.Claimable = d.CPUs.Size()
		}
	}
	return domains
}

// wholeCores returns those of the CPUs whose siblings are among them.
func (l *Ledger) wholeCores(cpus cpuset.Set) cpuset.Set {
	split := cpuset.Difference(l.machine.Online, cpus)
	return cpuset.Difference(cpus, l.machine.Siblings(split))
}

// domain returns the online CPUs of a domain.
func (l *Ledger) domain(of claim.Domain) cpuset.Set {
	domains := l.domains(of.Kind)
	i := slices.IndexFunc(domains, func(d Domain) bool { return d.Domain == of })
	if i < 0 && of.Kind != claim.NUMA {
		i = slices.IndexFunc(domains, func(d Domain) bool { return d.CPUs.Contains(of.Number) })
	}
	if i < 0 {
		return cpuset.Set{}
	}
	return domains[i].CPUs
}

// domains lists the domains of a kind that have online CPUs. Those that follow each other lie close
// together, since the scheduler allocates devices in this order.
func (l *Ledger) domains(kind claim.DomainKind) []Domain {
	m := l.machine
	var all []Domain
	add := func(number int, cpus cpuset.Set) {
		if !cpus.IsEmpty() {
			all = append(all, Domain{Domain: claim.Domain{Kind: kind, Number: number}, CPUs: cpus})
		}
	}
	switch kind {
	case claim.NUMA:
		for i := range m.Nodes {
			add(m.Nodes[i].ID, m.Nodes[i].CPUs)
		}
		return all
	case claim.L3:
		for i := range m.L3s {
			add(m.L3s[i].CPUs.First(), m.L3s[i].CPUs)
		}
	case claim.Core:
		for i := range m.Cores {
			add(m.Cores[i].CPUs.First(), m.Cores[i].CPUs)
		}
	}
	l.keepNumbers(all)
	slices.SortFunc(all, func(x, y Domain) int {
		a, _ := m.CPU(x.CPUs.First())
		b, _ := m.CPU(y.CPUs.First())
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.L3, b.L3), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// keepNumbers lets each domain have the number by which its oldest claim knows it. Otherwise the number is
// that of the lowest CPU, and changes when that one goes offline, so that the scheduler would take the
// domain for another one that is free.
func (l *Ledger) keepNumbers(domains []Domain) {
	kept := make([]bool, len(domains))
	for _, h := range l.Claims() {
		known := h.Domain.Number
		if !l.machine.Online.Contains(known) {
			known = cpuset.Intersect(h.Request.CPUSet, l.machine.Online).First()
		}
		for i := range domains {
			if d := &domains[i]; h.Domain.Kind == d.Kind && !kept[i] && d.CPUs.Contains(known) {
				d.Number, kept[i] = h.Domain.Number, true
			}
		}
	}
}
