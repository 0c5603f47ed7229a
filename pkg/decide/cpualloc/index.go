package cpualloc

import (
	"cmp"
	"slices"
	"sync"

	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Allocator chooses CPUs on one machine. It is an index of the machine, never
// changes, and may be used by many goroutines at once.
type Allocator struct {
	machine *topology.Machine
	kinds   []cpuset.Set
	threads int  // online threads of every core; 0 where cores differ
	flat    bool // every NUMA node is as far from any other

	cores   []core // those of one leaf together, in ascending order of their lowest CPU
	coreOf  [cpuset.Max]int16
	leaves  []leaf
	domains []domain

	vertices []*vertex // parents before children; the first is the whole machine
	nodes    []*vertex // for each NUMA node with CPUs the vertex that holds exactly it

	searches sync.Pool // *search: working memory
}

// core is the part of a core that lies in one leaf: the whole core on all sane
// machines.
type core struct {
	cpus []int // ascending
}

// leaf is the set of CPUs that are in the same package, die, NUMA node and L3.
type leaf struct {
	first, end int        // its cores are cores[first:end]
	domains    [kinds]int // index into Allocator.domains, by kind
	vertex     int
}

// kind is a kind of domain.
type kind uint8

const (
	packageKind kind = iota
	nodeKind
	dieKind
	l3Kind
	kinds
)

// domain is one package, die, NUMA node or L3.
type domain struct {
	kind  kind
	index int // among the machine's Packages, Dies, Nodes, L3s
}

// vertex is a part of the machine that is divided further, or a leaf. The
// domains that hold exactly the vertex's CPUs within its parent are noted at
// it: whoever takes a CPU of the vertex touches them.
type vertex struct {
	id, parent int
	domains    []int
	children   []*vertex
	node       int // the NUMA node among its domains, -1 where there is none
	leaf       int // -1 where it has children
}

// New makes the index of a machine.
func New(m *topology.Machine) *Allocator {
	a := &Allocator{machine: m, kinds: kindsOf(m), threads: uniformThreads(m), flat: flatDistances(m)}
	members := a.addLeaves()
	chains := make([][]int, len(a.leaves))
	all := make([]int, len(a.leaves))
	for i := range a.leaves {
		chains[i] = chain(&a.leaves[i], members)
		all[i] = i
	}
	a.grow(all, chains, 0, 0)
	a.searches.New = func() any { return newSearch(a) }
	return a
}

func uniformThreads(m *topology.Machine) int {
	threads := m.ThreadsPerCore()
	for i := range m.Cores {
		if m.Cores[i].CPUs.Size() != threads {
			return 0
		}
	}
	return threads
}

// addLeaves sorts the cores into leaves and returns each domain's CPUs.
func (a *Allocator) addLeaves() (members []cpuset.Set) {
	m := a.machine
	nodeIndex := make(map[int]int, len(m.Nodes))
	for i := range m.Nodes {
		nodeIndex[m.Nodes[i].ID] = i
	}
	domainOf := make(map[domain]int)
	leafOf := make(map[[kinds]int]int)
	var parts []core
	var partLeaf []int
	for i := range m.Cores {
		first := len(parts)
		for cpu := range m.Cores[i].CPUs.All() {
			c, _ := m.CPU(cpu)
			position := [kinds]int{packageKind: c.Package, nodeKind: nodeIndex[c.Node], dieKind: c.Die, l3Kind: c.L3}
			var key [kinds]int
			for k, index := range position {
				d, ok := domainOf[domain{kind(k), index}]
				if !ok {
					d = len(a.domains)
					domainOf[domain{kind(k), index}] = d
					a.domains = append(a.domains, domain{kind(k), index})
					members = append(members, cpuset.Set{})
				}
				key[k] = d
				members[d].Add(cpu)
			}
			l, ok := leafOf[key]
			if !ok {
				l = len(a.leaves)
				leafOf[key] = l
				a.leaves = append(a.leaves, leaf{domains: key})
			}
			at := slices.Index(partLeaf[first:], l)
			if at < 0 {
				at = len(parts) - first
				parts = append(parts, core{})
				partLeaf = append(partLeaf, l)
			}
			parts[first+at].cpus = append(parts[first+at].cpus, cpu)
		}
	}
	a.gather(parts, partLeaf)
	return members
}

// gather lays the cores of each leaf side by side.
func (a *Allocator) gather(parts []core, partLeaf []int) {
	for i := range a.coreOf {
		a.coreOf[i] = -1
	}
	of := make([][]core, len(a.leaves))
	for i, part := range parts {
		of[partLeaf[i]] = append(of[partLeaf[i]], part)
	}
	for l := range a.leaves {
		a.leaves[l].first = len(a.cores)
		for _, c := range of[l] {
			for _, cpu := range c.cpus {
				a.coreOf[cpu] = int16(len(a.cores))
			}
			a.cores = append(a.cores, c)
		}
		a.leaves[l].end = len(a.cores)
	}
}

// chain lists the leaf's domains from the outermost to the innermost. Nothing
// but a domain that holds the whole NUMA node stands before the node, so that
// each node is one vertex on any machine.
func chain(l *leaf, members []cpuset.Set) []int {
	node := l.domains[nodeKind]
	above := func(d int) int {
		if d != node && members[node].SubsetOf(members[d]) {
			return 0
		}
		if d == node {
			return 1
		}
		return 2
	}
	chain := slices.Clone(l.domains[:])
	slices.SortStableFunc(chain, func(x, y int) int {
		return cmp.Or(
			cmp.Compare(above(x), above(y)),
			cmp.Compare(members[y].Size(), members[x].Size()),
		)
	})
	return chain
}

// grow makes the vertex of some leaves, which have the first depth domains of
// their chains in common, and its descendants.
func (a *Allocator) grow(leaves []int, chains [][]int, depth, parent int) *vertex {
	v := &vertex{id: len(a.vertices), parent: parent, node: -1, leaf: -1}
	a.vertices = append(a.vertices, v)
	for depth < int(kinds) && !slices.ContainsFunc(leaves, func(l int) bool { return chains[l][depth] != chains[leaves[0]][depth] }) {
		d := chains[leaves[0]][depth]
		v.domains = append(v.domains, d)
		if a.domains[d].kind == nodeKind {
			v.node = d
			a.nodes = append(a.nodes, v)
		}
		depth++
	}
	if depth == int(kinds) {
		v.leaf = leaves[0]
		a.leaves[v.leaf].vertex = v.id
		return v
	}
	for len(leaves) > 0 {
		d := chains[leaves[0]][depth]
		var group, rest []int
		for _, l := range leaves {
			if chains[l][depth] == d {
				group = append(group, l)
			} else {
				rest = append(rest, l)
			}
		}
		v.children = append(v.children, a.grow(group, chains, depth, v.id))
		leaves = rest
	}
	return v
}
