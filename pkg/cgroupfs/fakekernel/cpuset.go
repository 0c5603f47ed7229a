package fakekernel

import (
	"slices"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// core are the files of every hierarchy.
func (f Flavour) core(all map[string]file, controllers []string) {
	count := func(g *group) string {
		return strings.TrimSuffix(strings.Repeat("1\n", g.processes), "\n")
	}
	all["cgroup.procs"] = file{root: true, show: count}
	if !f.V2 {
		return
	}
	names := func(*group) string { return strings.Join(controllers, " ") }
	all["cgroup.controllers"] = file{root: true, show: names}
	all["cgroup.subtree_control"] = file{root: true, show: names}
	all["cgroup.events"] = file{show: func(g *group) string {
		if g.all(func(g *group) bool { return g.processes == 0 }) {
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
	case set.IsEmpty() && g.processes > 0:
		return syscall.ENOSPC
	}
	*at(g) = set
	return nil
}

// set2 takes any set; one in use stays filled (before 7).
func (g *group) set2(at func(*group) *cpuset.Set, set cpuset.Set) error {
	if set.IsEmpty() && g.processes > 0 && !at(g).IsEmpty() {
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
