package agent

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// memoryLimiter lowers batch work's memory limits in a goroutine of its own, since the
// kernel reclaims memory in the thread that writes the limit or asks for the reclaim. One
// job runs at a time; the loop's next step asks again for what was wanted meanwhile. Raising
// a limit takes no time, and so the loop does it itself before a container's first
// instruction.
type memoryLimiter struct {
	want    control.MemoryDesired // by the memory controller, if it acts
	rules   []control.Reclaim     // asked for by rules, and not begun yet
	busy    bool
	limits  map[string]knobs.Bytes // that Sluice has set, of batch cgroups and batch pods outside of them
	problem string                 // told last

	reserved colocation.Reservations // for batch containers that start

	mu       sync.Mutex
	promised map[string]knobs.Bytes // what is reserved and not held yet, by cgroup, for the goroutine
}

func newMemoryLimiter() *memoryLimiter {
	return &memoryLimiter{limits: map[string]knobs.Bytes{}}
}

// limitJob is memory to take from containers, and limits to set afterwards.
type limitJob struct {
	reclaim []knobs.Change // memory.current of a cgroup, To what it is to come down to
	limits  []limitChange
}

// limitChange is a limit to set, with what Sluice wrote before; nil nothing.
type limitChange struct {
	knobs.Change
	before knobs.Value
}

// limitMemory carries out what is wanted of batch work's memory. A kernel that can't
// reclaim on request does so where a limit is set below what is in use; cgroup v1
// refuses what it can't get, so that there the limit goes down in its place, while v2
// would kill.
func (a *Agent) limitMemory() {
	l := &a.loop
	p := l.limiter
	if p.busy || !a.Authority().Cgroups {
		return
	}
	claims := a.claims()
	a.releaseLimits(claims)
	var s limitJob
	s.take(a, p.want.Reclaim)
	s.take(a, p.rules)
	p.rules = p.rules[:0]
	small := knobs.Bytes(l.view.MemoryTotal / 200) // is no change
	for i := range claims {
		c := &claims[i]
		limit := knobs.Bytes(p.want.BatchLimit - c.others)
		if taken := a.asked(c); taken > 0 && !a.QoS.Features.Knobs[knobs.MemoryMax].V2 {
			limit = knobs.Bytes(max(p.want.Goal-c.others, c.held-taken))
		}
		if has, ok := p.limits[c.Path]; ok && max(has-limit, limit-has) < small && a.reservedIn(c.Path) == 0 {
			limit = has
		}
		if change, ok := a.limitOf(c, limit); ok {
			s.limits = append(s.limits, change)
		}
	}
	if len(s.limits) == 0 && len(s.reclaim) == 0 {
		return
	}
	if err := a.Journal.Flush(); err != nil { // the originals are not on disk
		for i := range s.limits {
			a.unlimit(&s.limits[i])
		}
		s.limits = nil
	}
	p.busy = true
	var failed map[string]bool
	var err error
	a.Aside("memory", func() { failed, err = a.runLimitJob(&s) }, func() { a.limitJobDone(&s, failed, err) })
}

// claim is a cgroup at which batch work's memory is limited: a batch cgroup, or that of a
// batch pod outside of batch cgroups.
type claim struct {
	knobs.Object
	held   int64 // by it, with its page cache
	others int64 // by the other claims, but for what the kernel can drop
}

// claims lists what the limit is set on, nothing where none is wanted. What batch work may
// hold is not divided: a claim may have all that the others don't hold, so that none is
// killed while another leaves its part. The next step sees what each took.
func (a *Agent) claims() (claims []claim) {
	l := &a.loop
	if l.limiter.want.BatchLimit <= 0 || !a.QoS.Features.Has(knobs.MemoryMax) {
		return nil
	}
	for _, dir := range l.view.BatchCgroups.Limited {
		claims = append(claims, claim{Object: classObject(dir)})
	}
	for i := range l.view.Pods {
		p := &l.view.Pods[i]
		c := &l.view.Members[p.First]
		if p.Class != workload.BE || l.view.BatchCgroups.Holds(c.Above) || a.podsettings.IsResizing(p.UID) || c.SharedPodCgroup {
			continue
		}
		o, ok := node.PodObject(c.Pod)
		if ok && a.Reconciler.Setting(reconcile.Key{Path: o.Path, Knob: knobs.MemoryMax}) == nil { // else its grant is its limit
			claims = append(claims, claim{Object: o})
		}
	}
	var kept int64
	for i := range claims {
		held := l.view.Held[claims[i].Path]
		claims[i].held, claims[i].others = held.Current, -held.Kept()
		kept += held.Kept()
	}
	for i := range claims {
		claims[i].others += kept
	}
	return claims
}

// asked is the memory that the controller wants back from a claim's containers.
func (a *Agent) asked(c *claim) (bytes int64) {
	for _, r := range a.loop.limiter.want.Reclaim {
		if of := a.Containers[r.ID]; of != nil && (of.Above == c.Path || of.PodPath == c.Path) {
			bytes += r.Bytes
		}
	}
	return bytes
}

// take enters what is to be reclaimed from containers that are there.
func (s *limitJob) take(a *Agent, reclaim []control.Reclaim) {
	if a.options.Reclaim == nil {
		return
	}
	for _, r := range reclaim {
		if c := a.Containers[r.ID]; c != nil && a.Reaches(c) {
			s.reclaim = append(s.reclaim, knobs.Change{Object: c.Object(), Knob: knobs.MemoryMax, From: knobs.Bytes(r.Until + r.Bytes), To: knobs.Bytes(r.Until), Why: "taken back from batch work"})
		}
	}
}

// limitOf is the change that gives a claim its limit; false where it needs none. A limit
// that somebody else has set since, such as the kubelet, becomes the original, above which
// none goes.
func (a *Agent) limitOf(c *claim, limit knobs.Bytes) (limitChange, bool) {
	have, err := a.Kernel.Read(c.Path, knobs.MemoryMax)
	if err != nil {
		return limitChange{}, false
	}
	e, kept := a.Journal.Entry(c.Path, knobs.MemoryMax)
	if !kept || e.Wrote != nil && !a.Kernel.Same(knobs.MemoryMax, e.Wrote, have) && !a.Kernel.Same(knobs.MemoryMax, e.Value, have) {
		a.Journal.Keep(c.Object, knobs.MemoryMax, have)
		e, _ = a.Journal.Entry(c.Path, knobs.MemoryMax)
	}
	limit = max(limit, a.leastLimit(c.Path))
	if own, ok := e.Value.(knobs.Bytes); ok && own > 0 {
		limit = min(limit, own)
	}
	a.loop.limiter.limits[c.Path] = limit
	if a.Kernel.Same(knobs.MemoryMax, limit, have) {
		return limitChange{}, false
	}
	a.Journal.Wrote(c.Path, knobs.MemoryMax, limit)
	return limitChange{knobs.Change{Object: c.Object, Knob: knobs.MemoryMax, From: have, To: limit, Why: "what others leave"}, e.Wrote}, true
}

// unlimit notes that a limit could not be set: the kernel has the one before.
func (a *Agent) unlimit(c *limitChange) {
	if before, ok := c.before.(knobs.Bytes); ok {
		a.Journal.Wrote(c.Object.Path, knobs.MemoryMax, before)
		a.loop.limiter.limits[c.Object.Path] = before
		return
	}
	delete(a.loop.limiter.limits, c.Object.Path)
	a.Journal.Drop(c.Object.Path, knobs.MemoryMax)
}

func classObject(dir string) knobs.Object {
	return knobs.Object{Path: dir, Name: dir, Level: knobs.ClassLevel}
}

// runLimitJob blocks while the kernel reclaims, and returns the cgroups without
// their limits.
func (a *Agent) runLimitJob(s *limitJob) (failed map[string]bool, err error) {
	var errs []error
	for i := range s.reclaim {
		c := &s.reclaim[i]
		err := a.options.Reclaim(c.Object.Path, c.From.(knobs.Bytes)-c.To.(knobs.Bytes))
		if err != nil && !errors.Is(err, cgroupfs.ErrGone) && !errors.Is(err, cgroupfs.ErrPartial) {
			errs = append(errs, err)
		}
	}
	failed = map[string]bool{}
	for i := range s.limits {
		c := &s.limits[i]
		if a.leastLimit(c.Object.Path) > c.To.(knobs.Bytes) && shrinks(c) {
			failed[c.Object.Path] = true // until less is in use
			continue
		}
		if err := a.Kernel.Apply([]knobs.Change{c.Change}); err != nil {
			failed[c.Object.Path] = true
			if !errors.Is(err, cgroupfs.ErrOrder) { // v1: it could not reclaim so much
				errs = append(errs, err)
			}
		}
	}
	return failed, errors.Join(errs...)
}

// shrinks reports whether a limit goes down.
func shrinks(c *limitChange) bool {
	from, _ := c.From.(knobs.Bytes)
	to, _ := c.To.(knobs.Bytes)
	return from < 0 || to < from
}

// leastLimit is what a claim must not be limited below: on v2 what it holds, since the
// kernel sets the limit all the same, and kills what it can't reclaim; and on both what is
// promised to containers that start in it. 0 where it need not be minded, or isn't known.
func (a *Agent) leastLimit(cgroup string) knobs.Bytes {
	promised := a.reservedIn(cgroup)
	if promised == 0 && !a.QoS.Features.Knobs[knobs.MemoryMax].V2 {
		return 0
	}
	return a.inUse(cgroup) + promised
}

// inUse is what a cgroup holds, in whole MiB; 0 where that isn't known.
func (a *Agent) inUse(cgroup string) knobs.Bytes {
	const unit = 1 << 20
	if a.options.MemoryUse == nil {
		return 0
	}
	var use observe.ContainerMemoryCounters
	if a.options.MemoryUse(cgroup, &use) != nil {
		return 0
	}
	return knobs.Bytes((use.Current + unit - 1) / unit * unit)
}

func (a *Agent) limitJobDone(s *limitJob, failed map[string]bool, err error) {
	p := a.loop.limiter
	p.busy = false
	for i := range s.limits {
		if c := &s.limits[i]; failed[c.Object.Path] {
			a.unlimit(c)
		}
	}
	problem := ""
	if err != nil && !errors.Is(err, cgroupfs.ErrGone) {
		problem = err.Error()
		for _, e := range cgroupfs.Refusals(err) {
			a.Reconciler.CountError(e, "memory.reclaim")
		}
	}
	if problem != "" && problem != p.problem {
		a.Log.WithError(err).Warn("Memory of batch work could not be taken back as wanted; it is tried again")
	}
	p.problem = problem
	a.keepReservations() // a limit may have gone down as a container started
}

// releaseLimits gives back the limits of all cgroups but these.
func (a *Agent) releaseLimits(but []claim) {
	p := a.loop.limiter
	if len(p.limits) == 0 {
		return
	}
	for _, cgroup := range slices.Sorted(maps.Keys(p.limits)) {
		if !slices.ContainsFunc(but, func(c claim) bool { return c.Path == cgroup }) {
			delete(p.limits, cgroup)
			delete(a.loop.kills.seen, cgroup)
			if e, kept := a.Journal.Entry(cgroup, knobs.MemoryMax); kept {
				a.Reconciler.Release(e.Object, knobs.MemoryMax)
			}
		}
	}
	a.Reconciler.Apply()
}

// ownsLimit reports whether a setting is a memory limit that the loop has set.
func (a *Agent) ownsLimit(at reconcile.Key) bool {
	_, ours := a.loop.limiter.limits[at.Path]
	return ours && at.Knob == knobs.MemoryMax
}
