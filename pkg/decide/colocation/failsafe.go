package colocation

import (
	"cmp"
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/cpualloc"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const (
	serviceWhy = "the loop is gone: what it requests"
	partWhy    = "the loop is gone: batch work's floor is not divided between pods"
	// FloorWhy is the reason given for the limits that the failsafe sets on batch work.
	FloorWhy = "the loop is gone: batch work's floor"
)

// Failsafe is the input of the failsafe's plan: the changes that give services what they
// request, and batch work its floor, when this process has ended. Pins stay.
type Failsafe struct {
	Containers []Container // as in Inventory

	WriteCPUs    bool       // Sluice has given containers that share CPUs other CPUs than all shared ones
	SharedCPUs   cpuset.Set // CPUs for services
	FloorCPUs    cpuset.Set // CPUs for batch work
	Floor        workload.MilliCPU
	NestedQuotas bool // cgroup v1: no quota may exceed that of a parent cgroup
	InForce      CPUDesired
	Quotas       []QuotaSetting // all quotas that Sluice has set
}

// QuotaSetting is a CPU quota that Sluice has set.
type QuotaSetting struct {
	knobs.Object
	Pod      string      // UID; "" for a cgroup above the pods
	Value    knobs.Value // value that Sluice has set
	Original knobs.Value // value before Sluice set any
	Recorded bool        // whether the journal has the original value
}

// Plan returns the changes.
func (f *Failsafe) Plan() []knobs.Change {
	var changes []knobs.Change
	if f.WriteCPUs {
		changes = f.planCPUs(changes)
	}
	return f.planQuotas(changes)
}

// SortChanges sorts changes by path and knob, so that equal plans are equal slices.
func SortChanges(changes []knobs.Change) {
	slices.SortStableFunc(changes, func(x, y knobs.Change) int {
		return cmp.Or(cmp.Compare(x.Object.Path, y.Object.Path), cmp.Compare(x.Knob, y.Knob))
	})
}

// planCPUs gives services all shared CPUs, and batch work its floor of them.
func (f *Failsafe) planCPUs(changes []knobs.Change) []knobs.Change {
	for i := range f.Containers {
		c := &f.Containers[i]
		if c.Request == nil || c.Pinned || !c.Started || !c.CPUsWritten || !c.Reachable || c.Is(workload.System) {
			continue
		}
		change := knobs.Change{Object: c.Object(), Knob: knobs.CPUs, To: knobs.CPUSet(f.SharedCPUs), Why: serviceWhy}
		if c.Is(workload.BE) {
			change.To, change.Why = knobs.CPUSet(f.FloorCPUs), FloorWhy
		}
		changes = append(changes, change)
	}
	return changes
}

// planQuotas restores the quotas of services, and gives batch work its floor.
func (f *Failsafe) planQuotas(changes []knobs.Change) []knobs.Change {
	least := Quota(FloorOf(f.Floor, len(f.InForce.BatchCgroups)+len(f.InForce.Pods)))
	raised := map[string]bool{} // by cgroup: containers of services and pods with a quota of the loop
	for i := range f.Containers {
		c := &f.Containers[i]
		if _, ours := f.InForce.Containers[c.ID]; ours && c.Request != nil && !c.Is(workload.BE) {
			raised[c.Path], raised[c.PodPath] = true, true
		}
	}
	for i := range f.Quotas {
		q := &f.Quotas[i]
		change := knobs.Change{Object: q.Object, Knob: knobs.Quota, From: q.Original}
		bounded := f.bounded(q)
		_, part := f.InForce.Parts[q.Pod]
		switch {
		case part && q.Level == knobs.PodLevel && q.Recorded:
			change.To, change.Why = q.Original, partWhy
			if had, ok := q.Original.(knobs.CPUQuota); ok && had.Finite() && had.Compare(least) > 0 {
				change.To = least // it has no more in its batch cgroup, and cgroup v1 refuses more
			}
		case f.below(q) && (q.Recorded || !bounded):
			// The change is needed even if the quota is at the floor now, since it may be
			// higher when the plan is carried out.
			to := least
			if has, ok := q.Value.(knobs.CPUQuota); ok && has.Finite() && has.Compare(least) <= 0 && !bounded {
				to = has
			}
			change.To, change.Why = to, FloorWhy
		case raised[q.Path] && q.Recorded:
			change.To, change.Why = q.Original, serviceWhy
		default:
			continue
		}
		changes = append(changes, change)
	}
	return changes
}

// bounded reports whether batch work's budget limits a cgroup.
func (f *Failsafe) bounded(q *QuotaSetting) bool {
	_, cgroup := f.InForce.BatchCgroups[q.Path]
	_, pod := f.InForce.Pods[q.Pod]
	return cgroup || pod && q.Level == knobs.PodLevel
}

// below reports whether a cgroup is bounded or, on cgroup v1, where no quota may exceed that of
// a parent, is below a bounded one.
func (f *Failsafe) below(q *QuotaSetting) bool {
	if f.bounded(q) {
		return true
	}
	if !f.NestedQuotas || q.Pod == "" {
		return false
	}
	above := Above(q.Path)
	if q.Level == knobs.ContainerLevel {
		above = Above(above)
	}
	_, pod := f.InForce.Pods[q.Pod]
	_, cgroup := f.InForce.BatchCgroups[above]
	return pod || cgroup
}

// FloorCPUs returns the n shared CPUs that batch work always has, or all shared CPUs if there
// are no more than n.
func FloorCPUs(m *topology.Machine, shared cpuset.Set, n int) cpuset.Set {
	if n >= shared.Size() {
		return shared
	}
	least, err := cpualloc.New(m).Shrink(shared, n, cpualloc.Preference{})
	if err != nil {
		return shared
	}
	return least
}
