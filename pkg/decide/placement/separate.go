package placement

import (
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Separation is a pod that is kept apart from the others of its pool.
type Separation struct {
	Pod  string     // UID
	CPUs cpuset.Set // those of its pool that no other container of an online pool uses; empty while the pool can't spare them
}

// Separate keeps these pods, by UID, apart from the others of their pools, and no others. Each runs on CPUs
// of its own out of those of its pool, as many as it requests in whole cores, and the other containers of
// online pools run on the rest. Batch work that overlaps the pool is not affected. A pod whose pool cannot
// spare the CPUs, see Separable, shares them with the others until it can.
func (l *Ledger) Separate(pods []string) {
	gone := func(s Separation) bool { return !slices.Contains(pods, s.Pod) }
	if len(l.separations) == len(pods) && !slices.ContainsFunc(l.separations, gone) {
		return
	}
	next := slices.DeleteFunc(slices.Clone(l.separations), gone)
	for _, pod := range pods {
		if l.separationOf(pod) < 0 {
			next = append(next, Separation{Pod: pod})
		}
	}
	l.separations, l.last = next, entry{}
	l.version++
	l.separate()
	l.followSeparations()
}

// Separations lists the pods of Separate with the CPUs that they have; it must not be changed.
func (l *Ledger) Separations() []Separation { return l.separations }

// Separable returns the number of CPUs that the pod has, or would have, apart from the others of its pool. It
// is an error if Separate would leave the pod where it is.
func (l *Ledger) Separable(pod string) (cpus int, err error) {
	_, cpus, err = l.separable(pod, l.separations)
	return cpus, err
}

// separate chooses the CPUs of the pods that are kept apart, and reports whether they have changed. A pod keeps
// the CPUs that it has, except those that have left its pool.
func (l *Ledger) separate() (changed bool) {
	if l.entering || len(l.separations) == 0 {
		return false
	}
	before := l.separations
	chosen := make([]Separation, 0, len(before)) // a new slice, since Undo and clones may have the old one
	for i, s := range before {
		had := s.CPUs
		s.CPUs = cpuset.Set{}
		if pool, n, err := l.separable(s.Pod, chosen); err == nil {
			free := l.pools[pool]
			for _, other := range chosen {
				free = cpuset.Difference(free, other.CPUs)
			}
			unused := free
			for _, other := range before[i+1:] {
				unused = cpuset.Difference(unused, other.CPUs)
			}
			if unused.Size() >= n {
				free = unused
			}
			if cores := l.wholeCores(free); cores.Size() >= n {
				free = cores
			}
			s.CPUs = l.near(had, free, n)
		}
		chosen = append(chosen, s)
	}
	l.separations = chosen
	if changed = !slices.Equal(before, chosen); changed {
		l.version++
	}
	return changed
}

// followSeparations moves spare CPUs and memory after pods have got other CPUs apart.
func (l *Ledger) followSeparations() {
	if l.spares != nil {
		l.lendSpare()
	}
	l.followPools()
}

// separable returns the pool of a pod that can be kept apart beside those in chosen, and its number of CPUs. All of
// its containers must be services in one online pool, without CPUs or a home of their own. They get at most half of
// the pool's CPUs together with others that are apart, and leave the rest of the pool's containers what these
// request.
func (l *Ledger) separable(pod string, chosen []Separation) (pool, cpus int, err error) {
	pool = -1
	core := l.machine.ThreadsPerCore()
	var own workload.MilliCPU
	for _, h := range l.holders {
		if h.Pod != pod {
			continue
		}
		at := l.pool(&h.Request)
		service := h.Request.Class == workload.LS || h.Request.Class == workload.Unclassified
		switch {
		case !service || at == len(l.pools)-1:
			return pool, 0, &RefusalError{Why: h.Ref + " is no service of an online pool"}
		case !h.CPUs.IsEmpty() || len(h.Request.Claims) > 0:
			return pool, 0, &RefusalError{Why: h.Ref + " has CPUs of its own"}
		case l.wantsHome(h):
			return pool, 0, &RefusalError{Why: h.Ref + " asks for a NUMA node"}
		case pool >= 0 && pool != at:
			return pool, 0, &RefusalError{Why: "its containers are in different pools"}
		}
		pool, own = at, own+h.Request.Milli
	}
	if pool < 0 {
		return pool, 0, &RefusalError{Why: "it has no container"}
	}
	cpus = (max(1, int((own+999)/1000)) + core - 1) / core * core
	all, taken := l.pools[pool], 0
	for _, s := range chosen {
		if s.Pod != pod {
			taken += cpuset.IntersectSize(s.CPUs, all)
		}
	}
	var others workload.MilliCPU
	for _, h := range l.holders {
		switch {
		case h.Pod == pod || h.claim || !h.CPUs.IsEmpty() || h.Request.Class == workload.BE || !l.pools[l.pool(&h.Request)].Overlaps(all):
		case h.Request.Class == workload.System && !l.config.System.IsEmpty():
		case l.wantsHome(h):
			return pool, 0, &RefusalError{Why: h.Ref + ", in the same pool, asks for a NUMA node"}
		case !slices.ContainsFunc(chosen, func(s Separation) bool { return s.Pod == h.Pod && !s.CPUs.IsEmpty() }):
			others += h.Request.Milli
		}
	}
	left, name := all.Size()-taken-cpus, l.config.Pools[pool].Name
	switch {
	case 2*(taken+cpus) > all.Size():
		why := fmt.Sprintf("%s of its own would be more than half of the %d of pool %s", humanize.Count(cpus, "CPU"), all.Size(), name)
		if taken > 0 {
			why += fmt.Sprintf(", together with the %d of other pods that are kept apart", taken)
		}
		return pool, 0, &RefusalError{Why: why, Shortage: true}
	case workload.MilliCPU(left)*1000 < others:
		return pool, 0, &RefusalError{Why: fmt.Sprintf("%s of its own would leave %d of pool %s, whose other containers request %s", humanize.Count(cpus, "CPU"), left, name, others), Shortage: true}
	}
	for i, other := range l.pools[:len(l.pools)-1] {
		if other != all && other.Overlaps(all) { // a node that is too small to divide: the other pool could lose all of its CPUs
			return pool, 0, &RefusalError{Why: fmt.Sprintf("it is in pool %s, which shares some of its CPUs with pool %s", name, l.config.Pools[i].Name)}
		}
	}
	return pool, cpus, nil
}

// rest returns the CPUs of a pool without those of the pods that are kept apart.
func (l *Ledger) rest(pool int) cpuset.Set {
	rest := l.pools[pool]
	if pool == len(l.pools)-1 {
		return rest
	}
	for _, s := range l.separations {
		rest = cpuset.Difference(rest, s.CPUs)
	}
	return rest
}

// besides returns the CPUs on which a container of a pool may run because of pods that are kept apart, and
// what to say about it.
func (l *Ledger) besides(h *Holder, pool int) (cpuset.Set, string) {
	if i := l.separationOf(h.Pod); i >= 0 && !l.separations[i].CPUs.IsEmpty() {
		return l.separations[i].CPUs, ", apart from its other pods"
	}
	rest, why := l.rest(pool), ""
	if rest != l.pools[pool] {
		why = " without the CPUs of pods that are kept apart"
	}
	return rest, why
}

func (l *Ledger) separationOf(pod string) int {
	return slices.IndexFunc(l.separations, func(s Separation) bool { return s.Pod == pod })
}

// isApart reports whether a container was found where it is because of pods that are kept apart, so that its
// CPUs are not all those of its pool.
func (l *Ledger) isApart(h *Holder, found cpuset.Set) bool {
	pool := l.pool(&h.Request)
	cpus, _ := l.besides(h, pool)
	return cpus == found && cpus != l.pools[pool]
}

// foundPool is where the containers of a pool were found. A pod that an earlier process kept apart had part of
// the pool, at most half, and the others had the rest.
type foundPool struct{ most, apart cpuset.Set }

// add adds where a container was found, and returns the CPUs of the pool.
func (f *foundPool) add(cpus cpuset.Set) cpuset.Set {
	switch {
	case cpus.Overlaps(f.most) || f.most.IsEmpty():
		f.most = cpus
	case cpus.Size() > f.most.Size():
		f.most, f.apart = cpus, cpuset.Union(f.apart, f.most)
	default:
		f.apart = cpuset.Union(f.apart, cpus)
	}
	return cpuset.Union(f.most, f.apart)
}
