// Package memorylimit keeps batch work within the memory that the memory controller leaves
// it: it sets the memory limits of batch work's cgroups, takes memory back, reserves memory
// for batch containers that start, and watches for kills by the kernel that must not happen.
package memorylimit

import (
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Host is what a Limiter uses of the host beside the knobs of cgroups. Each function is nil
// where the host doesn't have it.
type Host struct {
	// Reclaim takes memory from a cgroup, and blocks until the kernel has done so.
	Reclaim func(path string, bytes knobs.Bytes) error
	// Use reads what a cgroup holds.
	Use func(path string, into *observe.ContainerMemoryCounters) error
	// OOMs counts how often the kernel killed at a cgroup's limit, on cgroup v1 also at one
	// above it.
	OOMs func(path string) (int64, error)
}

// Limiter limits the memory of batch work. The goroutine that owns the node calls its
// methods, and none of them waits: the kernel reclaims memory in the thread that lowers a
// limit or asks for the reclaim, and so a goroutine of the Limiter's own does both, one job
// at a time. What is wanted while a job runs is asked for again by the next Apply. Raising a
// limit takes no time, and so happens at once, before a container's first instruction.
type Limiter struct {
	*node.Node
	host     Host
	view     *colocation.NodeView  // the control loop's, only read here
	resizing func(uid string) bool // the kubelet is resizing the pod, and sets its limit

	decided control.MemoryDesired // by the memory controller, whether it acts or not
	want    control.MemoryDesired // what it decided, if it acts
	rules   []control.Reclaim     // asked for by rules, and not begun yet
	running *job                  // nil for none
	limits  map[string]knobs.Bytes
	problem string // of the last job, as it was logged; "" none

	reserved colocation.Reservations
	kills    killWatch

	mu       sync.Mutex             // guards promised, which the job's goroutine reads
	promised map[string]knobs.Bytes // what is reserved and not held yet, by cgroup
}

// New makes a Limiter that has set no limit. The owner of the view keeps it up to date;
// resizing reports whether the kubelet is resizing a pod.
func New(n *node.Node, host Host, view *colocation.NodeView, resizing func(uid string) bool) *Limiter {
	return &Limiter{Node: n, host: host, view: view, resizing: resizing, limits: map[string]knobs.Bytes{}}
}

// Inherit takes over a limit that an earlier run has set.
func (l *Limiter) Inherit(cgroup string, limit knobs.Bytes) { l.limits[cgroup] = limit }

// Apply carries out what the controllers want of batch work's memory.
func (l *Limiter) Apply(d *colocation.Desired) {
	l.want = control.MemoryDesired{}
	if d.Memory != nil {
		before := l.decided.Goal
		l.decided, l.reserved.Admitted = *d.Memory, 0
		if d.ActsMemory {
			l.watchKills(before)
			l.want = *d.Memory
		}
	}
	if len(d.Reclaim) > 0 { // in place of those that could not begin yet, while another job runs
		l.rules = append(l.rules[:0], d.Reclaim...)
	}
	l.limit()
}

// Release gives all limits back, and forgets what is wanted.
func (l *Limiter) Release() {
	l.want = control.MemoryDesired{}
	l.rules = l.rules[:0]
	l.releaseAllBut(nil)
}

// IsBusy reports whether a job runs: the limits can't be given back then.
func (l *Limiter) IsBusy() bool { return l.running != nil }

// Limits goes through the limits that the Limiter has set, by cgroup.
func (l *Limiter) Limits() iter.Seq2[string, knobs.Bytes] { return maps.All(l.limits) }

// Owns reports whether a setting is a limit that the Limiter has set.
func (l *Limiter) Owns(at reconcile.Key) bool {
	_, ours := l.limits[at.Path]
	return ours && at.Knob == knobs.MemoryMax
}

// Status is what the controller decided, and the sum of the limits.
func (l *Limiter) Status() status.BatchMemory {
	m := &l.decided
	s := status.BatchMemory{OnlineBytes: m.Online, UsedBytes: m.Held, GoalBytes: m.Goal, HeadroomBytes: m.Headroom, WantedLimitBytes: m.BatchLimit}
	for _, limit := range l.limits {
		s.LimitBytes += int64(limit)
	}
	return s
}

// limited is a cgroup at which batch work's memory is limited: a batch cgroup, or that of a
// batch pod outside of batch cgroups.
type limited struct {
	knobs.Object
	held   int64 // bytes that it holds, with its page cache
	others int64 // bytes that the other limited cgroups hold, but for what the kernel can drop
}

// limitable lists the cgroups to limit, none where no limit is wanted. What batch work may
// hold is not divided between them: each may have all that the others don't hold, so that
// the kernel kills in none while another leaves its part unused. The next step sees what
// each took.
func (l *Limiter) limitable() (all []limited) {
	if l.want.BatchLimit <= 0 || !l.QoS.Features.Has(knobs.MemoryMax) {
		return nil
	}
	for _, dir := range l.view.BatchCgroups.Limited {
		all = append(all, limited{Object: knobs.Object{Path: dir, Name: dir, Level: knobs.ClassLevel}})
	}
	for i := range l.view.Pods {
		p := &l.view.Pods[i]
		c := &l.view.Members[p.First]
		if p.Class != workload.BE || l.view.BatchCgroups.Holds(c.Above) || l.resizing(p.UID) || c.SharedPodCgroup {
			continue
		}
		o, ok := node.PodObject(c.Pod)
		if ok && l.Reconciler.Setting(reconcile.Key{Path: o.Path, Knob: knobs.MemoryMax}) == nil { // else its grant is its limit
			all = append(all, limited{Object: o})
		}
	}
	var kept int64
	for i := range all {
		held := l.view.Held[all[i].Path]
		all[i].held, all[i].others = held.Current, -held.Kept()
		kept += held.Kept()
	}
	for i := range all {
		all[i].others += kept
	}
	return all
}

// limitOf is the change that brings a cgroup to its limit; ok is false where it needs none.
// A limit that somebody else, such as the kubelet, has set since becomes the original, above
// which Sluice sets none.
func (l *Limiter) limitOf(c *limited, limit knobs.Bytes) (change limitChange, ok bool) {
	have, err := l.Kernel.Read(c.Path, knobs.MemoryMax)
	if err != nil {
		return limitChange{}, false
	}
	e, kept := l.Journal.Entry(c.Path, knobs.MemoryMax)
	if !kept || e.Wrote != nil && !l.isKnown(&e, have) {
		l.Journal.Keep(c.Object, knobs.MemoryMax, have)
		e, _ = l.Journal.Entry(c.Path, knobs.MemoryMax)
	}
	limit = max(limit, l.leastLimit(c.Path))
	if own, ok := e.Value.(knobs.Bytes); ok && own > 0 {
		limit = min(limit, own)
	}
	l.limits[c.Path] = limit
	if l.Kernel.Same(knobs.MemoryMax, limit, have) {
		return limitChange{}, false
	}
	l.Journal.Wrote(c.Path, knobs.MemoryMax, limit)
	return limitChange{knobs.Change{Object: c.Object, Knob: knobs.MemoryMax, From: have, To: limit, Why: "what others leave"}, e.Wrote}, true
}

// isKnown reports whether a limit in the kernel is the original, or one of Sluice's. The
// journal is ahead of the kernel while a job runs that sets another limit.
func (l *Limiter) isKnown(e *journal.Entry, have knobs.Value) bool {
	known := []knobs.Value{e.Wrote, e.Value}
	if c := l.running.limitOf(e.Object.Path); c != nil {
		known = append(known, c.From, c.To)
	}
	return slices.ContainsFunc(known, func(v knobs.Value) bool { return l.Kernel.Same(knobs.MemoryMax, v, have) })
}

// undo notes that a limit could not be set: the kernel still has the one before.
func (l *Limiter) undo(c *limitChange) {
	if before, ok := c.before.(knobs.Bytes); ok {
		l.Journal.Wrote(c.Object.Path, knobs.MemoryMax, before)
		l.limits[c.Object.Path] = before
		return
	}
	delete(l.limits, c.Object.Path)
	l.Journal.Drop(c.Object.Path, knobs.MemoryMax)
}

// leastLimit is the least limit that a cgroup may get; 0 where there is no such bound, or it
// isn't known. On cgroup v2 it is what the cgroup holds, since the kernel sets a lower limit
// all the same, and kills for what it can't reclaim. On both versions it leaves room for what
// is promised to containers that start there. Any goroutine may ask.
func (l *Limiter) leastLimit(cgroup string) knobs.Bytes {
	promised := l.reservedIn(cgroup)
	if promised == 0 && !l.QoS.Features.Knobs[knobs.MemoryMax].V2 {
		return 0
	}
	return l.inUse(cgroup) + promised
}

// inUse is what a cgroup holds, rounded up to whole MiB; 0 where that isn't known.
func (l *Limiter) inUse(cgroup string) knobs.Bytes {
	const unit = 1 << 20
	if l.host.Use == nil {
		return 0
	}
	var use observe.ContainerMemoryCounters
	if l.host.Use(cgroup, &use) != nil {
		return 0
	}
	return knobs.Bytes((use.Current + unit - 1) / unit * unit)
}

// releaseAllBut gives back the limits of all cgroups that are not listed.
func (l *Limiter) releaseAllBut(stay []limited) {
	if len(l.limits) == 0 {
		return
	}
	for _, cgroup := range slices.Sorted(maps.Keys(l.limits)) {
		if !slices.ContainsFunc(stay, func(c limited) bool { return c.Path == cgroup }) {
			delete(l.limits, cgroup)
			delete(l.kills.seen, cgroup)
			if e, kept := l.Journal.Entry(cgroup, knobs.MemoryMax); kept {
				l.Reconciler.Release(e.Object, knobs.MemoryMax)
			}
		}
	}
	l.Reconciler.Apply()
}
