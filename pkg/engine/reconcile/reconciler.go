// Package reconcile owns the settings of cgroups other than the placement of CPUs and memory:
// it records what each cgroup should have, what it had before Sluice, and what it has.
//
// Want declares the settings of a cgroup. Apply compares the cgroups that were declared since
// the last Apply with the kernel, and Pass compares all of them: a pure function decides what
// to do about each setting (see diff). The journal has the original values on disk before the
// first write. Changes are made in an order in which the kernel refuses none because of
// another. A knob that another program has changed is repaired, with growing delays if that
// happens again and again. Writes that may take long run in goroutines of their own.
//
// While a pod is suspended, the knobs that could make the kernel refuse a resize have their
// original values.
//
// A Reconciler is for use by one goroutine. Its own goroutines report to that one through
// Options.Post.
package reconcile

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Reconciler keeps the kernel's knobs at the declared settings, and restores them when they are
// no longer declared.
type Reconciler struct {
	Writer
	cgroups    map[string]*Cgroup   // those with settings, by path
	pending    []*job               // work for the next Apply
	queued     []knobs.Change       // changes that the next Apply writes without comparing them again
	unrestored map[Key]knobs.Object // knobs whose originals have yet to be written
	suspended  map[string]time.Time // UIDs of suspended pods, and when each suspension ends at the latest

	same          func(k knobs.Knob, want, have knobs.Value) bool // Options.Kernel's
	version       uint64                                          // changes when the status of a pod's or a container's settings may have changed
	contestsEndAt time.Time                                       // when no knob is contested any more, unless there is another repair
	contested     bool                                            // a knob was contested at the last call of Version
	drift         int
}

// job is the work of the next Apply on one cgroup.
type job struct {
	knobs.Object
	release []knobs.Knob // knobs to restore unless they are declared again before
	compare bool
}

// New makes a Reconciler without any declared cgroup.
func New(o Options) *Reconciler {
	r := &Reconciler{
		Writer: newWriter(&o), cgroups: map[string]*Cgroup{}, unrestored: map[Key]knobs.Object{}, suspended: map[string]time.Time{},
	}
	r.slow.ended, r.before, r.ended = r.answered, r.wroteBefore, r.noteAnswer
	if o.Kernel != nil {
		r.same = o.Kernel.Same
	}
	return r
}

// Cgroup returns the cgroup with that path, or nil if it has no settings.
func (r *Reconciler) Cgroup(path string) *Cgroup { return r.cgroups[path] }

// Cgroups lists the cgroups with settings, in no particular order.
func (r *Reconciler) Cgroups() iter.Seq[*Cgroup] { return maps.Values(r.cgroups) }

// Setting returns the declared setting of a knob, or nil.
func (r *Reconciler) Setting(at Key) *Setting {
	if c := r.cgroups[at.Path]; c != nil {
		return c.find(at.Knob)
	}
	return nil
}

// Size is the number of objects that a Reconciler tracks. It stops tracking them when their
// cgroups are gone.
type Size struct {
	Cgroups   int // cgroups with settings
	Leaving   int // knobs whose originals have yet to be written
	Suspended int // suspended pods
	Refusals  int // values that the kernel refused
	Writes    int // writes that are under way or waiting
}

// Size counts what the Reconciler keeps track of.
func (r *Reconciler) Size() Size {
	return Size{len(r.cgroups), len(r.unrestored), len(r.suspended), len(r.refusals.values), max(len(r.slow.writes), r.slow.running)}
}

// Want declares all settings of a cgroup; pod is the UID of the pod that the cgroup belongs to.
// The next Apply writes them, and restores the knobs that are no longer among them.
func (r *Reconciler) Want(o knobs.Object, pod string, settings []qos.Setting) {
	if o.Level != knobs.ClassLevel {
		r.version++
	}
	c := r.cgroups[o.Path]
	if c == nil {
		if len(settings) == 0 {
			return
		}
		c = &Cgroup{Object: o, pod: pod}
		r.cgroups[o.Path] = c
	}
	old := c.settings
	c.settings = make([]*Setting, len(settings))
	for i := range settings {
		s := &Setting{}
		if at := slices.IndexFunc(old, func(s *Setting) bool { return s.Knob == settings[i].Knob }); at >= 0 {
			s = old[at]
		}
		s.Setting = settings[i]
		c.settings[i] = s
		delete(r.unrestored, Key{o.Path, s.Knob})
	}
	if len(settings) == 0 {
		delete(r.cgroups, o.Path)
	}
	j := r.jobOf(c.Object)
	j.compare = true
	_, idle := qos.Find(settings, knobs.Idle)
	for _, s := range old {
		if c.find(s.Knob) == nil && (!idle || s.Knob != knobs.Weight) {
			j.release = append(j.release, s.Knob)
		}
	}
}

// Release makes the next Apply restore a knob that Want never declared.
func (r *Reconciler) Release(o knobs.Object, k knobs.Knob) {
	j := r.jobOf(o)
	j.release = append(j.release, k)
}

// ReleaseUnwanted makes the next Apply restore all knobs in the journal that are not declared,
// such as those that an earlier run set, except the knobs for which keep returns true.
func (r *Reconciler) ReleaseUnwanted(keep func(at Key) bool) {
	for _, e := range r.Journal.All() {
		at := Key{e.Object.Path, e.Knob}
		if r.Setting(at) == nil && !keep(at) && (e.Wrote != nil || !e.Knob.Placement()) {
			r.Release(e.Object, e.Knob)
		}
	}
}

// jobOf returns the job of a cgroup, and makes one if there is none.
func (r *Reconciler) jobOf(o knobs.Object) *job {
	i := slices.IndexFunc(r.pending, func(j *job) bool { return j.Path == o.Path })
	if i < 0 {
		i, r.pending = len(r.pending), append(r.pending, &job{Object: o})
	}
	return r.pending[i]
}

// Apply writes to the kernel what was declared since the last call.
func (r *Reconciler) Apply() {
	jobs, changes := r.pending, r.queued
	r.pending, r.queued = nil, nil
	for _, j := range jobs {
		for _, k := range j.release {
			if r.Setting(Key{j.Path, k}) != nil || k == knobs.Weight && r.Setting(Key{j.Path, knobs.Idle}) != nil {
				continue // declared again, or restored with the end of an idle that was declared since
			}
			back := r.restoreKnob(j.Object, k)
			if k == knobs.Idle { // at once: this restores the weight, which a setting may depend on
				r.change(back)
				continue
			}
			changes = append(changes, back...)
		}
		if c := r.cgroups[j.Path]; c != nil && j.compare {
			changes = append(changes, r.compare(c, true)...)
		}
	}
	r.change(changes)
}

// Pass compares all cgroups except those of suspended pods with the kernel, and repairs what
// differs.
func (r *Reconciler) Pass() {
	if !r.MayWrite() {
		return
	}
	now := r.Now()
	var changes []knobs.Change
	for at, o := range r.unrestored {
		if r.refusals.waiting(at, now) != nil {
			continue
		}
		changes = append(changes, r.restoreKnob(o, at.Knob)...)
	}
	for _, c := range r.cgroups {
		if _, suspended := r.suspended[c.pod]; !suspended {
			changes = append(changes, r.compare(c, false)...)
		}
	}
	r.change(changes)
}

// Recheck reports whether another program has changed the given knob; if so, the next Apply
// repairs the whole cgroup.
func (r *Reconciler) Recheck(at Key) bool {
	c := r.cgroups[at.Path]
	e, kept := r.Journal.Entry(at.Path, at.Knob)
	if c == nil || !kept || e.Wrote == nil {
		return false
	}
	have, err := r.Kernel.Read(at.Path, at.Knob)
	if err != nil || r.Kernel.Same(at.Knob, e.Wrote, have) {
		return false
	}
	changes := r.compare(c, false)
	r.queued = append(r.queued, changes...)
	return len(changes) > 0
}

// Retry tries again, without a delay, to restore the knobs that could not be restored before.
func (r *Reconciler) Retry() {
	if !r.MayWrite() {
		return
	}
	var changes []knobs.Change
	for at, o := range r.unrestored {
		changes = append(changes, r.restoreKnob(o, at.Knob)...)
	}
	r.change(changes)
}

// Expect records that a program which Sluice expects to write these knobs may have done so: the
// next difference counts as no drift, and its repair isn't delayed.
func (r *Reconciler) Expect(path string, written ...knobs.Knob) {
	if c := r.cgroups[path]; c != nil {
		for _, k := range written {
			if s := c.find(k); s != nil {
				s.expected = true
			}
		}
	}
}

// Suspend restores the knobs that could make the kernel refuse a resize of the pod, until
// Resume: bursts, since no quota can go below them, idle, under which no weight can be
// written, and the pod's quota, which on cgroup v1 no container's may exceed. A weight that the
// kubelet writes meanwhile becomes the original.
func (r *Reconciler) Suspend(pod string, until time.Time) {
	if !r.MayWrite() {
		return
	}
	const why = "a resize is under way"
	var changes []knobs.Change
	for _, c := range r.cgroups {
		if c.pod != pod {
			continue
		}
		r.suspended[pod] = until
		for _, s := range c.settings {
			switch {
			case s.Knob.BlocksResize():
				if e, ok := r.Journal.Entry(c.Path, s.Knob); ok && e.Wrote != nil {
					changes = append(changes, knobs.Change{Object: c.Object, Knob: s.Knob, From: e.Wrote, To: e.Value, Why: why})
				}
				if weight, ok := r.Journal.Original(c.Path, knobs.Weight); ok && s.Knob == knobs.Idle {
					changes = append(changes, knobs.Change{Object: c.Object, Knob: knobs.Weight, To: weight, Why: why})
				}
				s.expected = true
			case s.Knob == knobs.Quota && c.Level == knobs.PodLevel && !r.Features.Knobs[knobs.Quota].V2:
				if e, ok := r.Journal.Entry(c.Path, s.Knob); ok && r.lowered(&e) {
					changes = append(changes, knobs.Change{Object: c.Object, Knob: s.Knob, From: e.Wrote, To: e.Value, Why: why})
				}
				s.expected = true
			case s.Knob == knobs.Weight:
				s.expected = true
			}
		}
	}
	r.change(changes)
}

// lowered reports whether the kernel has a quota that Sluice wrote, and that is below the original.
func (r *Reconciler) lowered(e *journal.Entry) bool {
	wrote, original := quotaOf(e.Wrote), quotaOf(e.Value)
	if !wrote.Finite() || !original.Finite() || wrote.Compare(original) >= 0 {
		return false
	}
	now, err := r.Kernel.Read(e.Object.Path, e.Knob)
	return err == nil && r.Kernel.Same(e.Knob, e.Wrote, now)
}

// Resume ends the suspension of a pod. The next Apply after a declaration, or the next Pass,
// writes its settings again.
func (r *Reconciler) Resume(pod string) { delete(r.suspended, pod) }

// ResumeOverdue ends the suspensions whose time has run out, and lists their pods.
func (r *Reconciler) ResumeOverdue() (pods []string) {
	now := r.Now()
	for uid, until := range r.suspended {
		if now.After(until) {
			delete(r.suspended, uid)
			pods = append(pods, uid)
		}
	}
	return pods
}

// Forget stops tracking a cgroup that is gone.
func (r *Reconciler) Forget(path string) {
	r.refusals.forget(path)
	r.Journal.Forget(path)
	r.slow.abandonAll(path)
	delete(r.cgroups, path)
	r.pending = slices.DeleteFunc(r.pending, func(j *job) bool { return j.Path == path })
	r.queued = slices.DeleteFunc(r.queued, func(c knobs.Change) bool { return c.Object.Path == path })
}
