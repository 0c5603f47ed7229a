package fakekernel

import (
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// procs is the file of a cgroup's processes.
const procs = "cgroup.procs"

// core are the files of every hierarchy.
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

// parseSet is bitmap_parselist: ERANGE above the possible CPUs, EINVAL for any
// other nonsense and for what is possible and not there.
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

// set1 is validate_change of v1: used sets stay filled, children inside of parents.
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

// set2 takes any set; one in use stays filled (before 7).
func (g *group) set2(at func(*group) *cpuset.Set, set cpuset.Set) error {
	if set.IsEmpty() && len(g.pids) > 0 && !at(g).IsEmpty() {
		return syscall.ENOSPC
	}
	*at(g) = set
	return nil
}

// effective is what v2 follows.
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

// attach moves a process here from where it is in this hierarchy. A v1 cpuset
// without CPUs or memory nodes takes none (cpuset_can_attach).
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

// takesNone reports whether the group is a v1 cpuset that no process can be in.
func (g *group) takesNone() bool {
	return !g.in.kernel.V2 && g.in.name == "cpuset" && (g.cpus.IsEmpty() || g.mems.IsEmpty())
}

// unplugged takes CPUs that went offline out of a v1 cpuset and of those below it, as
// hotplug_update_tasks_legacy does. The processes of one that has none left move to
// the nearest ancestor that has some (remove_tasks_in_empty_cpuset), and never back.
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
