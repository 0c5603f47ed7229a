// Package synth makes machines from a line of text, as a sysfs tree that
// topology/sysfs reads like a real one: for tests, demonstrations and
// simulations.
//
// The text is clauses in any order, each at most once unless noted:
//
//	2 packages             counts, each per the level above; 1 where not given
//	2 dies                 per package, sharing its cores evenly; 1 where not given
//	2 nodes                per package
//	8 cores                per node
//	2 threads              per core
//	efficiency 16          that many more cores of one thread, clusters of four sharing an L2; for one node
//
//	l3 4 cores             an L3 for each 4 cores; for each node's cores where not given
//	cluster 4 cores        clusters of 4 cores
//	memory 64G             of each node with CPUs (K, M, G or T); 16G where not given
//	node 1 memory 0        another amount for one node; repeatable
//	memory-nodes 2 128G    two nodes without CPUs, numbered after the others, taking turns among the packages
//
//	numbering linux        siblings far apart: thread t of core c is CPU c + t × cores; where not given
//	numbering adjacent     siblings side by side: c × threads + t
//	offline 3,5            CPU lists
//	isolated 2-3
//	nohz-full 2-3
//	cpu-packages           each CPU shows as a package of its own, as in some guests
//	device 0000:3b:00.0 node 1 char 226:0
//	                       a PCI device; repeatable; without node it tells none; char or block is its device node
//	without cache          no cache folders; repeatable; also: cache-ids, dies (no die files),
//	                       nodes (no node folder), tiers (no memory tiers)
//
// A number sign starts a comment, to the end of its line.
//
// Distances are 10 within a node, 12 within a package and 21 across, as on a
// machine with sub-NUMA clusters; to a memory node 17 within its package and
// 28 across, as firmware tells of persistent memory.
package synth

import (
	"fmt"

	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// Spec is a description of a machine that can be built. Parse returns it.
type Spec struct {
	packages, dies, nodes, cores, threads int // number of each per the level above; dies are per package
	efficiency                            int // number of cores

	l3Cores, clusterCores int // cores per domain; clusterCores is 0 without clusters

	memory      int64 // bytes per node with CPUs
	nodeMemory  map[int]int64
	memoryNodes int
	farMemory   int64 // bytes per memory node

	adjacent, cpuPackages       bool
	offline, isolated, noHzFull cpuset.Set
	devices                     []device
	without                     map[string]bool
}

type device struct {
	address string
	node    int
	block   bool
	number  string // "226:0"; "" for none
}

// Machine returns the machine of that text as topology/sysfs reads it.
func Machine(text string) (*topology.Machine, error) {
	spec, err := Parse(text)
	if err != nil {
		return nil, err
	}
	m, err := sysfs.Read(spec.FS())
	if err != nil {
		return nil, fmt.Errorf("machine %.200q: %w", text, err)
	}
	return m, nil
}

// cpuNodes returns the number of nodes with CPUs; they come first.
func (s *Spec) cpuNodes() int { return s.packages * s.nodes }

func (s *Spec) packageCores() int { return s.nodes * s.cores }

// fullCores returns the number of cores that are not efficiency cores; they come first.
func (s *Spec) fullCores() int { return s.packages * s.packageCores() }

func (s *Spec) cpus() int { return s.fullCores()*s.threads + s.efficiency }

// core returns the number of a CPU's core in the whole machine.
func (s *Spec) core(cpu int) int {
	full := s.fullCores()
	switch {
	case cpu >= full*s.threads:
		return full + cpu - full*s.threads
	case s.adjacent:
		return cpu / s.threads
	default:
		return cpu % full
	}
}

// place is the location of a core: the number of each domain in the whole machine.
type place struct {
	core, l2, l3, cluster, node, die, pkg int
	efficient                             bool
}

// efficiencyCluster is the number of efficiency cores that share an L2.
const efficiencyCluster = 4

func (s *Spec) place(core int) place {
	full := s.fullCores()
	if core >= full {
		cluster := full + (core-full)/efficiencyCluster
		return place{core: core, l2: cluster, cluster: cluster, efficient: true}
	}
	p := place{
		core:    core,
		l2:      core,
		l3:      core / s.l3Cores,
		cluster: core,
		node:    core / s.cores,
		die:     core / (s.packageCores() / s.dies),
		pkg:     core / s.packageCores(),
	}
	if s.clusterCores > 0 {
		p.cluster = core / s.clusterCores
	}
	return p
}

// distance returns the distance of the node's memory from another node.
func (s *Spec) distance(from, to int) int {
	far := from >= s.cpuNodes() || to >= s.cpuNodes()
	same := s.nodePackage(from) == s.nodePackage(to)
	switch {
	case from == to:
		return 10
	case far && same:
		return 17
	case far:
		return 28
	case same:
		return 12
	default:
		return 21
	}
}

func (s *Spec) nodePackage(node int) int {
	if node >= s.cpuNodes() {
		return (node - s.cpuNodes()) % s.packages
	}
	return node / s.nodes
}

// bytes returns the memory of a node.
func (s *Spec) bytes(node int) int64 {
	if memory, ok := s.nodeMemory[node]; ok {
		return memory
	}
	if node >= s.cpuNodes() {
		return s.farMemory
	}
	return s.memory
}
