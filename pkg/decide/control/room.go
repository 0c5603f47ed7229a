package control

import (
	"cmp"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// PoolNeed is what a pool needs of the CPUs that the pools divide.
type PoolNeed struct {
	CPUs    workload.MilliCPU // CPUs that the pool has now
	Request workload.MilliCPU // CPU that its containers request
	RCFMin  int               // least part of the request that counts, in percent
	RCFMax  int               // largest part of the request that counts, in percent; 0 for no bound
	Least   workload.MilliCPU // CPUs that the pool needs whatever its containers request
	Step    workload.MilliCPU // the pool has a multiple of so many CPUs; 0 for any number
}

// mostRequest bounds what a pool requests: a thousand times as many CPUs as the largest machine
// has, so that no percentage of it overflows.
const mostRequest workload.MilliCPU = 1000 * 1000 * mostCPUs

// Room returns how much CPU new containers can request beside what the pools need:
// CPUs − Σ RCF × request. This is the second idea of Meituan's LAR. A pool's RCF is its CPUs
// divided by its request, between its bounds; it tells a scheduler that knows requests alone how
// much of them the load needs. A new container counts with its whole request, since its load is
// not known.
func Room(cpus workload.MilliCPU, pools []PoolNeed) workload.MilliCPU {
	for i := range pools {
		cpus -= min(pools[i].counts(), max(cpus, 0))
	}
	return max(cpus, 0)
}

// counts returns RCF × request, and at least Least, rounded up to a multiple of Step.
func (p *PoolNeed) counts() workload.MilliCPU {
	request, cpus := min(max(p.Request, 0), mostRequest), p.CPUs
	if p.RCFMax > 0 {
		cpus = min(cpus, perCent(request, p.RCFMax))
	}
	cpus = max(cpus, perCent(request, p.RCFMin), p.Least, 0)
	if p.Step > 0 {
		cpus = roundUp(cpus, p.Step)
	}
	return cpus
}

// room returns the room of the node with these pools. It counts the sizes that the pools need by
// their load, without the CPUs that an empty or squeezed last pool lends for a while. A pool
// whose load is not known counts at least with its whole request. The last pool has the CPUs
// that the others leave, so that its RCF is at most 1 unless it is configured: batch work counts
// with what it requests, batch resources included.
func (p *Pools) room(v *View) workload.MilliCPU {
	last, core := len(p.state)-1, 1000*workload.MilliCPU(p.core)
	p.needs = p.needs[:0]
	for i := range last {
		s, cfg := &p.state[i], &p.pools[i]
		need := PoolNeed{
			CPUs: s.capacity(), Request: s.request.max(), RCFMin: cfg.RCFMin, RCFMax: cfg.RCFMax,
			// What the pool was found to use stays with it; see bounds. A load that has just left the band
			// has no more CPUs yet.
			Least: workload.MilliCPU(max(s.minimum, min(s.size, p.atPercent(s.peak, cfg.High)), p.atPercent(s.average, cfg.High))) * 1000,
			Step:  core,
		}
		if !s.known {
			need.CPUs = max(need.CPUs, need.Request)
		}
		p.needs = append(p.needs, need)
	}
	s, cfg := &p.state[last], &p.pools[last]
	room := Room(v.Shared, append(p.needs, PoolNeed{
		CPUs: s.capacity(), Request: batchRequest(v, last), RCFMin: cfg.RCFMin, RCFMax: cmp.Or(cfg.RCFMax, max(100, cfg.RCFMin)),
		Least: workload.MilliCPU(s.minimum) * 1000,
	}))
	return room - room%core // pools grow by whole cores
}

// batchRequest returns what the containers of the last pool request, batch resources included.
func batchRequest(v *View, last int) (request workload.MilliCPU) {
	for i := range v.Containers {
		if c := &v.Containers[i]; c.Pool == last {
			request += min(c.Request, mostRequest)
		}
	}
	return request
}
