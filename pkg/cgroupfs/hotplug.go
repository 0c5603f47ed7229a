package cgroupfs

import (
	"errors"
	"path"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// GiveBack puts CPUs that came online again into the sets of a cgroup and of those
// above it, the highest first. v1 took them out of every set when they went, and
// puts none back (cpuset_hotplug_workfn in kernel/cgroup/cpuset.c); v2 does so by
// itself. A cgroup that is gone needs none.
func (d *Driver) GiveBack(dir string, cpus cpuset.Set) error {
	if d.cpuset == nil || d.cpuset.v2 || dir == "/" {
		return nil
	}
	if err := d.GiveBack(path.Dir(dir), cpus); err != nil {
		return err
	}
	err := d.cpuset.giveBack(dir, cpus)
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

func (h *hierarchy) giveBack(dir string, cpus cpuset.Set) error {
	return h.with(dir, func(c *cgroup) error { return c.giveBack(cpus) })
}

func (c *cgroup) giveBack(cpus cpuset.Set) error {
	const file = "cpuset.cpus"
	has, err := c.readSet(file)
	if err != nil {
		return err
	}
	parent, err := c.parentSet(file)
	if err != nil {
		return err
	}
	whole := cpuset.Union(has, cpuset.Intersect(cpus, parent))
	if whole == has {
		return nil
	}
	return c.write(file, whole.String())
}
