package synth

import (
	"fmt"
	"strconv"
	"strings"
	"testing/fstest"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

const (
	cpuDir  = "sys/devices/system/cpu/"
	nodeDir = "sys/devices/system/node/"
)

// domains holds the online CPUs of every domain, by the number of the domain in the whole
// machine.
type domains struct {
	online                                cpuset.Set
	core, l2, l3, cluster, node, die, pkg map[int]cpuset.Set
}

func (s *Spec) domains() domains {
	d := domains{online: cpuset.Difference(cpuset.Range(0, s.cpus()-1), s.offline)}
	for _, level := range []*map[int]cpuset.Set{&d.core, &d.l2, &d.l3, &d.cluster, &d.node, &d.die, &d.pkg} {
		*level = map[int]cpuset.Set{}
	}
	for cpu := range d.online.All() {
		p := s.place(s.core(cpu))
		for _, in := range []struct {
			sets   map[int]cpuset.Set
			number int
		}{{d.core, p.core}, {d.l2, p.l2}, {d.l3, p.l3}, {d.cluster, p.cluster}, {d.node, p.node}, {d.die, p.die}, {d.pkg, p.pkg}} {
			set := in.sets[in.number]
			set.Add(cpu)
			in.sets[in.number] = set
		}
	}
	return d
}

// files returns the files of the machine's tree.
func (s *Spec) files() files {
	f := files{fstest.MapFS{}}
	d := s.domains()
	f.put(cpuDir+"online", d.online)
	f.put(cpuDir+"offline", s.offline)
	f.put(cpuDir+"present", cpuset.Range(0, s.cpus()-1))
	f.put(cpuDir+"possible", cpuset.Range(0, s.cpus()-1))
	f.put(cpuDir+"isolated", s.isolated)
	if !s.noHzFull.IsEmpty() {
		f.put(cpuDir+"nohz_full", s.noHzFull)
	}
	if s.efficiency > 0 {
		slow := cpuset.Range(s.fullCores()*s.threads, s.cpus()-1)
		f.put("sys/devices/cpu_core/cpus", cpuset.Difference(d.online, slow))
		f.put("sys/devices/cpu_atom/cpus", cpuset.Intersect(d.online, slow))
	}
	for cpu := range s.cpus() {
		if !d.online.Contains(cpu) {
			f.put(fmt.Sprintf("%scpu%d/online", cpuDir, cpu), 0)
			continue
		}
		dir := fmt.Sprintf("%scpu%d/", cpuDir, cpu)
		f.put(dir+"online", 1)
		s.topology(f, dir+"topology/", cpu, d)
		if !s.without["cache"] {
			s.caches(f, dir+"cache/", cpu, d)
		}
	}
	s.nodeFiles(f, d)
	s.deviceFiles(f, d)
	return f
}

func (s *Spec) topology(f files, dir string, cpu int, d domains) {
	p := s.place(s.core(cpu))
	core, cluster, die, pkg := d.core[p.core], d.cluster[p.cluster], d.die[p.die], d.pkg[p.pkg]
	coreID, dieID, pkgID := p.core%s.packageCores(), p.die%s.dies, p.pkg
	if p.efficient {
		coreID = p.core
	}
	if s.cpuPackages {
		core, cluster, die, pkg = cpuset.Of(cpu), cpuset.Of(cpu), cpuset.Of(cpu), cpuset.Of(cpu)
		coreID, dieID, pkgID = 0, 0, cpu
	}
	f.put(dir+"core_id", coreID)
	f.put(dir+"core_cpus_list", core)
	f.put(dir+"thread_siblings_list", core)
	if s.clusterCores > 0 || s.efficiency > 0 {
		f.put(dir+"cluster_id", p.cluster)
	} else {
		f.put(dir+"cluster_id", 65535)
	}
	f.put(dir+"cluster_cpus_list", cluster)
	if !s.without["dies"] {
		f.put(dir+"die_id", dieID)
		f.put(dir+"die_cpus_list", die)
	}
	f.put(dir+"physical_package_id", pkgID)
	f.put(dir+"package_cpus_list", pkg)
	f.put(dir+"core_siblings_list", pkg)
}

func (s *Spec) caches(f files, dir string, cpu int, d domains) {
	p := s.place(s.core(cpu))
	l2 := "1024K"
	if p.efficient {
		l2 = "2048K"
	}
	for i, cache := range []struct {
		level, ways, id int
		kind, size      string
		cpus            cpuset.Set
	}{
		{1, 12, p.core, "Data", "48K", d.core[p.core]},
		{1, 8, p.core, "Instruction", "32K", d.core[p.core]},
		{2, 16, p.l2, "Unified", l2, d.l2[p.l2]},
		{3, 16, p.l3, "Unified", "32768K", d.l3[p.l3]},
	} {
		index := fmt.Sprintf("%sindex%d/", dir, i)
		f.put(index+"level", cache.level)
		f.put(index+"type", cache.kind)
		f.put(index+"size", cache.size)
		f.put(index+"ways_of_associativity", cache.ways)
		f.put(index+"shared_cpu_list", cache.cpus)
		if !s.without["cache-ids"] {
			f.put(index+"id", cache.id)
		}
	}
}

func (s *Spec) nodeFiles(f files, d domains) {
	nodes := s.cpuNodes() + s.memoryNodes
	var total int64
	var withCPU, withMemory, near, far cpuset.Set
	for node := range nodes {
		bytes := s.bytes(node)
		total += bytes
		if !d.node[node].IsEmpty() {
			withCPU.Add(node)
		}
		if bytes == 0 {
			continue
		}
		withMemory.Add(node)
		if node < s.cpuNodes() {
			near.Add(node)
		} else {
			far.Add(node)
		}
	}
	f.put("proc/meminfo", fmt.Sprintf("MemTotal:       %d kB", total>>10))
	if s.without["nodes"] {
		return
	}
	f.put(nodeDir+"online", cpuset.Range(0, nodes-1))
	f.put(nodeDir+"possible", cpuset.Range(0, nodes-1))
	f.put(nodeDir+"has_cpu", withCPU)
	f.put(nodeDir+"has_memory", withMemory)
	f.put(nodeDir+"has_normal_memory", withMemory)
	for node := range nodes {
		dir := fmt.Sprintf("%snode%d/", nodeDir, node)
		distances := make([]string, nodes)
		for to := range nodes {
			distances[to] = strconv.Itoa(s.distance(node, to))
		}
		f.put(dir+"distance", strings.Join(distances, " "))
		f.put(dir+"cpulist", d.node[node])
		f.put(dir+"meminfo", fmt.Sprintf("Node %d MemTotal:       %d kB", node, s.bytes(node)>>10))
	}
	if s.without["tiers"] {
		return
	}
	// Linux counts from 4 for DRAM, MEMTIER_ADISTANCE_DRAM >> MEMTIER_CHUNK_BITS.
	const tierDir = "sys/devices/virtual/memory_tiering/memory_tier"
	if !near.IsEmpty() {
		f.put(tierDir+"4/nodelist", near)
	}
	if !far.IsEmpty() {
		f.put(tierDir+"5/nodelist", far)
	}
}

func (s *Spec) deviceFiles(f files, d domains) {
	for _, device := range s.devices {
		near := d.online
		if device.node >= 0 {
			near = d.node[device.node]
		}
		dir := "sys/bus/pci/devices/" + device.address + "/"
		f.put(dir+"numa_node", device.node)
		f.put(dir+"local_cpulist", near)
		if link := device.link(); link != "" {
			f.link(link, "../../devices/pci"+device.address[:len("0000:00")]+"/"+device.address+"/"+device.number)
			f.put("sys/devices/pci"+device.address[:len("0000:00")]+"/"+device.address+"/"+device.number+"/dev", device.number)
		}
	}
}

// link returns the name of the device node in sysfs; "" if it has none.
func (d device) link() string {
	switch {
	case d.number == "":
		return ""
	case d.block:
		return "sys/dev/block/" + d.number
	default:
		return "sys/dev/char/" + d.number
	}
}
