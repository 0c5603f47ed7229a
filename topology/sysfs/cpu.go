package sysfs

import (
	"cmp"
	"errors"
	"slices"
	"strconv"

	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const cpuDir = "sys/devices/system/cpu/"

func cpuFile(cpu int, name string) string { return cpuDir + "cpu" + strconv.Itoa(cpu) + "/" + name }

// cpus reads which CPUs exist.
func (t tree) cpus(m *topology.Machine) (err error) {
	if m.Online, err = t.firstList(cpuDir + "online"); err != nil {
		return err
	}
	if m.Online.IsEmpty() {
		return errors.New(cpuDir + "online names no CPU")
	}
	present, _, err := t.list(cpuDir + "present")
	if err != nil {
		return err
	}
	m.Offline = cpuset.Difference(present, m.Online)
	if m.Isolated, _, err = t.list(cpuDir + "isolated"); err != nil {
		return err
	}
	if m.NoHzFull, err = t.noHzFull(); err != nil {
		return err
	}
	for cpu := range m.Online.All() {
		capacity, err := t.number(cpuFile(cpu, "cpu_capacity"), 1024)
		if err != nil {
			return err
		}
		m.CPUs = append(m.CPUs, topology.CPU{ID: cpu, Capacity: capacity})
	}
	return nil
}

// noHzFull returns the empty set also if the kernel supports the feature but it is not
// configured; the file then contains a null mask pointer, "(null)".
func (t tree) noHzFull() (cpuset.Set, error) {
	const name = cpuDir + "nohz_full"
	if text, ok, err := t.text(name); err != nil || !ok || text == "(null)" {
		return cpuset.Set{}, err
	}
	set, _, err := t.list(name)
	return set, err
}

// domains reads cores, clusters, dies and packages, each from its first CPU. It reads the
// kernel's lists, since numbers alone (core_id) repeat across dies and packages. The second
// names are those before Linux 5.3.
func (t tree) domains(m *topology.Machine) error {
	cores, err := t.partition(m.Online, "topology/core_cpus_list", "topology/thread_siblings_list")
	if err != nil {
		return err
	}
	for _, cpus := range cores {
		id, err := t.number(cpuFile(cpus.First(), "topology/core_id"), topology.None)
		if err != nil {
			return err
		}
		m.Cores = append(m.Cores, topology.Core{ID: id, CPUs: cpus})
	}
	for _, level := range []struct {
		to    *[]topology.Domain
		id    string
		lists []string
	}{
		{&m.Packages, "topology/physical_package_id", []string{"topology/package_cpus_list", "topology/core_siblings_list"}},
		{&m.Dies, "topology/die_id", []string{"topology/die_cpus_list", "topology/package_cpus_list", "topology/core_siblings_list"}},
	} {
		sets, err := t.partition(m.Online, level.lists...)
		if err != nil {
			return err
		}
		for _, cpus := range sets {
			id, err := t.number(cpuFile(cpus.First(), level.id), topology.None)
			if err != nil {
				return err
			}
			*level.to = append(*level.to, topology.Domain{ID: id, CPUs: cpus})
		}
	}
	return t.clusters(m)
}

// clusters reads the clusters of the CPUs that have one.
func (t tree) clusters(m *topology.Machine) error {
	var clustered cpuset.Set
	for i := range m.Cores {
		id, err := t.number(cpuFile(m.Cores[i].CPUs.First(), "topology/cluster_id"), topology.None)
		if err != nil {
			return err
		}
		// An unknown cluster is -1 (Arm) or BAD_APICID, 65535 (x86).
		if id >= 0 && id != 65535 {
			clustered = cpuset.Union(clustered, m.Cores[i].CPUs)
		}
	}
	sets, err := t.partition(clustered, "topology/cluster_cpus_list")
	if err != nil {
		return err
	}
	for _, cpus := range sets {
		id, err := t.number(cpuFile(cpus.First(), "topology/cluster_id"), topology.None)
		if err != nil {
			return err
		}
		m.Clusters = append(m.Clusters, topology.Domain{ID: id, CPUs: cpus})
	}
	return nil
}

// partition divides cpus by the list of each CPU, in the first of the files that exists. Where
// firmware lets lists overlap or omit the CPU itself, the list of the lowest CPU decides, so
// that the result is always a partition.
func (t tree) partition(cpus cpuset.Set, files ...string) ([]cpuset.Set, error) {
	var sets []cpuset.Set
	names := make([]string, len(files))
	for left := cpus; !left.IsEmpty(); {
		cpu := left.First()
		for i := range files {
			names[i] = cpuFile(cpu, files[i])
		}
		set, err := t.firstList(names...)
		if err != nil {
			return nil, err
		}
		set.Add(cpu)
		set = cpuset.Intersect(set, left)
		left = cpuset.Difference(left, set)
		sets = append(sets, set)
	}
	return sets, nil
}

// kinds marks efficiency cores by the PMUs of a hybrid x86, or else by a capacity below the
// highest one.
func (t tree) kinds(m *topology.Machine) error {
	fast, _, err := t.list("sys/devices/cpu_core/cpus")
	if err != nil {
		return err
	}
	var slow cpuset.Set
	for _, pmu := range []string{"cpu_atom", "cpu_lowpower"} {
		set, _, err := t.list("sys/devices/" + pmu + "/cpus")
		if err != nil {
			return err
		}
		slow = cpuset.Union(slow, set)
	}
	if fast.IsEmpty() {
		slow = cpuset.Set{}
		most := slices.MaxFunc(m.CPUs, func(a, b topology.CPU) int { return cmp.Compare(a.Capacity, b.Capacity) }).Capacity
		for _, cpu := range m.CPUs {
			if cpu.Capacity < most {
				slow.Add(cpu.ID)
			}
		}
	}
	for i := range m.Cores {
		if m.Cores[i].CPUs.SubsetOf(slow) {
			m.Cores[i].Kind = topology.Efficiency
		}
	}
	return nil
}
