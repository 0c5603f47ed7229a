package fakekernel

import (
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// procs is the file that lists a cgroup's processes.
const procs = "cgroup.procs"

// core adds the files that every hierarchy has.
func (f Flavour) core(all map[string]file, controllers []string) {
	list := func(g *group) string {
		var lines []string
		for _, pid := range g.pids {
			lines = append(lines, strconv.Itoa(pid))
		}
		return strings.Join(lines, "\n")
	}
	all[procs] = file{root: true, show: list, store: (*group).attach}
	if !f.V2 {
		return
	}
	names := func(*group) string { return strings.Join(controllers, " ") }
	all["cgroup.controllers"] = file{root: true, show: names}
	all["cgroup.subtree_control"] = file{root: true, show: names}
	all["cgroup.events"] = file{show: func(g *group) string {
		if g.all(func(g *group) bool { return len(g.pids) == 0 }) {
			return "populated 0\nfrozen 0"
		}
		return "populated 1\nfrozen 0"
	}}
}

func (f Flavour) cpusetFiles(all map[string]file) {
	sets := []struct {
		name string
		at   func(*group) *cpuset.Set
		most cpuset.Set
	}{
		{"cpuset.cpus", func(g *group) *cpuset.Set { return &g.cpus }, cpuset.Range(0, CPUs-1)},
		{"cpuset.mems", func(g *group) *cpuset.Set { return &g.mems }, cpuset.Range(0, Nodes-1)},
	}
	for _, s := range sets {
		store := func(g *group, text string) error {
			set, err := parseSet(text, s.most, s.name)
			if err != nil {
				return err
			}
			if f.V2 {
				return g.set2(s.at, set)
			}
			return g.set1(s.at, set)
		}
		all[s.name] = file{root: !f.V2, show: func(g *group) string { return s.at(g).String() }, store: store}
		if f.V2 {
			all[s.name+".effective"] = file{root: true, show: func(g *group) string { return g.effective(s.at).String() }}
		}
	}
}

// parseSet implements bitmap_parselist. It returns ERANGE for numbers above the possible CPUs, and
// EINVAL for CPUs that are possible but absent and for anything else that is no list.
func parseSet(text string, most cpuset.Set, name string) (cpuset.Set, error) {
	set, err := cpuset.Parse(text)
	switch {
	case err != nil:
		return set, syscall.EINVAL
	case set.SubsetOf(most):
		return set, nil
	case name == "cpuset.cpus":
		return set, syscall.ERANGE
	}
	return set, syscall.EINVAL
}

// set1 implements validate_change of cgroup v1: the set of a cgroup with processes must not be
// empty, and children's sets are subsets of their parent's.
func (g *group) set1(at func(*group) *cpuset.Set, set cpuset.Set) error {
	children := slices.Collect(func(yield func(*group) bool) {
		for _, child := range g.children {
			if !yield(child) {
				return
			}
		}
	})
	switch {
	case g.parent == nil:
		return syscall.EACCES
	case slices.ContainsFunc(children, func(c *group) bool { return !at(c).SubsetOf(set) }):
		return syscall.EBUSY
	case !set.SubsetOf(*at(g.parent)):
		return syscall.EACCES
	case set.IsEmpty() && len(g.pids) > 0:
		return syscall.ENOSPC
	}
	*at(g) = set
	return nil
}

// set2 accepts any set, except that the set of a cgroup with processes must not become empty
// (before 7.0).
func (g *group) set2(at func(*group) *cpuset.Set, set cpuset.Set) error {
	if set.IsEmpty() && len(g.pids) > 0 && !at(g).IsEmpty() {
		return syscall.ENOSPC
	}
	*at(g) = set
	return nil
}

// effective returns the effective set of cgroup v2.
func (g *group) effective(at func(*group) *cpuset.Set) cpuset.Set {
	if g.parent == nil {
		return *at(g)
	}
	above := g.parent.effective(at)
	if own := cpuset.Intersect(*at(g), above); !own.IsEmpty() {
		return own
	}
	return above
}

// attach moves a process into this cgroup of the hierarchy. A v1 cpuset without CPUs or memory
// nodes accepts no process (cpuset_can_attach).
func (g *group) attach(text string) error {
	pid, err := strconv.Atoi(text)
	if err != nil {
		return syscall.EINVAL
	}
	var from *group
	g.in.root.all(func(other *group) bool {
		if slices.Contains(other.pids, pid) {
			from = other
		}
		return from == nil
	})
	switch {
	case from == nil:
		return syscall.ESRCH
	case g.takesNone():
		return syscall.ENOSPC
	}
	from.pids = slices.DeleteFunc(from.pids, func(other int) bool { return other == pid })
	g.pids = append(g.pids, pid)
	return nil
}

// takesNone reports whether the group is a v1 cpuset that accepts no process.
func (g *group) takesNone() bool {
	return !g.in.kernel.V2 && g.in.name == "cpuset" && (g.cpus.IsEmpty() || g.mems.IsEmpty())
}

// unplugged removes CPUs that went offline from a v1 cpuset and from those below it, as
// hotplug_update_tasks_legacy does. If a cpuset has none left, its processes move to the nearest
// ancestor that has some (remove_tasks_in_empty_cpuset), and never return.
func (g *group) unplugged(online cpuset.Set) {
	g.cpus = cpuset.Intersect(g.cpus, online)
	for _, child := range g.children {
		child.unplugged(online)
	}
	if g.parent == nil || !g.cpus.IsEmpty() {
		return
	}
	to := g.parent
	for cpuset.Intersect(to.cpus, online).IsEmpty() {
		to = to.parent
	}
	to.pids = append(to.pids, g.pids...)
	g.pids = nil
}
