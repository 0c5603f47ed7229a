package cgroupfs

import (
	"errors"
	"fmt"
	"path"
	"syscall"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// cpusFile is the file of a cpuset's CPUs.
const cpusFile = "cpuset.cpus"

// setSpec is a cpuset knob, whose file is the same on v1 and v2. What v2 follows is
// in the file's .effective.
func setSpec(file string) *Spec {
	return &Spec{
		Controller: "cpuset", V1: []string{file}, V2: []string{file}, Default: knobs.CPUSet{}, ReadBack: Effective,
		test: knobs.CPUSet{}, read: readSet, write: writeSet,
	}
}

// readSet gives the effective set for a v2 cpuset that was never set, which the
// parent gives.
func readSet(c *cgroup, s *Spec) (knobs.Value, error) {
	set, err := c.readSet(s.V1[0])
	if err == nil && c.in.v2 && set.IsEmpty() {
		set, err = c.readSet(effective(s.V1[0]))
	}
	if err != nil {
		return nil, err
	}
	return knobs.CPUSet(set), nil
}

func writeSet(c *cgroup, s *Spec, to knobs.Change) error {
	set, _ := to.To.(knobs.CPUSet)
	return c.writeSet(s.V1[0], cpuset.Set(set), to.Object.Level == knobs.ContainerLevel)
}

// writeSet sets cpuset.cpus or cpuset.mems; the empty set is all that the parent
// has.
//
// Pages follow a change of memory nodes on v2 by themselves, and the write waits
// for them, which may take minutes: callers make it where nobody waits. On v1 they follow only where cpuset.memory_migrate is 1; like runc
// and the kubelet, this package leaves it alone: new pages come from the new
// nodes, old ones stay, and the write is quick.
//
// follow lets the cgroups below follow a wider v1 set (see writeSet1): it is for
// a container, whose nested cgroups are its own business. A pod's containers
// have grants of their own.
func (c *cgroup) writeSet(file string, want cpuset.Set, follow bool) error {
	if c.in.v2 {
		return c.writeSet2(file, want)
	}
	if want.IsEmpty() {
		parent, err := c.parentSet(file)
		if err != nil {
			return err
		}
		want = parent
	}
	return c.writeSet1(file, want, follow)
}

// writeSet2 writes a v2 set. The kernel takes any and then follows only what the
// parent has of it, or, where that is nothing, all of the parent's: what it
// follows is read back.
func (c *cgroup) writeSet2(file string, set cpuset.Set) error {
	if set.IsEmpty() {
		err := c.write(file, "\n")
		// validate_change in kernel/cgroup/cpuset.c refuses to empty a set in
		// use on v2 too (seen on 6.1; changed upstream in 2026).
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		if set, err = c.parentSet(effective(file)); err != nil {
			return err
		}
	}
	if err := c.writeText(file, set); err != nil {
		return err
	}
	follows, err := c.readSet(effective(file))
	if err != nil {
		return err
	}
	if !follows.SubsetOf(set) {
		return fmt.Errorf("%w: %s is %s", ErrNotEffective, effective(file), follows)
	}
	return nil
}

// writeSet1 writes a v1 set, and those of the cgroups below, which must be parts
// of it at every moment (docker in a container makes such cgroups).
//
// A child keeps what it has of the new set; left with nothing, it gets all of
// it. With follow, one that had all of its parent's set gets all of the new one
// too: nested cgroups widen again with their container, and no record of what
// they had is needed. The price: a child narrower than its container, once its
// container has shrunk to the child's set, follows it from then on.
func (c *cgroup) writeSet1(file string, set cpuset.Set, follow bool) error {
	if c.folder.Childless() {
		return c.writeText(file, set)
	}
	old, err := c.readSet(file)
	if err != nil {
		return err
	}
	children, err := c.children()
	if err != nil {
		return err
	}
	wide := cpuset.Union(old, set)
	if wide != old {
		if err := c.writeText(file, wide); err != nil {
			return err
		}
	}
	for _, child := range children {
		if err := c.in.keepWithin(child, file, old, set, follow); err != nil && !errors.Is(err, ErrGone) {
			return fmt.Errorf("nested cgroup %s: %w", child, err)
		}
	}
	if wide == set {
		return nil
	}
	return c.writeText(file, set)
}

// keepWithin gives a child its part of its parent's new set.
func (h *hierarchy) keepWithin(dir, file string, parentOld, parentNew cpuset.Set, follow bool) error {
	return h.with(dir, func(child *cgroup) error {
		return child.keepWithin(file, parentOld, parentNew, follow)
	})
}

func (c *cgroup) keepWithin(file string, parentOld, parentNew cpuset.Set, follow bool) error {
	has, err := c.readSet(file)
	if err != nil {
		return err
	}
	if has.IsEmpty() {
		return nil // just made: no process can be in it yet
	}
	keeps := cpuset.Intersect(has, parentNew)
	if keeps.IsEmpty() || follow && has == parentOld {
		keeps = parentNew
	}
	if keeps == has {
		return nil
	}
	return c.writeSet1(file, keeps, follow)
}

func (c *cgroup) readSet(file string) (cpuset.Set, error) {
	text, err := c.look(file)
	if err != nil {
		return cpuset.Set{}, err
	}
	set, err := cpuset.Parse(text)
	if err != nil {
		return set, fmt.Errorf("%s of %s: %w", file, c.dir, err)
	}
	return set, nil
}

func (c *cgroup) parentSet(file string) (cpuset.Set, error) {
	var set cpuset.Set
	err := c.in.with(path.Dir(c.dir), func(parent *cgroup) (err error) {
		set, err = parent.readSet(file)
		if err == nil && set.IsEmpty() {
			err = fmt.Errorf("%w: %s of the parent, %s, is", ErrEmpty, file, parent.dir)
		}
		return err
	})
	return set, err
}

// effective is the v2 file that says what the kernel makes of a set.
func effective(file string) string { return file + ".effective" }
