package sysfs

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// caches reads the L2 and L3 data caches. The level of an index folder differs between
// machines, so it reads the level of each.
func (t tree) caches(m *topology.Machine) error {
	var inL2, inL3 cpuset.Set
	for cpu := range m.Online.All() {
		if inL2.Contains(cpu) && inL3.Contains(cpu) {
			continue
		}
		for index := 0; ; index++ {
			dir := cpuFile(cpu, "cache/index"+strconv.Itoa(index)+"/")
			level, err := t.number(dir+"level", topology.None)
			if err != nil {
				return err
			}
			if level == topology.None {
				break
			}
			kind, _, err := t.text(dir + "type")
			if err != nil {
				return err
			}
			caches, in := &m.L2s, &inL2
			if level == 3 {
				caches, in = &m.L3s, &inL3
			}
			if level != 2 && level != 3 || kind != "Unified" && kind != "Data" || in.Contains(cpu) {
				continue
			}
			cache, err := t.cache(dir)
			if err != nil {
				return err
			}
			cache.CPUs.Add(cpu)
			cache.CPUs = cpuset.Difference(cpuset.Intersect(cache.CPUs, m.Online), *in)
			*in = cpuset.Union(*in, cache.CPUs)
			*caches = append(*caches, cache)
		}
	}
	m.L3s = append(m.L3s, standIns(m, cpuset.Difference(m.Online, inL3))...)
	slices.SortFunc(m.L3s, func(a, b topology.Cache) int { return a.CPUs.First() - b.CPUs.First() })
	return nil
}

// cache reads the folder of one cache.
func (t tree) cache(dir string) (c topology.Cache, err error) {
	if c.CPUs, err = t.firstList(dir + "shared_cpu_list"); err != nil {
		return c, err
	}
	if c.ID, err = t.number(dir+"id", topology.None); err != nil {
		return c, err
	}
	if c.Ways, err = t.number(dir+"ways_of_associativity", 0); err != nil {
		return c, err
	}
	size, ok, err := t.text(dir + "size")
	if err != nil || !ok {
		return c, err
	}
	c.SizeBytes, err = parseSize(size)
	if err != nil {
		return c, fmt.Errorf("%ssize: %w", dir, err)
	}
	return c, nil
}

// parseSize parses a size in KiB as the kernel writes it, "32768K". Older kernels also wrote
// "32M".
func parseSize(text string) (int64, error) {
	number, shift := text, 0
	if n, ok := strings.CutSuffix(text, "K"); ok {
		number, shift = n, 10
	} else if n, ok := strings.CutSuffix(text, "M"); ok {
		number, shift = n, 20
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%.40q is not a cache size like 32768K", text)
	}
	return n << shift, nil
}

// standIns returns L3s for the CPUs without a known one. Each consists of the CPUs of a node in
// one die, or of a whole node on guests where every CPU claims to be a package of its own.
func standIns(m *topology.Machine, without cpuset.Set) []topology.Cache {
	lonely := true
	for i := range m.Packages {
		lonely = lonely && m.Packages[i].CPUs.Size() == 1
	}
	dies := m.Dies
	if lonely {
		dies = []topology.Domain{{CPUs: m.Online}}
	}
	var caches []topology.Cache
	for i := range m.Nodes {
		here := cpuset.Intersect(m.Nodes[i].CPUs, without)
		for j := range dies {
			if cpus := cpuset.Intersect(here, dies[j].CPUs); !cpus.IsEmpty() {
				caches = append(caches, topology.Cache{ID: topology.None, CPUs: cpus})
			}
		}
	}
	return caches
}
