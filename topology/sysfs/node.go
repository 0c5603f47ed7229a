package sysfs

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const nodeDir = "sys/devices/system/node/"

// nodes reads the NUMA nodes, which have CPUs, memory or both.
func (t tree) nodes(m *topology.Machine) error {
	online, ok, err := t.list(nodeDir + "online")
	if err != nil {
		return err
	}
	if !ok {
		return t.oneNode(m)
	}
	tiers, err := t.tiers()
	if err != nil {
		return err
	}
	homeless := m.Online
	for id := range online.All() {
		node, err := t.node(id, online.Size())
		if err != nil {
			return err
		}
		node.CPUs = cpuset.Intersect(node.CPUs, homeless)
		homeless = cpuset.Difference(homeless, node.CPUs)
		if tier, ok := tiers[id]; ok {
			node.Tier = tier
		}
		m.Nodes = append(m.Nodes, node)
	}
	if !homeless.IsEmpty() {
		return fmt.Errorf("%snode*/cpulist: no node has the online CPUs %s", nodeDir, homeless)
	}
	return nil
}

// oneNode sets a single node if the kernel is built without NUMA.
func (t tree) oneNode(m *topology.Machine) error {
	memory, err := t.memTotal("proc/meminfo")
	if err != nil {
		return err
	}
	m.Nodes = []topology.Node{{CPUs: m.Online, MemoryBytes: memory, Distances: []int{10}, Tier: topology.None}}
	return nil
}

func (t tree) node(id, nodes int) (topology.Node, error) {
	dir := nodeDir + "node" + strconv.Itoa(id) + "/"
	node := topology.Node{ID: id, Tier: topology.None}
	var err error
	if node.CPUs, err = t.firstList(dir + "cpulist"); err != nil {
		return node, err
	}
	if node.MemoryBytes, err = t.memTotal(dir + "meminfo"); err != nil {
		return node, err
	}
	text, ok, err := t.text(dir + "distance")
	if err != nil {
		return node, err
	}
	if !ok {
		return node, fmt.Errorf("%sdistance does not exist", dir)
	}
	for field := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return node, fmt.Errorf("%sdistance: %.40q is not a number", dir, field)
		}
		node.Distances = append(node.Distances, n)
	}
	if len(node.Distances) != nodes {
		return node, fmt.Errorf("%sdistance: %.80q has %d distances, but %d nodes are online", dir, text, len(node.Distances), nodes)
	}
	return node, nil
}

// Memory returns MemTotal of the host's /proc/meminfo in bytes, or 0 if the host does not
// report it. The files of the NUMA nodes may omit memory that a hypervisor has added.
func Memory(fsys fs.FS) (int64, error) { return tree{fsys}.memTotal("proc/meminfo") }

// memTotal reads MemTotal in bytes: "MemTotal: 16 kB" of /proc/meminfo, "Node 0
// MemTotal: 16 kB" of a node's. Without the file or the line there is no memory.
func (t tree) memTotal(name string) (int64, error) {
	text, _, err := t.text(name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		_, value, ok := strings.Cut(line, "MemTotal:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 53)
		if err != nil || kib < 0 {
			return 0, fmt.Errorf("%s: %.80q is not an amount in kB", name, strings.TrimSpace(line))
		}
		return kib << 10, nil
	}
	return 0, nil
}

// tiers reads each node's memory tier (Linux 6.1). Lower numbers are faster.
func (t tree) tiers() (map[int]int, error) {
	const dir = "sys/devices/virtual/memory_tiering/"
	names, err := fs.Glob(t.fsys, dir+"memory_tier*/nodelist")
	if err != nil {
		return nil, err
	}
	tiers := map[int]int{}
	for _, name := range names {
		number := strings.TrimSuffix(strings.TrimPrefix(name, dir+"memory_tier"), "/nodelist")
		tier, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("%s: %.40q is not a tier's number", name, number)
		}
		nodes, _, err := t.list(name)
		if err != nil {
			return nil, err
		}
		for node := range nodes.All() {
			tiers[node] = tier
		}
	}
	return tiers, nil
}
