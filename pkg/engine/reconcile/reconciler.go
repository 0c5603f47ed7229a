// Package reconcile owns the settings of cgroups besides the placement of CPUs and memory:
// what each cgroup should have, had before Sluice, and has.
//
// Want declares what a cgroup is to have. Apply compares the cgroups that were declared
// since with the kernel, and Pass compares all: a pure function decides what is to be done
// about each setting (see diff). Original values are in the journal, on disk, before the
// first write; changes are made in an order in which none of them is refused for another's
// sake; and what somebody else has changed since is repaired, with growing delays where that
// happens again and again. Writes that may take long are made in goroutines of their own.
//
// While a pod is suspended, the knobs that could make the kernel refuse a resize are as
// they were before Sluice, and stay so.
//
// A Reconciler is for one goroutine; what its own goroutines report arrives there through
// Options.Post.
package reconcile

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Kernel reads and writes cgroups; see pkg/kernel/cgroupfs.
type Kernel interface {
	Apply(changes []knobs.Change) error
	Read(path string, knob knobs.Knob) (knobs.Value, error)
	// Same reports whether the kernel shows have where want was written, which it
	// may round.
	Same(knob knobs.Knob, want, have knobs.Value) bool
}

// Options are what a Reconciler works with, and what it asks of its owner.
type Options struct {
	Kernel   Kernel // not used while MayWrite answers false
	Journal  *journal.Book
	Features *knobs.Features
	Log      logrus.FieldLogger
	Now      func() time.Time

	MayWrite      func() bool          // cgroups are Sluice's to set, and it is not in preview
	DriftInterval func() time.Duration // between two passes

	// Carried is what the runtime would set of a cgroup's knob if it didn't set Sluice's
	// value in its place; ok is false where it sets none for Sluice.
	Carried func(at Key) (value knobs.Value, ok bool)
	// Updating reports whether the runtime may be writing a cgroup for Sluice right now.
	Updating func(path string) bool
	// Starting reports whether no process of a cgroup has run yet, so that its settings are
	// worth a short wait.
	Starting func(path string) bool
	// Suspect names who is likely to have changed a knob to the value found.
	Suspect func(o knobs.Object, k knobs.Knob, found knobs.Value) string
	// Failed is told of a write that the kernel refused after Write had returned.
	Failed func(at Key)

	// Blocking makes writes that may take long as all others are, in the caller's goroutine.
	Blocking bool
	Spawn    func(work func())               // runs work in a goroutine
	Post     func(name string, event func()) // runs an event in the Reconciler's goroutine
	Panicked func()                          // counts a panic that was recovered from
}

// Reconciler keeps the settings of cgroups as they are wanted.
type Reconciler struct {
	Options
	cgroups   map[string]*Cgroup   // by path, those with settings
	pending   []*job               // for the next Apply
	queued    []knobs.Change       // for the next Apply as well, already compared
	leaving   map[Key]knobs.Object // knobs whose originals the kernel hasn't got back yet
	suspended map[string]time.Time // pods by UID, and until when at most
	refusals  map[Key]*refusal
	writer    writer
	unsaved   bool // the log has said that the journal can't be written

	same        func(k knobs.Knob, want, have knobs.Value) bool // Kernel's
	version     uint64                                          // changes with what pods' and containers' settings show in the status
	quietAt     time.Time                                       // from then on nothing is contested, if nothing is repaired until then
	contested   bool                                            // something was, when Version was asked last
	drift       int
	writeErrors map[writeError]int
}

// Cgroup is a cgroup with settings.
type Cgroup struct {
	knobs.Object
	pod      string // UID; "" above the pods
	settings []*Setting
}

// Pod is the UID of the pod that the cgroup is, or is in; "" above the pods.
func (c *Cgroup) Pod() string { return c.pod }

// Settings are those that the cgroup is to have. They must not be changed.
func (c *Cgroup) Settings() []*Setting { return c.settings }

// find is the cgroup's setting of a knob, nil where it has none.
func (c *Cgroup) find(k knobs.Knob) *Setting {
	i := slices.IndexFunc(c.settings, func(s *Setting) bool { return s.Knob == k })
	if i < 0 {
		return nil
	}
	return c.settings[i]
}

// Setting is one setting that a cgroup is to have, with what has become of it.
type Setting struct {
	qos.Setting
	expected bool        // somebody whom Sluice expects to may have written it: what is found is no drift
	problem  string      // why the kernel doesn't have it; "" where it has
	before   knobs.Value // what Sluice wrote before it wrote last; nil nothing
	drift    int         // repairs of somebody else's changes
	suspect  string      // who is likely to have made the last of them
	contest  Backoff
	shown    knobs.Value // in the last status, as text; nil not yet
	text     string
}

// Problem is why the kernel doesn't have the setting, "" where it has.
func (s *Setting) Problem() string { return s.problem }

// job is what the next Apply does with a cgroup.
type job struct {
	knobs.Object
	release []knobs.Knob // let go, if they aren't wanted again by then
	compare bool
}

// New makes a Reconciler that knows of no cgroup.
func New(o Options) *Reconciler {
	r := &Reconciler{
		Options: o, cgroups: map[string]*Cgroup{}, leaving: map[Key]knobs.Object{}, suspended: map[string]time.Time{},
		refusals: map[Key]*refusal{}, writer: newWriter(), writeErrors: map[writeError]int{},
	}
	if o.Kernel != nil {
		r.same = o.Kernel.Same
	}
	return r
}

// Cgroup is the cgroup with that path, nil where it has no settings.
func (r *Reconciler) Cgroup(path string) *Cgroup { return r.cgroups[path] }

// Cgroups are those with settings, in no order.
func (r *Reconciler) Cgroups() iter.Seq[*Cgroup] { return maps.Values(r.cgroups) }

// Setting is what is wanted of a knob, nil where nothing is.
func (r *Reconciler) Setting(at Key) *Setting {
	if c := r.cgroups[at.Path]; c != nil {
		return c.find(at.Knob)
	}
	return nil
}

// Size is of how much a Reconciler keeps track. All of it ends with the cgroups that it is of.
type Size struct {
	Cgroups   int // with settings
	Leaving   int // knobs whose originals the kernel hasn't got back yet
	Suspended int // pods
	Refusals  int // values that the kernel doesn't take
	Writes    int // under way, or waiting
}

// Size counts what the Reconciler keeps track of.
func (r *Reconciler) Size() Size {
	return Size{len(r.cgroups), len(r.leaving), len(r.suspended), len(r.refusals), max(len(r.writer.writes), r.writer.running)}
}

// Want declares all settings that a cgroup is to have; pod is the UID of the pod that it is,
// or is in. The next Apply writes them, and gives back what is not among them any more.
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
		delete(r.leaving, Key{o.Path, s.Knob})
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

// Release has the next Apply give a knob its original value back that Want never declared
// a setting of.
func (r *Reconciler) Release(o knobs.Object, k knobs.Knob) {
	j := r.jobOf(o)
	j.release = append(j.release, k)
}

// ReleaseUnwanted has the next Apply give back what the journal keeps and nobody has declared,
// such as what an earlier run has set; but for the knobs that keep reports.
func (r *Reconciler) ReleaseUnwanted(keep func(at Key) bool) {
	for _, e := range r.Journal.All() {
		at := Key{e.Object.Path, e.Knob}
		if r.Setting(at) == nil && !keep(at) && (e.Wrote != nil || !e.Knob.Placement()) {
			r.Release(e.Object, e.Knob)
		}
	}
}

// jobOf is the job of a cgroup, made where there is none yet.
func (r *Reconciler) jobOf(o knobs.Object) *job {
	i := slices.IndexFunc(r.pending, func(j *job) bool { return j.Path == o.Path })
	if i < 0 {
		i, r.pending = len(r.pending), append(r.pending, &job{Object: o})
	}
	return r.pending[i]
}

// Apply brings the kernel to what was declared since the last call.
func (r *Reconciler) Apply() {
	jobs, changes := r.pending, r.queued
	r.pending, r.queued = nil, nil
	for _, j := range jobs {
		for _, k := range j.release {
			if r.Setting(Key{j.Path, k}) != nil {
				continue // wanted again
			}
			back := r.letGo(j.Object, k)
			if k == knobs.Idle { // at once: it has a weight come back, on which another may build
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

// Pass compares all cgroups with the kernel, but for those of suspended pods, and repairs
// what differs.
func (r *Reconciler) Pass() {
	if !r.MayWrite() {
		return
	}
	now := r.Now()
	var changes []knobs.Change
	for at, o := range r.leaving {
		if known := r.refusals[at]; known != nil && known.wait.Waits(now) {
			continue
		}
		changes = append(changes, r.letGo(o, at.Knob)...)
	}
	for _, c := range r.cgroups {
		if _, suspended := r.suspended[c.pod]; !suspended {
			changes = append(changes, r.compare(c, false)...)
		}
	}
	r.change(changes)
}

// Recheck has the next Apply put a whole cgroup right if somebody else has changed the given
// knob of it, and reports whether that is so.
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

// Retry tries again at once to give back what could not be given back yet.
func (r *Reconciler) Retry() {
	if !r.MayWrite() {
		return
	}
	var changes []knobs.Change
	for at, o := range r.leaving {
		changes = append(changes, r.letGo(o, at.Knob)...)
	}
	r.change(changes)
}

// Expect notes that somebody whom Sluice expects to may have written knobs of a cgroup:
// what is found next is no drift, and no reason to delay a repair.
func (r *Reconciler) Expect(path string, written ...knobs.Knob) {
	if c := r.cgroups[path]; c != nil {
		for _, k := range written {
			if s := c.find(k); s != nil {
				s.expected = true
			}
		}
	}
}

// Suspend gives back what would make the kernel refuse a resize of the pod, and leaves that
// so until Resume: its bursts, since no quota can go below them, and idle, under which no
// weight can be written. A weight that the kubelet writes meanwhile becomes the original.
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
				if weight, ok := r.Journal.Kept(c.Path, knobs.Weight); ok && s.Knob == knobs.Idle {
					changes = append(changes, knobs.Change{Object: c.Object, Knob: knobs.Weight, To: weight, Why: why})
				}
				s.expected = true
			case s.Knob == knobs.Weight:
				s.expected = true
			}
		}
	}
	r.change(changes)
}

// Resume ends the suspension of a pod; its settings come back with the next Apply that they
// are declared for, or with the next Pass.
func (r *Reconciler) Resume(pod string) { delete(r.suspended, pod) }

// ResumeOverdue ends the suspensions whose time is over, and lists their pods.
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

// Forget ends the keeping of a cgroup that is gone.
func (r *Reconciler) Forget(path string) {
	r.forgetRefusals(path)
	r.Journal.Forget(path)
	r.writer.abandonAll(path)
	delete(r.cgroups, path)
	r.pending = slices.DeleteFunc(r.pending, func(j *job) bool { return j.Path == path })
	r.queued = slices.DeleteFunc(r.queued, func(c knobs.Change) bool { return c.Object.Path == path })
}
