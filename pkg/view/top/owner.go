package top

import (
	"strings"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// owner is a container class or a pool that has some of the CPUs.
type owner struct {
	letter byte // lower case; no two owners have the same letter, except '?'
	name   string
	tone   tone
	cpus   cpuset.Set
	pool   int // index in Status.Pools; -1 for none or several
}

// These letters belong to the owners that every node may have. Pools use the remaining ones.
const (
	letterLSE      = 'e'
	letterLSR      = 'r'
	letterReserved = 'v'
	letterSystem   = 'y'
	letterExternal = 'x'
	letterShared   = 's'
	letterNobody   = '-'
)

// owners divides the online CPUs among owners, one for each CPU. The last owner stands for CPUs
// without an owner, and may have none.
func owners(s *status.Status) []owner {
	m := &s.Machine
	rest := m.Online
	var all []owner
	add := func(letter byte, name string, t tone, cpus cpuset.Set, pool int) {
		if cpus = cpuset.Intersect(cpus, rest); !cpus.IsEmpty() {
			all = append(all, owner{letter, name, t, cpus, pool})
			rest = cpuset.Difference(rest, cpus)
		}
	}
	var lse, lsr cpuset.Set
	for i := range s.Containers {
		switch c := &s.Containers[i]; {
		case c.Pool != "":
		case c.Class == workload.LSE:
			lse = cpuset.Union(lse, c.CPUs)
		case c.Class == workload.LSR:
			lsr = cpuset.Union(lsr, c.CPUs)
		}
	}
	add(letterLSE, "LSE", ownCores, cpuset.Intersect(lse, m.Pinned), -1)
	add(letterLSR, "LSR", ownCPUs, cpuset.Intersect(lsr, m.Pinned), -1)
	add(letterExternal, "kubelet's", external, m.External, -1)
	add(letterReserved, "reserved", reserved, m.Reserved, -1)
	add(letterSystem, "system", system, m.System, -1)

	free := letters()
	for i := range s.Pools { // the pools that share a CPU may differ from one CPU to the next
		for cpus := cpuset.Intersect(s.Pools[i].CPUs, rest); !cpus.IsEmpty(); cpus = cpuset.Intersect(s.Pools[i].CPUs, rest) {
			with, names := sharers(s.Pools, cpus)
			if len(names) > 1 {
				add(free.take("shared"), strings.Join(names, ", "), shared, with, -1)
			} else {
				add(free.take(names[0]), names[0], firstPool+tone(i), with, i)
			}
		}
	}
	return append(all, owner{letterNobody, "nobody", plain, rest, -1})
}

// sharers returns the names of the pools that have the first of the CPUs, and all of the CPUs
// that exactly these pools have.
func sharers(pools []status.Pool, cpus cpuset.Set) (cpuset.Set, []string) {
	var names []string
	first := cpus.First()
	for i := range pools {
		if pools[i].CPUs.Contains(first) {
			names = append(names, pools[i].Name)
			cpus = cpuset.Intersect(cpus, pools[i].CPUs)
		} else {
			cpus = cpuset.Difference(cpus, pools[i].CPUs)
		}
	}
	return cpus, names
}

// alphabet is the set of unused letters.
type alphabet map[byte]bool

func letters() alphabet {
	free := alphabet{}
	for c := byte('a'); c <= 'z'; c++ {
		free[c] = !strings.ContainsRune("ervyx", rune(c))
	}
	return free
}

// take returns the first unused letter of a name, otherwise of the alphabet.
func (a alphabet) take(name string) byte {
	for _, c := range []byte(strings.ToLower(name) + "abcdefghijklmnopqrstuvwxyz") {
		if a[c] {
			a[c] = false
			return c
		}
	}
	return '?'
}
