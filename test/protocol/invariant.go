package protocol

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// CPUs returns the container's cpuset in the record; an empty set stands for all.
func (c *Container) CPUs() (cpuset.Set, error) {
	return cpuset.Parse(c.Linux.Resources.Cpu.Cpus)
}

// Pinned reports whether the plugin has given the container CPUs of its own, which it shows by
// lifting its quota.
func (c *Container) Pinned() bool {
	return c.Linux.Resources.Cpu.GetQuota().GetValue() < 0
}

// Live reports whether the container has not ended.
func (c *Container) Live() bool { return c.State != api.ContainerState_CONTAINER_STOPPED }

// inVM reports whether the container runs in a virtual machine, where sluice sets nothing.
func (c *Container) inVM() bool { return strings.HasPrefix(c.Pod.RuntimeHandler, "kata") }

// Check checks, from the runtime's record alone, what must hold after every event: a pin's CPUs
// are in no other container's set, no set is empty or offline, and pins leave CPUs to the others.
func (r *Runtime) Check(online cpuset.Set) error {
	var errs []error
	var pinned cpuset.Set
	live := map[*Container]cpuset.Set{}
	for _, c := range r.Containers() {
		if !c.Live() || c.inVM() {
			continue
		}
		cpus, err := c.CPUs()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.Label, err))
			continue
		}
		if cpus.IsEmpty() {
			cpus = online
		}
		if !cpus.SubsetOf(online) {
			errs = append(errs, fmt.Errorf("%s has CPUs %s, which are not online", c.Label, cpuset.Difference(cpus, online)))
		}
		live[c] = cpus
		if c.Pinned() {
			pinned = cpuset.Union(pinned, cpus)
		}
	}
	for c, cpus := range live {
		for other, others := range live {
			if c != other && c.Pinned() && cpus.Overlaps(others) {
				errs = append(errs, fmt.Errorf("CPUs %s are pinned to %s and in the set of %s", cpuset.Intersect(cpus, others), c.Label, other.Label))
			}
		}
	}
	if online.SubsetOf(pinned) {
		errs = append(errs, errors.New("all CPUs are pinned"))
	}
	return errors.Join(errs...)
}

// CheckStatus checks that the plugin's ledger and the runtime's record have the same containers
// with the same CPUs. A container that shares may have fewer CPUs in the record until an event
// whose reply can change it.
func (r *Runtime) CheckStatus(s *status.Status) error {
	var errs []error
	known := map[string]status.Container{}
	for _, c := range s.Containers {
		known[c.ID] = c
	}
	for _, c := range r.Containers() {
		entry, ok := known[c.Id]
		delete(known, c.Id)
		switch cpus, err := c.CPUs(); {
		case !c.Live():
		case !ok:
			errs = append(errs, fmt.Errorf("%s is not in sluice's ledger", c.Label))
		case err != nil:
			errs = append(errs, err)
		case s.Mode == "on" && entry.Controlled && orAll(cpus, s) != orAll(entry.CPUs, s) && (c.Pinned() || !orAll(cpus, s).SubsetOf(orAll(entry.CPUs, s))):
			errs = append(errs, fmt.Errorf("%s has CPUs %s by the runtime's record and %s by sluice's ledger", c.Label, orAll(cpus, s), orAll(entry.CPUs, s)))
		}
	}
	for _, c := range known {
		errs = append(errs, fmt.Errorf("sluice's ledger has %s (%s), which the runtime does not know", c.Ref, c.CPUs))
	}
	return errors.Join(errs...)
}

func orAll(cpus cpuset.Set, s *status.Status) cpuset.Set {
	if cpus.IsEmpty() {
		return s.Machine.Online
	}
	return cpus
}
