package config

import (
	"fmt"

	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Fit compares the configuration with the machine, and replaces pools.mode auto by the mode that
// it stands for there. One file may serve nodes of several sizes, so CPUs that this machine doesn't
// have are only a warning. A division of CPUs that can't work on it is an error, of type Errors.
func (c *Config) Fit(m *topology.Machine) (warnings []string, err error) {
	var errs Errors
	fail := func(key, format string, args ...any) {
		errs = append(errs, Error{Key: key, Text: fmt.Sprintf(format, args...)})
	}
	present := cpuset.Union(m.Online, m.Offline)
	missing := func(key string, set cpuset.Set) {
		if absent := cpuset.Difference(set, present); !absent.IsEmpty() {
			warnings = append(warnings, fmt.Sprintf("%s: this machine has no CPUs %s; it has %s", key, absent, present))
		}
	}
	missing("reserved", c.Reserved)
	missing("system", c.System)
	if !c.System.IsEmpty() && !c.System.Overlaps(m.Online) {
		warnings = append(warnings, fmt.Sprintf("system: none of CPUs %s is online; SYSTEM containers share with LS", c.System))
	}
	free := cpuset.Difference(m.Online, cpuset.Union(c.Reserved, c.System))
	if free.IsEmpty() {
		fail("reserved", "reserved and system leave no CPU of %s for containers", m.Online)
		return warnings, errs
	}
	if c.Pools.Mode == Auto {
		c.Pools.Mode = modeOn(free.Size()/m.ThreadsPerCore(), len(c.Pools.List))
		if len(c.Control.HostApplications) > 0 {
			c.Pools.Mode = Overlap // exclusive pools would not bound them
		}
	}
	for i, p := range c.Pools.List {
		at := fmt.Sprintf("pools.list[%d].cpus", i)
		missing(at, p.CPUs.Set)
		if !p.CPUs.Set.IsEmpty() && !p.CPUs.Set.Overlaps(free) {
			fail(at, "none of CPUs %s is online, so that pool %s has no CPU", p.CPUs.Set, p.Name)
		}
	}
	threads := m.ThreadsPerCore()
	need, rest := 0, ""
	for _, p := range c.dividing() {
		need += p.CPUs.Count + cpuset.IntersectSize(p.CPUs.Set, free) + wholeCores(p.CPUs.Percent, free.Size(), threads)
		if p.CPUs.isRest() {
			rest = p.Name
		}
	}
	switch {
	case need > free.Size():
		fail("pools.list", "the pools take %d CPUs, and this machine has %d for them", need, free.Size())
	case need == free.Size() && rest != "":
		fail("pools.list", "the pools with a size take all %d CPUs, which leaves nothing for pool %s", need, rest)
	}
	if len(errs) > 0 {
		return warnings, errs
	}
	return append(warnings, c.lawWarnings(free.Size())...), nil
}

// smallNode is the number of CPUs below which exclusive pools can hardly stay within a band,
// because each has only a core or two.
const smallNode = 8

// coresPerPool is the number of cores for each pool from which pools.mode auto is exclusive. With
// fewer, a pool is a core or two, which hardly any load has within its band (decision small), so
// that services wait although the node is idle: see docs/simulation.md, node-8.
const coresPerPool = 2

// modeOn returns the mode that auto stands for.
func modeOn(cores, pools int) PoolMode {
	if cores < coresPerPool*pools {
		return Overlap
	}
	return Exclusive
}

// lawWarnings warns of settings of the control loop that have little or no effect if the pools
// divide so few CPUs.
func (c *Config) lawWarnings(free int) (warnings []string) {
	if c.Pools.Mode == Overlap {
		for i, p := range c.Pools.List {
			if p.Band != (Band{}) || p.RCF != (Band{}) || p.Min != 0 {
				warnings = append(warnings, fmt.Sprintf("pools.list[%d]: band, rcf and min of pool %s have no effect in mode overlap, where control.batch bounds batch work", i, p.Name))
			}
		}
		return warnings
	}
	if free < smallNode {
		warnings = append(warnings, fmt.Sprintf("pools.mode: exclusive divides %d CPUs into %d pools; below %d mode overlap, which bounds batch work on CPUs of all, serves better", free, len(c.Pools.List), smallNode))
	}
	least := 0
	for _, p := range c.Pools.List {
		least += p.Min
	}
	if least > free {
		warnings = append(warnings, fmt.Sprintf("pools.list: the pools' min are %d CPUs together, and this machine has %d for them: the lower pools have less", least, free))
	}
	return warnings
}

// wholeCores returns a percentage of cpus, rounded up to whole cores.
func wholeCores(percent, cpus, threads int) int {
	exact := percent * cpus
	return (exact + 100*threads - 1) / (100 * threads) * threads
}
