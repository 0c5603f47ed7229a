// Package memorylimit limits batch work's memory to what the memory controller allows: it sets
// the memory limits of batch work's cgroups, reclaims memory, reserves memory for batch
// containers that start, and detects OOM kills that must not happen.
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

// Host lists the host's functions that a Limiter needs besides the knobs of cgroups. A function
// is nil if the host lacks it.
type Host struct {
	// Reclaim reclaims memory from a cgroup, and blocks until the kernel has done so.
	Reclaim func(path string, bytes knobs.Bytes) error
	// GiveWay makes the calling goroutine's thread, in which the kernel reclaims, give way to others.
	GiveWay func()
	// Use reads a cgroup's memory counters.
	Use func(path string, into *observe.ContainerMemoryCounters) error
	// OOMs reads how often the kernel killed at a cgroup's limit; on cgroup v1, also at a
	// parent's limit.
	OOMs func(path string) (int64, error)
}

// Limiter limits the memory of batch work. The goroutine that owns the node calls its methods,
// none of which blocks. The kernel reclaims memory in the thread that lowers a limit or
// requests the reclaim, so a goroutine of the Limiter's own does both, one job at a time. What
// the controllers want while a job runs is carried out by the next Apply. Raising a limit takes
// no time, so it happens at once, before a container's first instruction.
type Limiter struct {
	*node.Node
	host     Host
	view     *colocation.NodeView  // the control loop's, which the Limiter only reads
	resizing func(uid string) bool // reports whether the kubelet is resizing the pod, and therefore sets its limit

	decided control.MemoryDesired // the memory controller's decision, even in preview
	want    control.MemoryDesired // the controller's decision, if its mode lets it act
	rules   []control.Reclaim     // reclaim requests of rules that no job has begun
	running *job                  // nil if no job is running
	limits  map[string]knobs.Bytes
	problem string // the error of the last job that was logged; "" for none

	reserved colocation.Reservations
	kills    killWatch

	mu       sync.Mutex             // guards promised, which the job's goroutine reads too
	promised map[string]knobs.Bytes // the part of the reservations that containers don't use yet, by cgroup
}

// New makes a Limiter that has set no limit. The owner of the view keeps it up to date.
// resizing reports whether the kubelet is resizing a pod.
func New(n *node.Node, host Host, view *colocation.NodeView, resizing func(uid string) bool) *Limiter {
	return &Limiter{Node: n, host: host, view: view, resizing: resizing, limits: map[string]knobs.Bytes{}}
}

// Inherit takes over a limit that an earlier run has set.
func (l *Limiter) Inherit(cgroup string, limit knobs.Bytes) { l.limits[cgroup] = limit }

// Apply carries out what the controllers want for batch work's memory.
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
	if len(d.Reclaim) > 0 { // they replace requests that no job has begun, since another job is running
		l.rules = append(l.rules[:0], d.Reclaim...)
	}
	l.limit()
}

// Release restores all limits, and drops what the controllers want.
func (l *Limiter) Release() {
	l.want = control.MemoryDesired{}
	l.rules = l.rules[:0]
	l.releaseAllBut(nil)
}

// IsBusy reports whether a job is running. The limits can't be restored while it is.
func (l *Limiter) IsBusy() bool { return l.running != nil }

// Limits lists the limits that the Limiter has set, by cgroup.
func (l *Limiter) Limits() iter.Seq2[string, knobs.Bytes] { return maps.All(l.limits) }

// Owns reports whether a setting is a limit that the Limiter has set.
func (l *Limiter) Owns(at reconcile.Key) bool {
	_, ours := l.limits[at.Path]
	return ours && at.Knob == knobs.MemoryMax
}

// Status reports the controller's decision and the sum of the limits.
func (l *Limiter) Status() status.BatchMemory {
	m := &l.decided
	s := status.BatchMemory{OnlineBytes: m.Online, UsedBytes: m.Held, GoalBytes: m.Goal, HeadroomBytes: m.Headroom, WantedLimitBytes: m.BatchLimit,
		SwapBytes: m.Swapped, Taken: status.Taken{PageCacheBytes: m.Taken.PageCache, SwapBytes: m.Taken.Swap}}
	for _, limit := range l.limits {
		s.LimitBytes += int64(limit)
	}
	return s
}

// limited is a cgroup on which the memory of batch work is limited: a batch cgroup, or the
// cgroup of a batch pod outside of batch cgroups.
type limited struct {
	knobs.Object
	held   int64 // bytes in use, with the page cache
	others int64 // bytes that the other limited cgroups use, without what the kernel can drop
}

// limitable lists the cgroups to limit; none if no limit is wanted. It doesn't divide the
// memory of batch work between them. Each may use all that the others don't, so that the kernel
// kills in none while another leaves its part unused. The next step takes the actual use into
// account.
func (l *Limiter) limitable() (all []limited) {
	if l.want.BatchLimit <= 0 || !l.QoS.Features.Has(knobs.MemoryMax) {
		return nil
	}
	for _, dir := range l.view.BatchCgroups.Limited {
		if l.view.IsHostApart(dir) {
			continue
		}
		all = append(all, limited{Object: knobs.Object{Path: dir, Name: dir, Level: knobs.ClassLevel}})
	}
	for i := range l.view.Pods {
		p := &l.view.Pods[i]
		c := &l.view.Members[p.First]
		if p.Class != workload.BE || l.view.BatchCgroups.Holds(c.Above) || l.resizing(p.UID) || c.SharedPodCgroup {
			continue
		}
		o, ok := node.PodObject(c.Pod)
		if ok && l.Reconciler.Setting(reconcile.Key{Path: o.Path, Knob: knobs.MemoryMax}) == nil { // otherwise the pod's grant is its limit
			all = append(all, limited{Object: o})
		}
	}
	var kept int64
	for i := range all {
		held := l.view.Held[all[i].Path]
		all[i].held, all[i].others = held.Current, -held.NonCache()
		kept += held.NonCache()
	}
	for i := range all {
		all[i].others += kept
	}
	return all
}

// limitOf returns the change that brings a cgroup to its limit; ok is false if it needs none. A
// limit that another program, such as the kubelet, has set since becomes the original, which
// Sluice never exceeds.
func (l *Limiter) limitOf(c *limited, limit knobs.Bytes) (change limitChange, ok bool) {
	have, err := l.Kernel.Read(c.Path, knobs.MemoryMax)
	if err != nil {
		return limitChange{}, false
	}
	e, kept := l.Journal.Entry(c.Path, knobs.MemoryMax)
	if !kept || e.Wrote != nil && !l.isKnown(&e, have) {
		l.Journal.Record(c.Object, knobs.MemoryMax, have)
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
	l.Journal.RecordWrite(c.Path, knobs.MemoryMax, limit)
	return limitChange{knobs.Change{Object: c.Object, Knob: knobs.MemoryMax, From: have, To: limit, Why: "what others leave"}, e.Wrote}, true
}

// isWriting reports whether a limit that the Reconciler sets has not reached the kernel yet.
func (l *Limiter) isWriting(cgroup string) bool {
	return l.Reconciler.UnderWay(reconcile.Key{Path: cgroup, Knob: knobs.MemoryMax})
}

// isKnown reports whether a limit in the kernel is the original, or one of Sluice's. While
// another limit is being set, the journal already has that one.
func (l *Limiter) isKnown(e *journal.Entry, have knobs.Value) bool {
	if l.isWriting(e.Object.Path) {
		return true
	}
	known := []knobs.Value{e.Wrote, e.Value}
	if c := l.running.limitOf(e.Object.Path); c != nil {
		known = append(known, c.From, c.To)
	}
	return slices.ContainsFunc(known, func(v knobs.Value) bool { return l.Kernel.Same(knobs.MemoryMax, v, have) })
}

// undo records that a limit could not be set: the kernel still has the previous one.
func (l *Limiter) undo(c *limitChange) {
	if before, ok := c.before.(knobs.Bytes); ok {
		l.Journal.RecordWrite(c.Object.Path, knobs.MemoryMax, before)
		l.limits[c.Object.Path] = before
		return
	}
	delete(l.limits, c.Object.Path)
	l.unwatch(c.Object.Path)
	l.Journal.Drop(c.Object.Path, knobs.MemoryMax)
}

// leastLimit is the lowest limit that a cgroup may get; 0 if there is no such bound, or it is
// unknown. On cgroup v2 it is at least the memory in use, since the kernel accepts a lower
// limit and kills for what it can't reclaim. On both versions it leaves room for the
// reservations of containers that start there. Any goroutine may call it.
func (l *Limiter) leastLimit(cgroup string) knobs.Bytes {
	promised := l.reservedIn(cgroup)
	if promised == 0 && !l.QoS.Features.Knobs[knobs.MemoryMax].V2 {
		return 0
	}
	return l.inUse(cgroup) + promised
}

// inUse is the memory that a cgroup uses, rounded up to whole MiB; 0 if that is unknown.
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

// releaseAllBut restores the limits of all cgroups that are not in the list.
func (l *Limiter) releaseAllBut(stay []limited) {
	if len(l.limits) == 0 {
		return
	}
	var released []string
	for _, cgroup := range slices.Sorted(maps.Keys(l.limits)) {
		if !slices.ContainsFunc(stay, func(c limited) bool { return c.Path == cgroup }) {
			released = append(released, cgroup)
			delete(l.limits, cgroup)
			if e, kept := l.Journal.Entry(cgroup, knobs.MemoryMax); kept {
				l.Reconciler.Release(e.Object, knobs.MemoryMax)
			}
		}
	}
	l.Reconciler.Apply()
	for _, cgroup := range released {
		l.unwatch(cgroup)
	}
}
