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
	serviceWhy   = "the loop is gone: what it requests"
	partWhy      = "the loop is gone: batch work's floor is not divided between pods"
	throttledWhy = "the loop is gone: batch work's floor bounds it"
	culpritWhy   = "the loop is gone: nobody observes whether services wait"
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
	raised := map[string]bool{}                 // by cgroup: containers of services and pods with a quota of the loop
	throttled := map[string]workload.MilliCPU{} // by cgroup: what the limits of throttled containers of batch work are otherwise
	freed := f.freed()
	for i := range f.Containers {
		c := &f.Containers[i]
		switch _, ours := f.InForce.Containers[c.ID]; {
		case !ours || c.Request == nil:
		case c.Is(workload.BE):
			throttled[c.Path] = c.cpuLimit()
		default:
			raised[c.Path], raised[c.PodPath] = true, true
		}
	}
	for i := range f.Quotas {
		q := &f.Quotas[i]
		change := knobs.Change{Object: q.Object, Knob: knobs.Quota, From: q.Original}
		bounded := f.bounded(q)
		_, part := f.InForce.Parts[q.Pod]
		own, culprit := freed[q.Path]
		limit, isThrottled := throttled[q.Path]
		if _, inside := f.InForce.BatchCgroups[Above(q.Path)]; inside && culprit {
			part = true
		}
		switch {
		case part && q.Level == knobs.PodLevel && q.Recorded:
			change.To, change.Why = q.Original, partWhy
			if had, ok := q.Original.(knobs.CPUQuota); ok && had.Finite() && had.Compare(least) > 0 {
				change.To = least // it has no more in its batch cgroup, and cgroup v1 refuses more
			}
		case f.below(q) && (q.Recorded || !bounded):
			// The change is needed even if the quota is at the floor now, since it may be
			// higher when the plan is carried out.
			value := q.Value
			switch {
			case bounded:
				value = q.Original // a host application's own limit, if any
			case !q.Recorded:
			case isThrottled:
				value = otherwise(limit, q.Original)
			case culprit:
				value = otherwise(own, q.Original)
			}
			change.To, change.Why = least, FloorWhy
			if has, ok := value.(knobs.CPUQuota); ok && has.Finite() && has.Compare(least) <= 0 {
				change.To = has
			}
		case raised[q.Path] && q.Recorded:
			change.To, change.Why = q.Original, serviceWhy
		case culprit && q.Recorded:
			change.To, change.Why = otherwise(own, q.Original), culpritWhy
		case isThrottled && q.Recorded && f.inside(q): // what bounds batch work as a whole stays
			change.To, change.Why = otherwise(limit, q.Original), throttledWhy
		default:
			continue
		}
		changes = append(changes, change)
	}
	return changes
}

// otherwise returns the quota of a cgroup without the loop: its own limit where the original value is
// higher; 0 for none.
func otherwise(limit workload.MilliCPU, original knobs.Value) knobs.Value {
	if had, ok := original.(knobs.CPUQuota); ok && limit > 0 && (!had.Finite() || Quota(limit).Compare(had) < 0) {
		return Quota(limit)
	}
	return original
}

// freed returns the CPU limits, by cgroup, of the pods that made services wait, as they are
// without that; 0 for none. On cgroup v1 it has those of their containers too, which the pod's
// quota has lowered.
func (f *Failsafe) freed() map[string]workload.MilliCPU {
	limits := map[string]workload.MilliCPU{}
	unlimited := map[string]bool{}
	for i := range f.Containers {
		c := &f.Containers[i]
		if _, culprit := f.InForce.Culprits[c.Pod.UID]; !culprit || c.Request == nil {
			continue
		}
		limit := c.cpuLimit()
		if f.NestedQuotas {
			limits[c.Path] = limit
		}
		limits[c.PodPath] += limit
		unlimited[c.PodPath] = unlimited[c.PodPath] || limit == 0
	}
	for pod := range unlimited {
		if unlimited[pod] {
			limits[pod] = 0
		}
	}
	return limits
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
	return f.bounded(q) || f.NestedQuotas && f.inside(q)
}

// inside reports whether a cgroup of a pod or container is below a bounded one.
func (f *Failsafe) inside(q *QuotaSetting) bool {
	if q.Pod == "" {
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
