package cpualloc

import (
	"slices"

	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// place describes the location of one CPU by numbers that are unique on the whole machine.
type place struct {
	core, l3, die, node, pkg int
	kind                     topology.CoreKind
}

// build returns a machine of the CPUs 0, 1, 2, ...
func build(places []place, distance func(a, b int) int) *topology.Machine {
	group := func(of func(place) int) []cpuset.Set {
		var sets []cpuset.Set
		at := map[int]int{}
		for cpu, p := range places {
			i, ok := at[of(p)]
			if !ok {
				i = len(sets)
				at[of(p)] = i
				sets = append(sets, cpuset.Set{})
			}
			sets[i].Add(cpu)
		}
		return sets
	}
	var m topology.Machine
	for cpu := range places {
		m.Online.Add(cpu)
		m.CPUs = append(m.CPUs, topology.CPU{ID: cpu, Capacity: 1024})
	}
	for i, cpus := range group(func(p place) int { return p.core }) {
		m.Cores = append(m.Cores, topology.Core{ID: i, CPUs: cpus, Kind: places[cpus.First()].kind})
	}
	for i, cpus := range group(func(p place) int { return p.l3 }) {
		m.L3s = append(m.L3s, topology.Cache{ID: i, CPUs: cpus})
	}
	for i, cpus := range group(func(p place) int { return p.die }) {
		m.Dies = append(m.Dies, topology.Domain{ID: i, CPUs: cpus})
	}
	for i, cpus := range group(func(p place) int { return p.pkg }) {
		m.Packages = append(m.Packages, topology.Domain{ID: i, CPUs: cpus})
	}
	for _, cpus := range group(func(p place) int { return p.node }) {
		m.Nodes = append(m.Nodes, topology.Node{ID: places[cpus.First()].node, CPUs: cpus})
	}
	slices.SortFunc(m.Nodes, func(a, b topology.Node) int { return a.ID - b.ID })
	for i := range m.Nodes {
		for j := range m.Nodes {
			m.Nodes[i].Distances = append(m.Nodes[i].Distances, distance(m.Nodes[i].ID, m.Nodes[j].ID))
		}
	}
	return topology.New(m)
}

// shape describes a regular machine. CPUs are numbered as on servers: first one thread of every
// core, then the second threads.
type shape struct {
	packages, nodes, l3s, cores, threads int // nodes per package, L3s per node, cores per L3
}

func (s shape) machine() *topology.Machine {
	var first []place
	for core := range s.packages * s.nodes * s.l3s * s.cores {
		l3 := core / s.cores
		node := l3 / s.l3s
		first = append(first, place{core: core, l3: l3, die: node, node: node, pkg: node / s.nodes})
	}
	return build(slices.Repeat(first, s.threads), func(a, b int) int {
		switch {
		case a == b:
			return 10
		case a/s.nodes == b/s.nodes:
			return 12
		}
		return 21
	})
}

// subNUMA returns one package whose nodes share one L3.
func subNUMA(packages, nodes, cores, threads int) *topology.Machine {
	var first []place
	for core := range packages * nodes * cores {
		node := core / cores
		first = append(first, place{core: core, l3: node / nodes, die: node / nodes, node: node, pkg: node / nodes})
	}
	return build(slices.Repeat(first, threads), flat)
}

// hybrid returns performance cores with two adjacent threads, followed by efficiency cores, all
// with one L3.
func hybrid(performance, efficiency int) *topology.Machine {
	var places []place
	for core := range performance {
		places = append(places, place{core: core}, place{core: core})
	}
	for core := range efficiency {
		places = append(places, place{core: performance + core, kind: topology.Efficiency})
	}
	return build(places, flat)
}

func flat(a, b int) int {
	if a == b {
		return 10
	}
	return 20
}
