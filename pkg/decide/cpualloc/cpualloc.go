// Package cpualloc decides which CPUs a container gets: CPUs that share as much hardware as
// possible with each other and leave as much as possible intact for later containers. The
// package does no I/O and is deterministic: the same machine, free set and preference give the
// same CPUs.
//
// The objective is lexicographic:
//
//  1. fewest NUMA nodes touched (or evenly over all, with workload.NUMASpread);
//  2. fewest L3 domains touched (or evenly over those of the chosen nodes, with
//     workload.L3Spread);
//  3. on a hybrid machine, one kind of core, and performance before efficiency;
//  4. fewest split cores: cores of which the container takes some but not all
//     online threads;
//  5. nodes, then L3 domains, that are near (Preference.Near);
//  6. fewest packages, then the smallest distance between the nodes, then
//     fewest dies;
//  7. best fit: the nodes, then the L3 domains, with the fewest free CPUs; then
//     cores that somebody else uses already;
//  8. the lowest CPU numbers.
//
// Kind comes before split cores because an efficiency core has no sibling to split: otherwise
// every odd pin would go there.
//
// Points 1, 2 and 4 are exact where an L3 domain lies inside a node or holds
// whole nodes, which is all known hardware. Where the two cross (odd virtual
// machines) an L3 domain counts once for each node. The distance in 6 is the
// sum from the best central node. Isolated and nohz_full CPUs are ordinary.
package cpualloc

import (
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Preference says how the CPUs of one container should lie.
type Preference struct {
	NUMA workload.NUMAPolicy
	// SMT: SMTDefault is SMTAny. With SMTFullCore only cores that are wholly
	// free are taken, and wholly. With SMTOnePerCore one thread is taken of
	// each such core; keeping the others out of it is the caller's part.
	SMT  workload.SMTPolicy
	L3   workload.L3Policy
	Near cpuset.Set // CPUs local to a device; empty for none
	Held cpuset.Set // CPUs that the container has and keeps; the others are chosen to fit with them
}

// Take returns n CPUs out of free and p.Held, including all of p.Held. CPUs that are not online
// on the machine are ignored. The error is a *ShortageError if more free CPUs would help, and
// an *ImpossibleError if not.
func (a *Allocator) Take(free cpuset.Set, n int, p Preference) (cpuset.Set, error) {
	p.Held = cpuset.Intersect(p.Held, a.machine.Online)
	kept := p.Held.Size()
	if n < 1 || n < kept {
		return cpuset.Set{}, &ImpossibleError{Requested: n, Preference: p, Reason: belowKept(n, kept)}
	}
	free = cpuset.Difference(cpuset.Intersect(free, a.machine.Online), p.Held)
	add, ok := a.choose(&request{Preference: p, free: free, n: n - kept})
	if !ok {
		return cpuset.Set{}, a.refusal(free.Size(), n, p)
	}
	return cpuset.Union(p.Held, add), nil
}

// Shrink returns the n CPUs out of held that a container should keep. It takes the best by the
// package's objective, and among equal domains those of which the container holds most, so that
// its memory and cache stay. It ignores p.Held. With workload.SMTOnePerCore the other threads
// of held cores need not be held.
func (a *Allocator) Shrink(held cpuset.Set, n int, p Preference) (cpuset.Set, error) {
	held = cpuset.Intersect(held, a.machine.Online)
	p.Held = cpuset.Set{}
	if n < 1 || n > held.Size() {
		return cpuset.Set{}, &ImpossibleError{Requested: n, Preference: p, Reason: outsideHeld(n, held.Size())}
	}
	kept, ok := a.choose(&request{Preference: p, free: held, n: n, shrink: true})
	if !ok {
		return cpuset.Set{}, &ImpossibleError{Requested: n, Preference: p, Reason: "the CPUs held, " + held.String() + ", have no such part"}
	}
	return kept, nil
}

// request is the input of one search: n CPUs out of free, which contains none of Held.
type request struct {
	Preference
	free   cpuset.Set
	n      int
	shrink bool // whether free is what the container holds
}

// choose finds the CPUs to take. It returns false if there is no way to take them.
func (a *Allocator) choose(r *request) (cpuset.Set, bool) {
	if r.n == 0 {
		return cpuset.Set{}, true
	}
	s := a.searches.Get().(*search)
	defer a.searches.Put(s)
	s.request = *r
	best, ok := s.run()
	if !ok || len(a.kinds) < 2 {
		return s.result, ok
	}
	all := s.result
	for _, kind := range a.kinds {
		if !r.Held.SubsetOf(kind) {
			continue
		}
		s.request.free = cpuset.Intersect(r.free, kind)
		if c, ok := s.run(); ok && c.hi>>l3Shift == best.hi>>l3Shift {
			return s.result, true
		}
	}
	return all, true
}

// kindsOf returns the online CPUs of each kind of core on the machine, the performance cores
// first.
func kindsOf(m *topology.Machine) []cpuset.Set {
	var of [topology.Efficiency + 1]cpuset.Set
	for i := range m.CPUs {
		of[m.CPUs[i].Kind].Add(m.CPUs[i].ID)
	}
	var kinds []cpuset.Set
	for _, cpus := range of {
		if !cpus.IsEmpty() {
			kinds = append(kinds, cpus)
		}
	}
	return kinds
}
