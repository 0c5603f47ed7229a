package plan

import (
	"cmp"
	"slices"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Order returns the changes in an order in which each is safe:
//
//   - a CPU (or memory node) leaves its old holders before a new one gets it;
//   - within one hierarchy, parents widen before their children and children
//     shrink before their parents, which cgroup v1 insists on for cpusets
//     (EBUSY, EACCES) and for quotas (EINVAL).
//
// A change whose From is unknown is taken to give up all that it doesn't keep
// and to gain all that it names. Changes that trade CPUs in a circle have no
// such order; the first of them goes first. Otherwise the order is stable.
func Order(changes []Change) []Change {
	ordered := make([]Change, 0, len(changes))
	var gains []Change
	var trades []trade
	for _, c := range changes {
		switch gives, takes := c.gives(), c.takes(); {
		case !takes:
			ordered = append(ordered, c)
		case !gives:
			gains = append(gains, c)
		default:
			trades = append(trades, trade{c, c.lost(), c.gained()})
		}
	}
	slices.SortStableFunc(ordered, func(a, b Change) int { return cmp.Compare(b.Object.Level, a.Object.Level) })
	slices.SortStableFunc(trades, func(a, b trade) int { return cmp.Compare(a.Object.Level, b.Object.Level) })
	slices.SortStableFunc(gains, func(a, b Change) int { return cmp.Compare(a.Object.Level, b.Object.Level) })

	for len(trades) > 0 {
		next := max(0, slices.IndexFunc(trades, func(t trade) bool {
			return !slices.ContainsFunc(trades, t.waitsFor)
		}))
		ordered = append(ordered, trades[next].Change)
		trades = slices.Delete(trades, next, next+1)
	}
	return append(ordered, gains...)
}

// trade is a change that both gives up and takes. For a quota the sets are empty.
type trade struct {
	Change
	lost, gained cpuset.Set
}

// waitsFor reports whether t takes what other gives up.
func (t trade) waitsFor(other trade) bool {
	return t.Knob == other.Knob && t.gained.Overlaps(other.lost)
}

// gives reports whether the object has less in some respect afterwards.
func (c Change) gives() bool {
	if to, ok := c.To.(CPUQuota); ok {
		from, known := c.From.(CPUQuota)
		return !known || to.less(from)
	}
	return c.lost() != cpuset.Set{}
}

// takes reports whether the object has more in some respect afterwards.
func (c Change) takes() bool {
	if to, ok := c.To.(CPUQuota); ok {
		from, known := c.From.(CPUQuota)
		return !known || from.less(to)
	}
	return c.gained() != cpuset.Set{}
}

// lost is what a cpuset change may take from its object.
func (c Change) lost() cpuset.Set {
	to, ok := c.To.(CPUSet)
	if !ok {
		return cpuset.Set{}
	}
	from, _ := c.From.(CPUSet) // unknown: anything
	return cpuset.Difference(from.members(), to.members())
}

// gained is what a cpuset change may give its object.
func (c Change) gained() cpuset.Set {
	to, ok := c.To.(CPUSet)
	if !ok {
		return cpuset.Set{}
	}
	from, known := c.From.(CPUSet)
	if !known {
		return to.members()
	}
	return cpuset.Difference(to.members(), from.members())
}

// members is the set itself; for the empty one, which stands for all that the
// parent has, every number.
func (s CPUSet) members() cpuset.Set {
	if (s == CPUSet{}) {
		return cpuset.Range(0, cpuset.Max-1)
	}
	return cpuset.Set(s)
}

// less reports whether q allows less CPU time than r.
func (q CPUQuota) less(r CPUQuota) bool {
	if q.Unlimited() || r.Unlimited() {
		return !q.Unlimited() && r.Unlimited()
	}
	return q.Quota.Seconds()*r.Period.Seconds() < r.Quota.Seconds()*q.Period.Seconds()
}
