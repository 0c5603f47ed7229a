package cgroupfs

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"syscall"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// GiveBack adds CPUs that are online again to the sets of a cgroup and of its ancestors, the
// highest first. v1 removes CPUs that go offline from every set and never adds them again
// (cpuset_hotplug_workfn in kernel/cgroup/cpuset.c); v2 adds them by itself. GiveBack does
// nothing for a cgroup that no longer exists.
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

// Rejoin moves a cgroup's processes back into its cpuset, and returns how many it moved. When a
// v1 cpuset loses its last CPU, the kernel moves its processes to the nearest ancestor that has
// CPUs, and leaves them there when the cpuset gets CPUs again (remove_tasks_in_empty_cpuset in
// kernel/cgroup/cpuset.c). On v2 a cpuset without CPUs uses its parent's, and no process moves.
func (d *Driver) Rejoin(dir string) (int, error) {
	members := d.members()
	if d.cpuset == nil || members == d.cpuset {
		return 0, nil
	}
	have, in := processes{file: procsFile}, processes{file: procsFile}
	if err := have.in(members, dir); err != nil {
		return 0, ignore(err, ErrGone)
	}
	if err := in.in(d.cpuset, dir); err != nil {
		return 0, ignore(err, ErrGone)
	}
	slices.Sort(in.pids)
	moved := 0
	for i, pid := range have.pids {
		if _, inside := slices.BinarySearch(in.pids, pid); inside {
			continue
		}
		err := d.cpuset.attach(have.at[i], pid)
		if errors.Is(err, ErrGone) || errors.Is(err, syscall.ENOSPC) {
			// If the nested cpuset doesn't exist or has no CPUs, the container's cpuset will
			// do.
			err = d.cpuset.attach(dir, pid)
		}
		switch {
		case err == nil:
			moved++
		case !errors.Is(err, syscall.ESRCH): // the process has not ended
			return moved, err
		}
	}
	return moved, nil
}

func (h *hierarchy) attach(dir string, pid int) error {
	return h.with(dir, func(c *cgroup) error { return c.write(procsFile, strconv.Itoa(pid)) })
}

// ignore returns nil for an error of that kind, and any other error unchanged.
func ignore(err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return err
}
