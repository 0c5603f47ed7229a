package topology

import (
	"encoding/json"
	"fmt"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// UnmarshalJSON parses the output of json.Marshal. It refuses a machine whose cores, L3s, dies,
// packages or nodes do not consist of exactly its CPUs.
func (m *Machine) UnmarshalJSON(text []byte) error {
	type plain Machine
	var read plain
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	known := Machine(read)
	if err := known.check(); err != nil {
		return err
	}
	*m = *New(known)
	return nil
}

func (m *Machine) check() error {
	var cpus cpuset.Set
	for _, cpu := range m.CPUs {
		if cpu.ID < 0 || cpu.ID >= cpuset.Max {
			return fmt.Errorf("machine: CPU %d is not from 0 to %d", cpu.ID, cpuset.Max-1)
		}
		cpus.Add(cpu.ID)
	}
	domains := map[string]cpuset.Set{"online": m.Online}
	add := func(kind string, domain cpuset.Set) { domains[kind] = cpuset.Union(domains[kind], domain) }
	for i := range m.Cores {
		add("cores", m.Cores[i].CPUs)
	}
	for i := range m.L3s {
		add("l3s", m.L3s[i].CPUs)
	}
	for i := range m.Dies {
		add("dies", m.Dies[i].CPUs)
	}
	for i := range m.Packages {
		add("packages", m.Packages[i].CPUs)
	}
	for i := range m.Nodes {
		add("nodes", m.Nodes[i].CPUs)
	}
	for kind, domain := range domains {
		if domain != cpus {
			return fmt.Errorf("machine: the CPUs of %q are %s, but those of \"cpus\" are %s", kind, domain, cpus)
		}
	}
	return nil
}
