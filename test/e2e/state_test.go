package e2e

import (
	"fmt"
	"maps"
	"testing"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// statusOf returns the plugin's status.
func statusOf(t *testing.T, s *runtime.Sluice) *status.Status {
	t.Helper()
	st, err := s.Status()
	must(t, err)
	return st
}

// entry returns the status of a container.
func entry(t *testing.T, s *runtime.Sluice, c *runtime.Container) status.Container {
	t.Helper()
	st := statusOf(t, s)
	for _, e := range st.Containers {
		if e.ID == c.ID {
			return e
		}
	}
	t.Fatalf("status has no container %s", c.ID)
	return status.Container{}
}

// consistent checks that the plugin's status and the kernel agree when nothing is happening.
func consistent(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice) {
	t.Helper()
	all, err := inconsistencies(rt, statusOf(t, s))
	must(t, err)
	for _, one := range all {
		t.Error(one)
	}
}

// inconsistencies compares the plugin's status with the kernel when nothing is happening: each
// container has the CPUs that the status shows, all running containers are listed, nobody else is
// on a pin's CPUs, and both levels of nested containers have the same limits.
func inconsistencies(rt *runtime.Runtime, st *status.Status) (all []error, err error) {
	kernel, err := rt.CPUSets()
	if err != nil {
		return nil, err
	}
	sandboxes, err := rt.Sandboxes()
	if err != nil {
		return nil, err
	}
	wrong := func(format string, a ...any) { all = append(all, fmt.Errorf(format, a...)) }
	maps.DeleteFunc(kernel, func(id string, _ cpuset.Set) bool { return sandboxes[id] }) // pause containers do nothing
	told := map[string]bool{}
	for _, c := range st.Containers {
		told[c.ID] = true
		has, runs := kernel[c.ID]
		if !runs {
			continue
		}
		want := c.CPUs
		if want.IsEmpty() {
			want = st.Machine.Online
		}
		if has != want {
			wrong("%s %s is on CPUs %s, and told to be on %s", c.Class, c.Ref, has, want)
		}
		if !c.Class.Pinned() || !c.Unlimited {
			continue // the container shares CPUs
		}
		for id, other := range kernel {
			if id != c.ID && other.Overlaps(has) {
				wrong("%s has CPUs %s for itself, and %s is on %s", c.Ref, has, id, other)
			}
		}
	}
	for id := range kernel {
		if !told[id] {
			wrong("container %s runs, and sluice does not know it", id)
		}
	}
	uneven, err := rt.Uneven()
	for _, limit := range uneven {
		wrong("container %s", limit)
	}
	if st.Counters.Panics > 0 {
		wrong("%d panics", st.Counters.Panics)
	}
	return all, err
}

// even checks that both levels of nested containers have the same limits.
func even(t *testing.T, rt *runtime.Runtime) {
	t.Helper()
	uneven, err := rt.Uneven()
	must(t, err)
	for _, limit := range uneven {
		t.Errorf("container %s", limit)
	}
}

// empties removes all pods but one, and checks that the plugin forgets them and frees their CPUs.
func empties(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice, but ...*runtime.Pod) {
	t.Helper()
	must(t, rt.RemoveAll(but...))
	await(t, "the containers are forgotten", func() bool { return len(statusOf(t, s).Containers) == len(but) })
	if pinned := statusOf(t, s).Machine.Pinned; pinned.Size() != len(but) {
		t.Errorf("CPUs %s are pinned when all pods but %d are gone", pinned, len(but))
	}
}

// pinOf runs a pod of the class with one CPU of its own and returns that CPU.
func pinOf(t *testing.T, rt *runtime.Runtime, name, class string) (*runtime.Pod, cpuset.Set) {
	t.Helper()
	pod := run(t, rt, classed(name, class, runtime.Whole(1000, 64*mib)))
	return pod, alone(t, pod.Container("c"))
}

// alone returns the single CPU of a pin.
func alone(t *testing.T, c *runtime.Container) cpuset.Set {
	t.Helper()
	cpus, err := c.CPUs()
	must(t, err)
	if cpus.Size() != 1 {
		t.Fatalf("the pin has CPUs %s, want one of its own", cpus)
	}
	if quota := limit(t, c.File); quota >= 0 {
		t.Errorf("the pin is limited to %s CPUs, want no quota", quota)
	}
	return cpus
}

// isOn checks a container's cpuset.
func isOn(t *testing.T, c *runtime.Container, want cpuset.Set) {
	t.Helper()
	if cpus, err := c.CPUs(); err != nil || cpus != want {
		t.Errorf("the container is on CPUs %s (%v), want %s", cpus, err, want)
	}
}
