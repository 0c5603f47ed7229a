package memorylimit

import (
	"errors"
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// job is one run of the Limiter's goroutine: memory to reclaim, and limits to set afterwards.
type job struct {
	reclaim []knobs.Change // changes of memory.current of cgroups, where To is the target
	limits  []limitChange
}

// limitChange is a memory limit to set on a cgroup.
type limitChange struct {
	knobs.Change
	before knobs.Value // what Sluice wrote before; nil if it had set no limit
}

// limitOf returns the limit that a job sets on a cgroup, or nil.
func (j *job) limitOf(cgroup string) *limitChange {
	if j == nil {
		return nil
	}
	i := slices.IndexFunc(j.limits, func(c limitChange) bool { return c.Object.Path == cgroup })
	if i < 0 {
		return nil
	}
	return &j.limits[i]
}

// limit starts a job for what the controllers want, unless a job is running. On a kernel that
// can't reclaim on request, setting a limit below the memory in use reclaims. Cgroup v1 refuses
// such a limit if it can't reclaim enough, so Sluice lowers the limit there instead of a
// request; v2 would kill.
func (l *Limiter) limit() {
	if l.IsBusy() || !l.Authority().Cgroups {
		return
	}
	cgroups := l.limitable()
	l.releaseAllBut(cgroups)
	var j job
	j.reclaim = l.appendReclaim(j.reclaim, l.want.Reclaim)
	j.reclaim = l.appendReclaim(j.reclaim, l.rules)
	l.rules = l.rules[:0]
	small := knobs.Bytes(l.view.MemoryTotal / 200) // a smaller difference is not worth a write
	for i := range cgroups {
		c := &cgroups[i]
		if l.isWriting(c.Path) {
			continue // a write of the job could end before that one, which would undo it
		}
		limit := knobs.Bytes(l.want.BatchLimit - c.others)
		has, limited := l.limits[c.Path]
		switch back := l.wantedBack(c); {
		case back > 0 && !l.QoS.Features.Knobs[knobs.MemoryMax].V2:
			limit = knobs.Bytes(max(l.want.Goal-c.others, c.held-back))
		case limited && max(has-limit, limit-has) < small && l.reservedIn(c.Path) == 0:
			limit = has
		}
		if change, ok := l.limitOf(c, limit); ok {
			j.limits = append(j.limits, change)
		}
	}
	if len(j.limits) == 0 && len(j.reclaim) == 0 {
		return
	}
	if err := l.Journal.Flush(); err != nil { // without originals on disk, nothing may be written
		for i := range j.limits {
			l.undo(&j.limits[i])
		}
		j.limits = nil
	}
	l.running = &j
	var failed map[string]bool
	var err error
	l.Aside("memory", func() { failed, err = l.run(&j) }, func() { l.finish(&j, failed, err) })
}

// wantedBack is the memory, in bytes, that the controller wants to reclaim from the containers
// in a cgroup.
func (l *Limiter) wantedBack(c *limited) (bytes int64) {
	for _, r := range l.want.Reclaim {
		if of := l.Containers[r.ID]; of != nil && (of.Above == c.Path || of.PodPath == c.Path) {
			bytes += r.Bytes
		}
	}
	return bytes
}

// appendReclaim appends the reclaim requests of containers that still exist.
func (l *Limiter) appendReclaim(to []knobs.Change, reclaim []control.Reclaim) []knobs.Change {
	if l.host.Reclaim == nil {
		return to
	}
	for _, r := range reclaim {
		if c := l.Containers[r.ID]; c != nil && l.Reaches(c) {
			to = append(to, knobs.Change{Object: c.Object(), Knob: knobs.MemoryMax, From: knobs.Bytes(r.Until + r.Bytes), To: knobs.Bytes(r.Until), Why: "taken back from batch work"})
		}
	}
	return to
}

// run carries out a job, and blocks while the kernel reclaims. It returns the cgroups that did
// not get their limits.
func (l *Limiter) run(j *job) (failed map[string]bool, err error) {
	if l.host.GiveWay != nil {
		l.host.GiveWay()
	}
	var errs []error
	for i := range j.reclaim {
		c := &j.reclaim[i]
		err := l.host.Reclaim(c.Object.Path, c.From.(knobs.Bytes)-c.To.(knobs.Bytes))
		if err != nil && !errors.Is(err, cgroupfs.ErrGone) && !errors.Is(err, cgroupfs.ErrPartial) {
			errs = append(errs, err)
		}
	}
	failed = map[string]bool{}
	for i := range j.limits {
		c := &j.limits[i]
		if l.leastLimit(c.Object.Path) > c.To.(knobs.Bytes) && shrinks(c) {
			failed[c.Object.Path] = true // until the cgroup uses less
			continue
		}
		if err := l.Kernel.Apply([]knobs.Change{c.Change}); err != nil {
			failed[c.Object.Path] = true
			if !errors.Is(err, cgroupfs.ErrOrder) { // on v1 the kernel could not reclaim enough
				errs = append(errs, err)
			}
		}
	}
	return failed, errors.Join(errs...)
}

// shrinks reports whether a change lowers the limit.
func shrinks(c *limitChange) bool {
	from, _ := c.From.(knobs.Bytes)
	to, _ := c.To.(knobs.Bytes)
	return from < 0 || to < from
}

// finish records the result of a job.
func (l *Limiter) finish(j *job, failed map[string]bool, err error) {
	l.running = nil
	for i := range j.limits {
		c := &j.limits[i]
		if raised := l.limits[c.Object.Path] != c.To; raised { // for a container that started during the job
			l.keepLower(c)
		} else if failed[c.Object.Path] {
			l.undo(c)
		}
	}
	problem := ""
	if err != nil && !errors.Is(err, cgroupfs.ErrGone) {
		problem = err.Error()
		for _, e := range cgroupfs.Refusals(err) {
			l.Reconciler.CountError(e, "memory.reclaim")
		}
	}
	if problem != "" && problem != l.problem {
		l.Log.WithError(err).Warn("Memory of batch work could not be taken back as wanted; it is tried again")
	}
	l.problem = problem
	l.keepReservations() // a limit may have been lowered while a container started
}

// keepLower records a limit that a job has set after a higher one was set for a container that
// starts; keepReservations raises it again.
func (l *Limiter) keepLower(c *limitChange) {
	have, err := l.Kernel.Read(c.Object.Path, knobs.MemoryMax)
	if err == nil && l.Kernel.Same(knobs.MemoryMax, c.To, have) {
		l.Journal.RecordWrite(c.Object.Path, knobs.MemoryMax, c.To)
		l.limits[c.Object.Path] = c.To.(knobs.Bytes)
	}
}
