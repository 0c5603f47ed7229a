package synth

import (
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/suggest"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// complete sets what the text left out, and refuses what can't be built.
func (s *Spec) complete() error {
	if s.l3Cores == 0 {
		s.l3Cores = s.cores
	} else if s.efficiency > 0 {
		return fmt.Errorf("l3 and efficiency can't be combined: efficiency cores share the one L3")
	}
	cpus := 1
	for _, n := range []int{s.packages, s.nodes, s.cores, s.threads} {
		if cpus *= n; cpus > cpuset.Max { // each factor is at most cpuset.Max: no overflow
			break
		}
	}
	if cpus+s.efficiency > cpuset.Max {
		return fmt.Errorf("more than %d CPUs", cpuset.Max)
	}
	nodes := s.cpuNodes() + s.memoryNodes
	if nodes > maxNodes {
		return fmt.Errorf("%d nodes: at most %d", nodes, maxNodes)
	}
	for _, split := range []struct {
		what  string
		cores int
	}{{"dies", s.dies}, {"l3", s.l3Cores}, {"cluster", max(1, s.clusterCores)}} {
		if s.packageCores()%split.cores != 0 {
			return fmt.Errorf("%s %d: does not divide a package's %d cores", split.what, split.cores, s.packageCores())
		}
	}
	if s.efficiency > 0 && s.cpuNodes()*s.dies > 1 {
		return fmt.Errorf("efficiency: only for a machine of one package, die and node with CPUs")
	}
	if s.cpuPackages && s.cpus() != s.fullCores() {
		return fmt.Errorf("cpu-packages: only with 1 thread a core and without efficiency cores")
	}
	if s.without["nodes"] && s.memoryNodes > 0 {
		return fmt.Errorf("without nodes: there can't be memory-nodes")
	}
	return s.checkNumbers(nodes)
}

// maxNodes is Linux' largest MAX_NUMNODES, 1 << NODES_SHIFT.
const maxNodes = 1024

// checkNumbers refuses CPUs and nodes that do not exist.
func (s *Spec) checkNumbers(nodes int) error {
	all := cpuset.Range(0, s.cpus()-1)
	for _, list := range []struct {
		what string
		cpus cpuset.Set
	}{{"offline", s.offline}, {"isolated", s.isolated}, {"nohz-full", s.noHzFull}} {
		if strange := cpuset.Difference(list.cpus, all); !strange.IsEmpty() {
			return fmt.Errorf("%s: there is no CPU %s, the last is %d", list.what, strange, s.cpus()-1)
		}
	}
	if s.offline == all {
		return fmt.Errorf("offline: one CPU at least stays online")
	}
	for node := range s.nodeMemory {
		if node >= nodes {
			return fmt.Errorf("node %d memory: there is no such node, the last is %d", node, nodes-1)
		}
	}
	numbers := map[string]bool{}
	for _, d := range s.devices {
		if d.node != topology.None && d.node >= nodes {
			return fmt.Errorf("device %s node %d: there is no such node, the last is %d", d.address, d.node, nodes-1)
		}
		if name := d.link(); name != "" && numbers[name] {
			return fmt.Errorf("device %s: another device has the number %s", d.address, d.number)
		}
		numbers[d.link()] = true
	}
	return nil
}

// unknown returns the error for a word that is not among the known ones.
func unknown(what, word string, known []string) error {
	if word == "" {
		return fmt.Errorf("%s is missing: expected one of %s", what, strings.Join(known, ", "))
	}
	if meant := suggest.To(word, known); meant != "" {
		return fmt.Errorf("%s: unknown word %.40q; did you mean %q?", what, word, meant)
	}
	return fmt.Errorf("%s: unknown word %.40q; known are %s", what, word, strings.Join(known, ", "))
}
