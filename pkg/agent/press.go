package agent

import (
	"errors"
	"maps"
	"slices"

	"github.com/sluice-dev/sluice/pkg/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/control"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/plan"
)

// press is where batch work's memory limit goes down, in a goroutine of its own: the
// kernel reclaims in the time of who writes a limit or asks it to. One press is under
// way at a time; what is wanted meanwhile is asked for again by the next step.
type press struct {
	want    control.MemoryDesired // by the memory controller, if it acts
	rules   []control.Reclaim     // asked for by rules, and not begun yet
	busy    bool
	limits  map[string]plan.Bytes // of boxes, that Sluice has set
	problem string                // told last
}

// squeeze is one press: memory to take from containers, and boxes to limit then.
type squeeze struct {
	reclaim []plan.Change // memory.current of a cgroup, To what it is to come down to
	limits  []limitChange
}

// limitChange is a limit to set, with what Sluice wrote before; nil nothing.
type limitChange struct {
	plan.Change
	before plan.Value
}

// pressMemory carries out what is wanted of batch work's memory. A kernel that can't
// reclaim on request does so where a limit is set below what is in use; cgroup v1
// refuses what it can't get, so that there the limit goes down in its place, while v2
// would kill.
func (a *Agent) pressMemory() {
	l := &a.loop
	p := &l.press
	if p.busy || !a.tunes() {
		return
	}
	if p.want.BatchLimit <= 0 {
		a.unpress(nil)
	} else {
		a.unpress(l.boxes)
	}
	var s squeeze
	s.take(a, p.want.Reclaim)
	s.take(a, p.rules)
	p.rules = p.rules[:0]
	limit := plan.Bytes(p.want.BatchLimit)
	if taken := asked(p.want.Reclaim); taken > 0 && !a.Node.Features.Knobs[plan.MemoryMax].V2 {
		limit = plan.Bytes(max(p.want.Goal, p.want.Held-taken))
	}
	if limit > 0 && a.Node.Features.Has(plan.MemoryMax) {
		for _, box := range l.boxes {
			if change, ok := a.limitOf(box, limit/plan.Bytes(len(l.boxes))); ok {
				s.limits = append(s.limits, change)
			}
		}
	}
	if len(s.limits) == 0 && len(s.reclaim) == 0 {
		return
	}
	if err := a.book.Flush(); err != nil { // the originals are not on disk
		for i := range s.limits {
			a.unlimit(&s.limits[i])
		}
		s.limits = nil
	}
	p.busy = true
	var failed map[string]bool
	var err error
	a.aside("memory", func() { failed, err = a.carryOutSqueeze(&s) }, func() { a.pressed(&s, failed, err) })
}

func asked(reclaim []control.Reclaim) (bytes int64) {
	for _, r := range reclaim {
		bytes += r.Bytes
	}
	return bytes
}

// take enters what is to be reclaimed from containers that are there.
func (s *squeeze) take(a *Agent, reclaim []control.Reclaim) {
	if a.Reclaim == nil {
		return
	}
	for _, r := range reclaim {
		if c := a.containers[r.ID]; c != nil && a.reaches(c) {
			s.reclaim = append(s.reclaim, plan.Change{Object: c.object(), Knob: plan.MemoryMax, From: plan.Bytes(r.Until + r.Bytes), To: plan.Bytes(r.Until), Why: "taken back from batch work"})
		}
	}
}

// limitOf is the change that gives a box its limit; false where it needs none.
func (a *Agent) limitOf(box string, limit plan.Bytes) (limitChange, bool) {
	o := boxObject(box)
	have, err := a.Kernel.Read(box, plan.MemoryMax)
	limit = max(limit, a.inUse(box))
	if err != nil || a.Kernel.Same(plan.MemoryMax, limit, have) {
		return limitChange{}, false
	}
	if _, kept := a.book.Entry(box, plan.MemoryMax); !kept {
		a.book.Keep(o, plan.MemoryMax, have)
	}
	e, _ := a.book.Entry(box, plan.MemoryMax)
	a.book.Wrote(box, plan.MemoryMax, limit)
	a.loop.press.limits[box] = limit
	return limitChange{plan.Change{Object: o, Knob: plan.MemoryMax, From: have, To: limit, Why: "what others leave"}, e.Wrote}, true
}

// unlimit notes that a limit could not be set: the kernel has the one before.
func (a *Agent) unlimit(c *limitChange) {
	if before, ok := c.before.(plan.Bytes); ok {
		a.book.Wrote(c.Object.Path, plan.MemoryMax, before)
		a.loop.press.limits[c.Object.Path] = before
	}
}

func boxObject(box string) plan.Object {
	return plan.Object{Path: box, Name: box, Level: plan.ClassLevel}
}

// carryOutSqueeze blocks while the kernel reclaims, and returns the boxes without
// their limits.
func (a *Agent) carryOutSqueeze(s *squeeze) (failed map[string]bool, err error) {
	var errs []error
	for i := range s.reclaim {
		c := &s.reclaim[i]
		err := a.Reclaim(c.Object.Path, c.From.(plan.Bytes)-c.To.(plan.Bytes))
		if err != nil && !errors.Is(err, cgroupfs.ErrGone) && !errors.Is(err, cgroupfs.ErrPartial) {
			errs = append(errs, err)
		}
	}
	failed = map[string]bool{}
	for i := range s.limits {
		c := &s.limits[i]
		if a.inUse(c.Object.Path) > c.To.(plan.Bytes) {
			failed[c.Object.Path] = true // until less is in use
			continue
		}
		if err := a.Kernel.Apply([]plan.Change{c.Change}); err != nil {
			failed[c.Object.Path] = true
			if !errors.Is(err, cgroupfs.ErrOrder) { // v1: it could not reclaim so much
				errs = append(errs, err)
			}
		}
	}
	return failed, errors.Join(errs...)
}

// inUse is what v2 must not limit a box below: the kernel sets the limit all the same,
// and kills what it can't reclaim. 0 where it need not be minded, or isn't known.
func (a *Agent) inUse(box string) plan.Bytes {
	const unit = 1 << 20
	if a.MemoryUse == nil || !a.Node.Features.Knobs[plan.MemoryMax].V2 {
		return 0
	}
	var use observe.ContainerMemoryCounters
	if a.MemoryUse(box, &use) != nil {
		return 0
	}
	return plan.Bytes((use.Current + unit - 1) / unit * unit)
}

func (a *Agent) pressed(s *squeeze, failed map[string]bool, err error) {
	p := &a.loop.press
	p.busy = false
	for i := range s.limits {
		if c := &s.limits[i]; failed[c.Object.Path] {
			a.unlimit(c)
		}
	}
	problem := ""
	if err != nil && !errors.Is(err, cgroupfs.ErrGone) {
		problem = err.Error()
		for _, e := range unjoin(err) {
			a.writeFailed(e, "memory.reclaim")
		}
	}
	if problem != "" && problem != p.problem {
		a.Log.WithError(err).Warn("Memory of batch work could not be taken back as wanted; it is tried again")
	}
	p.problem = problem
}

// unpress gives the limits back of all boxes but those.
func (a *Agent) unpress(but []string) {
	p := &a.loop.press
	if len(p.limits) == 0 {
		return
	}
	var changes []plan.Change
	for _, box := range slices.Sorted(maps.Keys(p.limits)) {
		if !slices.Contains(but, box) {
			delete(p.limits, box)
			changes = append(changes, a.letGo(boxObject(box), plan.MemoryMax)...)
		}
	}
	a.change(changes)
}

// presses reports whether a setting is the memory loop's.
func (a *Agent) presses(at place) bool {
	_, ours := a.loop.press.limits[at.path]
	return ours && at.knob == plan.MemoryMax
}
