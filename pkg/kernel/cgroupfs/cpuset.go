package cgroupfs

import (
	"errors"
	"fmt"
	"path"
	"syscall"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const cpusFile = "cpuset.cpus"

// setSpec describes a cpuset knob, whose file has the same name on v1 and v2. On v2, the set
// that the kernel applies is in the file with the suffix .effective.
func setSpec(file string) *Spec {
	return &Spec{
		Controller: "cpuset", V1: []string{file}, V2: []string{file}, Default: knobs.CPUSet{}, ReadBack: Effective,
		test: knobs.CPUSet{}, read: readSet, write: writeSet,
	}
}

// readSet reads a cpuset file. For a v2 cpuset that was never set, it returns the effective
// set, which comes from the parent.
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

// writeSet sets cpuset.cpus or cpuset.mems. The empty set stands for all that the parent has.
//
// On v2 the kernel migrates pages after a change of memory nodes, and the write waits for the
// migration, which may take minutes: call writeSet where nothing else waits for it. On v1 pages
// migrate only if cpuset.memory_migrate is 1. Like runc and the kubelet, this package doesn't
// change that file: new pages come from the new nodes, old pages stay, and the write is quick.
//
// follow lets nested cgroups grow with a wider v1 set (see writeSet1). It is meant for the
// cgroup of a container, whose nested cgroups have no settings of their own; the containers of
// a pod have their own grants.
func (c *cgroup) writeSet(file string, want cpuset.Set, follow bool) error {
	if c.in.v2 {
		err := c.writeSet2(file, want)
		if errors.Is(err, syscall.EPERM) {
			err = fmt.Errorf("%w: %w", ErrNamespace, err)
		}
		return err
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

// writeSet2 writes a v2 set. The kernel accepts any set and then applies only its intersection
// with the parent's set, or the whole of the parent's set if the intersection is empty.
// writeSet2 therefore reads back the effective set.
func (c *cgroup) writeSet2(file string, set cpuset.Set) error {
	if set.IsEmpty() {
		err := c.write(file, "\n")
		// On v2, too, validate_change in kernel/cgroup/cpuset.c refuses to empty a set in use
		// (observed on 6.1; changed upstream in 2026).
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

// writeSet1 writes a v1 set and the sets of the nested cgroups, which must be subsets of it at
// every moment (docker in a container creates such cgroups).
//
// A nested cgroup keeps the part of its set that is in the new set; if that is empty, it gets
// the whole new set. With follow, a nested cgroup whose set equals its parent's also gets the
// whole new set, so that nested cgroups grow with their container and their former sets need
// not be recorded. The drawback: once a container has shrunk to the set of a narrower nested
// cgroup, that cgroup follows the container from then on.
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

// keepWithin restricts the set of a nested cgroup to its parent's new set (see writeSet1).
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
		return nil // the cgroup is new and can't have processes yet
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
	text, err := c.readCached(file)
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

// effective names the v2 file that shows the set that the kernel applies.
func effective(file string) string { return file + ".effective" }
