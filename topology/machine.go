// Package topology models a machine's processors and memory: which CPUs share a core, a cache,
// a die, a memory controller or a package.
//
// A Machine is immutable once built: hotplug makes a new one. Every domain
// carries the set of its online CPUs; domains without an online CPU are left
// out, except NUMA nodes, which may hold memory alone. All slices are in
// ascending order of their lowest CPU (nodes: of their number).
package topology

import (
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// None stands for a number that the machine does not report.
const None = -1

// Machine is the hardware of one node of the cluster.
type Machine struct {
	Online   cpuset.Set `json:"online"`   // CPUs that can run tasks now
	Offline  cpuset.Set `json:"offline"`  // CPUs that are present but switched off
	Isolated cpuset.Set `json:"isolated"` // isolcpus=: CPUs outside of the scheduler's load balancing
	NoHzFull cpuset.Set `json:"noHzFull"` // nohz_full=: CPUs without the periodic tick

	CPUs     []CPU    `json:"cpus"`
	Cores    []Core   `json:"cores"`
	Clusters []Domain `json:"clusters,omitempty"` // CPUs that share an L2 or an interconnect stop; empty if the kernel reports none
	L2s      []Cache  `json:"l2s,omitempty"`
	L3s      []Cache  `json:"l3s"` // never empty: without cache folders, the CPUs of each node in one die count as an L3 with Size 0
	Dies     []Domain `json:"dies"`
	Packages []Domain `json:"packages"`
	Nodes    []Node   `json:"nodes"`
	Devices  []Device `json:"devices,omitempty"`

	cpu  [cpuset.Max]int16 // index into CPUs; None for a CPU that is not online
	node map[int]int       // node number → index into Nodes
}

// CPU is one online logical CPU (a hardware thread).
type CPU struct {
	ID       int      `json:"id"`
	Core     int      `json:"core"`    // index into Cores
	L3       int      `json:"l3"`      // index into L3s
	Node     int      `json:"node"`    // number of the NUMA node
	Die      int      `json:"die"`     // index into Dies
	Package  int      `json:"package"` // index into Packages
	Kind     CoreKind `json:"kind"`
	Capacity int      `json:"capacity"` // relative performance, 1..1024 (cpu_capacity); 1024 if the machine does not report it
}

// CoreKind distinguishes the core types of a hybrid machine.
type CoreKind uint8

// These are the kinds of cores.
const (
	Performance CoreKind = iota // includes every core of a machine with one kind
	Efficiency
)

var kindNames = [...]string{"performance", "efficiency"}

func (k CoreKind) String() string { return kindNames[k] }

// MarshalText returns the name of the kind.
func (k CoreKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses the name of a kind.
func (k *CoreKind) UnmarshalText(text []byte) error {
	i := slices.Index(kindNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("core kind %.40q: the kinds are performance and efficiency", text)
	}
	*k = CoreKind(i)
	return nil
}

// Core is one physical core with its online threads.
type Core struct {
	ID   int        `json:"id"` // core_id; unique only within its die or package
	CPUs cpuset.Set `json:"cpus"`
	Kind CoreKind   `json:"kind"`
}

// Domain is a cluster, die or package.
type Domain struct {
	ID   int        `json:"id"` // the kernel's number; that of a die is unique only within its package
	CPUs cpuset.Set `json:"cpus"`
}

// Cache is one L2 or L3 cache.
type Cache struct {
	ID        int        `json:"id"` // resctrl's cache ID; None if the machine does not report it
	CPUs      cpuset.Set `json:"cpus"`
	SizeBytes int64      `json:"sizeBytes"` // bytes
	Ways      int        `json:"ways"`      // 0 if the machine does not report it
}

// Node is one NUMA node.
type Node struct {
	ID          int        `json:"id"`
	CPUs        cpuset.Set `json:"cpus"`        // empty for a node with memory only (CXL, HBM)
	MemoryBytes int64      `json:"memoryBytes"` // in bytes; 0 for a node with CPUs only
	Distances   []int      `json:"distances"`   // to the node at the same index of Machine.Nodes; the local distance is 10
	Tier        int        `json:"tier"`        // memory tier, of which lower ones are faster; None if the machine does not report it
}

// Device is one PCI device.
type Device struct {
	Address string     `json:"address"` // "0000:3b:00.0"
	Node    int        `json:"node"`    // number of the NUMA node; None if the machine does not report it
	CPUs    cpuset.Set `json:"cpus"`    // local_cpulist
}

// New computes a machine's indexes and the positions in each CPU from its domains. It is called
// by topology/sysfs.
func New(m Machine) *Machine {
	for i := range m.cpu {
		m.cpu[i] = None
	}
	for i := range m.CPUs {
		m.cpu[m.CPUs[i].ID] = int16(i)
	}
	for i := range m.Cores {
		for cpu := range m.Cores[i].CPUs.All() {
			m.CPUs[m.cpu[cpu]].Core = i
			m.CPUs[m.cpu[cpu]].Kind = m.Cores[i].Kind
		}
	}
	for i := range m.L3s {
		for cpu := range m.L3s[i].CPUs.All() {
			m.CPUs[m.cpu[cpu]].L3 = i
		}
	}
	for i := range m.Dies {
		for cpu := range m.Dies[i].CPUs.All() {
			m.CPUs[m.cpu[cpu]].Die = i
		}
	}
	for i := range m.Packages {
		for cpu := range m.Packages[i].CPUs.All() {
			m.CPUs[m.cpu[cpu]].Package = i
		}
	}
	m.node = make(map[int]int, len(m.Nodes))
	for i, node := range m.Nodes {
		m.node[node.ID] = i
		for cpu := range node.CPUs.All() {
			m.CPUs[m.cpu[cpu]].Node = node.ID
		}
	}
	return &m
}

// CPU returns the online CPU with that number.
func (m *Machine) CPU(id int) (*CPU, bool) {
	if id < 0 || id >= cpuset.Max || m.cpu[id] == None {
		return nil, false
	}
	return &m.CPUs[m.cpu[id]], true
}

// Node returns the NUMA node with that number.
func (m *Machine) Node(id int) (*Node, bool) {
	i, ok := m.node[id]
	if !ok {
		return nil, false
	}
	return &m.Nodes[i], true
}

// ThreadsPerCore returns the largest number of online threads in one core.
func (m *Machine) ThreadsPerCore() int {
	most := 1
	for i := range m.Cores {
		most = max(most, m.Cores[i].CPUs.Size())
	}
	return most
}

// Siblings returns all online CPUs of the cores that cpus touches.
func (m *Machine) Siblings(cpus cpuset.Set) cpuset.Set {
	var all cpuset.Set
	for cpu := range cpus.All() {
		if c, ok := m.CPU(cpu); ok {
			all = cpuset.Union(all, m.Cores[c.Core].CPUs)
		}
	}
	return all
}

// NodesOf returns the numbers of the NUMA nodes that cpus touches.
func (m *Machine) NodesOf(cpus cpuset.Set) cpuset.Set {
	var nodes cpuset.Set
	for i := range m.Nodes {
		if m.Nodes[i].CPUs.Overlaps(cpus) {
			nodes.Add(m.Nodes[i].ID)
		}
	}
	return nodes
}

// MemoryNodes returns the numbers of the nodes that have memory.
func (m *Machine) MemoryNodes() cpuset.Set {
	var nodes cpuset.Set
	for i := range m.Nodes {
		if m.Nodes[i].MemoryBytes > 0 {
			nodes.Add(m.Nodes[i].ID)
		}
	}
	return nodes
}

// Memory returns the sum of the given nodes' memory in bytes.
func (m *Machine) Memory(nodes cpuset.Set) int64 {
	var sum int64
	for i := range m.Nodes {
		if nodes.Contains(m.Nodes[i].ID) {
			sum += m.Nodes[i].MemoryBytes
		}
	}
	return sum
}
