package knobs

import (
	"cmp"
	"path"
	"slices"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Order returns the changes in an order in which each is safe:
//
//   - a CPU (or memory node) leaves its old holders before a new one gets it;
//   - within one hierarchy, parents widen before their children and children
//     shrink before their parents. Cgroup v1 insists on it for cpusets (EBUSY,
//     EACCES) and for quotas (EINVAL); for memory it keeps a child from being
//     promised what its parent hasn't; and a CPU priority falls and rises so,
//     since openEuler changes no child of an offline parent, and TencentOS lets
//     no child be above its parent;
//   - within one cgroup, a burst shrinks before the quota changes and grows after
//     it (EINVAL where it is above the quota); protected memory, high and hard
//     limit shrink from the lowest up and grow from the highest down; and idle is
//     off while the weight changes (EINVAL).
//
// A change whose From is unknown is taken to give up all that it doesn't keep
// and to gain all that it names; an unknown quota follows its parents'. A limit is
// lifted before quotas shrink, and set where there was none after they grow. Changes
// that trade CPUs in a circle have no such order; the first of them goes first.
// Otherwise the order is stable.
//
// Order may return more changes than it was given: a burst that shrinks, or
// whose old value is unknown, goes to 0 before the quota of its cgroup changes
// and to its value after it, and so does idle before the weight. A burst that
// merely shrank first would be divided by 1000 by a v2 quota write before Linux
// 6.10.
func Order(changes []Change) []Change {
	p := phases{shrink: make([]Change, 0, len(changes)), with: companions(changes)}
	for _, c := range changes {
		p.add(c)
	}
	slices.SortStableFunc(p.shrink, shrinking)
	slices.SortStableFunc(p.trades, func(a, b trade) int { return growing(a.Change, b.Change) })
	slices.SortStableFunc(p.grow, growing)

	ordered := p.shrink
	for len(p.trades) > 0 {
		next := max(0, slices.IndexFunc(p.trades, func(t trade) bool {
			return !slices.ContainsFunc(p.trades, t.waitsFor)
		}))
		ordered = append(ordered, p.trades[next].Change)
		p.trades = slices.Delete(p.trades, next, next+1)
	}
	return append(ordered, p.grow...)
}

// shrinking orders the changes that take something from an object. Leaving idle comes first.
func shrinking(a, b Change) int {
	return cmp.Or(
		-cmp.Compare(a.Knob.outermost(), b.Knob.outermost()),
		-cmp.Compare(a.Object.Level, b.Object.Level),
		cmp.Compare(table[a.Knob].height, table[b.Knob].height))
}

// growing orders the changes that give something to an object. Entering idle comes last.
func growing(a, b Change) int {
	return cmp.Or(
		cmp.Compare(a.Knob.outermost(), b.Knob.outermost()),
		cmp.Compare(a.Object.Level, b.Object.Level),
		-cmp.Compare(table[a.Knob].height, table[b.Knob].height))
}

// outermost returns 1 for a knob that takes effect last and is reset first, and 0 for others.
func (k Knob) outermost() int8 {
	if table[k].outermost {
		return 1
	}
	return 0
}

// phases are the changes, by when they are due, in the order of the fields.
type phases struct {
	shrink []Change
	trades []trade
	grow   []Change

	with map[string]companion
}

func (p *phases) add(c Change) {
	switch c.Knob {
	case Idle:
		p.addIdle(c)
		return
	case Burst:
		p.addBurst(c)
		return
	}
	gives, takes := c.gives(), c.takes()
	if c.Knob == Quota {
		gives, takes = p.byLimits(c)
	}
	switch {
	case !takes:
		p.shrink = append(p.shrink, c)
	case !gives:
		p.grow = append(p.grow, c)
	default:
		p.trades = append(p.trades, trade{c, c.lost(), c.gained()})
	}
}

func (p *phases) addIdle(c Change) {
	if c.To == Number(0) {
		p.shrink = append(p.shrink, c)
		return
	}
	if p.with[c.Object.Path].weight && c.From != Number(0) {
		p.shrink = append(p.shrink, c.via(Number(0), "the weight can't change while it is 1"))
		c.From = Number(0)
	}
	p.grow = append(p.grow, c)
}

func (p *phases) addBurst(c Change) {
	to, _ := c.To.(CPUBurst)
	from, known := c.From.(CPUBurst)
	switch {
	case to == 0:
		p.shrink = append(p.shrink, c)
	case p.with[c.Object.Path].quota == nil:
		if known && to < from {
			p.shrink = append(p.shrink, c)
		} else {
			p.grow = append(p.grow, c)
		}
	default:
		if !known || to < from {
			p.shrink = append(p.shrink, c.via(CPUBurst(0), "the quota can't change below it"))
			c.From = CPUBurst(0)
		}
		p.grow = append(p.grow, c)
	}
}

// via returns the first half of the change, to a value that is safe in between.
func (c Change) via(between Value, why string) Change {
	c.To = between
	c.Why = why + ": " + c.Why
	return c
}

// byLimits determines the direction of a quota change by the rules of cgroup v1. An unlimited
// quota counts as its parent's, so that it fits below any. A limit fits once its parents have
// grown and its children have shrunk or lost theirs.
func (p *phases) byLimits(c Change) (gives, takes bool) {
	from, known := c.From.(CPUQuota)
	to, _ := c.To.(CPUQuota)
	switch {
	case known && from.Unlimited() != to.Unlimited():
		return to.Unlimited(), from.Unlimited()
	case !known:
		return p.asParents(c.Object.Path)
	}
	return c.gives(), c.takes()
}

// asParents determines the direction of an unknown quota by the nearest parent whose change is
// known. Below a parent that shrinks it must be small enough before, and below one that grows
// it may be too large until after.
func (p *phases) asParents(of string) (gives, takes bool) {
	for dir := path.Dir(of); len(dir) > 1; dir = path.Dir(dir) {
		if parent := p.with[dir].quota; parent != nil && parent.From != nil {
			return parent.gives(), parent.takes()
		}
	}
	return true, true
}

// companion holds the other changes of the same cgroup.
type companion struct {
	quota  *Change
	weight bool
}

// companions returns the changes of quotas and weights that matter to bursts, idle and unknown
// quotas, by cgroup. It is nil if there are none.
func companions(changes []Change) map[string]companion {
	if !slices.ContainsFunc(changes, func(c Change) bool {
		return c.Knob == Burst || c.Knob == Idle || c.Knob == Quota && c.From == nil
	}) {
		return nil
	}
	found := map[string]companion{}
	for i, c := range changes {
		with := found[c.Object.Path]
		switch c.Knob {
		case Quota:
			with.quota = &changes[i]
		case Weight:
			with.weight = true
		default:
			continue
		}
		found[c.Object.Path] = with
	}
	return found
}

// trade is a change that both gives up CPUs and takes others. For knobs other than cpusets the
// sets are empty.
type trade struct {
	Change
	lost, gained cpuset.Set
}

// waitsFor reports whether t takes what other gives up.
func (t trade) waitsFor(other trade) bool {
	return t.Knob == other.Knob && t.gained.Overlaps(other.lost)
}

// gives reports whether the object has less in some respect after the change.
func (c Change) gives() bool {
	switch to := c.To.(type) {
	case CPUQuota:
		from, known := c.From.(CPUQuota)
		return !known || to.Compare(from) < 0
	case Bytes:
		from, known := c.From.(Bytes)
		return !known || to.Compare(from) < 0
	case Number:
		return c.sinks(to)
	}
	return c.lost() != cpuset.Set{}
}

// takes reports whether the object has more in some respect after the change.
func (c Change) takes() bool {
	switch to := c.To.(type) {
	case CPUQuota:
		from, known := c.From.(CPUQuota)
		return !known || to.Compare(from) > 0
	case Bytes:
		from, known := c.From.(Bytes)
		return !known || to.Compare(from) > 0
	case Number:
		return table[c.Knob].priority != noPriority && !c.sinks(to)
	}
	return c.gained() != cpuset.Set{}
}

// sinks reports whether a CPU priority falls. If the old value is unknown, it falls if the new
// one is below normal.
func (c Change) sinks(to Number) bool {
	from, _ := c.From.(Number) // unknown: 0, which is normal everywhere
	switch table[c.Knob].priority {
	case moreIsHigher:
		return to < from
	case moreIsLower:
		return to > from
	}
	return false
}

// lost returns what a cpuset change may take from its object.
func (c Change) lost() cpuset.Set {
	to, ok := c.To.(CPUSet)
	if !ok {
		return cpuset.Set{}
	}
	from, _ := c.From.(CPUSet) // unknown: anything
	return cpuset.Difference(from.members(), to.members())
}

// gained returns what a cpuset change may give to its object.
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

// members returns the set itself or, for the empty set, which stands for all that the parent
// has, every number.
func (s CPUSet) members() cpuset.Set {
	if (s == CPUSet{}) {
		return cpuset.Range(0, cpuset.Max-1)
	}
	return cpuset.Set(s)
}
