package reconcile

import (
	"errors"
	"slices"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Key identifies one knob of one cgroup.
type Key struct {
	Path string
	Knob knobs.Knob
}

// KeyOf is the key of the knob that a change writes.
func KeyOf(c *knobs.Change) Key { return Key{c.Object.Path, c.Knob} }

// Failures are the changes that the kernel refused, with the reasons.
type Failures map[Key]error

// In reports whether the kernel refused a change of that cgroup.
func (f Failures) In(path string) bool {
	for at := range f {
		if at.Path == path {
			return true
		}
	}
	return false
}

// Write makes changes in a safe order, and those that may take long in other goroutines. A
// missing cgroup is no failure: its container has ended, or has not started and is compared
// when it does.
func (r *Reconciler) Write(changes []knobs.Change) (Failures, error) {
	changes, answered, errs := r.handOver(r.savable(changes))
	if len(changes) > 0 {
		errs = append(errs, cgroupfs.Refusals(r.Kernel.Apply(knobs.Order(changes)))...)
	}
	failed, refused := r.countRefusals(errs)
	r.log(append(answered, changes...), failed, refused)
	return failed, errors.Join(refused...)
}

// change makes changes and records which of them failed; a later pass tries those again.
func (r *Reconciler) change(changes []knobs.Change) {
	failed, _ := r.Write(changes)
	r.noteResults(slices.DeleteFunc(changes, func(c knobs.Change) bool { return r.writer.writes[KeyOf(&c)] != nil }), failed)
}

// noteResults records which of the changes failed.
func (r *Reconciler) noteResults(changes []knobs.Change, failed Failures) {
	for i := range changes {
		at := KeyOf(&changes[i])
		err := failed[at]
		if _, leaving := r.unrestored[at]; leaving && err == nil && !r.unsaved {
			delete(r.unrestored, at)
			r.Journal.Drop(at.Path, at.Knob)
			continue
		}
		s := r.Setting(at)
		if s == nil {
			continue
		}
		problem := ""
		switch {
		case err != nil:
			problem = err.Error()
		case r.unsaved:
			problem = "its original value can't be written to disk"
		}
		r.setProblem(s, problem)
		if e, _ := r.Journal.Entry(at.Path, at.Knob); s.problem != "" && s.before != nil && e.Wrote == changes[i].To {
			r.Journal.Wrote(at.Path, at.Knob, s.before)
		}
	}
}

// countRefusals counts the changes that the kernel refused, and returns them by knob.
func (r *Reconciler) countRefusals(errs []error) (failed Failures, refused []error) {
	failed = Failures{}
	for _, e := range errs {
		if errors.Is(e, cgroupfs.ErrGone) {
			continue
		}
		r.CountError(e, "other")
		refused = append(refused, e)
		if change, ok := errors.AsType[*cgroupfs.ChangeError](e); ok {
			failed[KeyOf(&change.Change)] = e
		}
	}
	return failed, refused
}

// log logs each refusal once, however often the write is tried again.
func (r *Reconciler) log(changes []knobs.Change, failed Failures, refused []error) {
	for i := range changes {
		if at := KeyOf(&changes[i]); failed[at] == nil {
			r.Accepted(at)
		}
	}
	for _, e := range refused {
		if change, ok := errors.AsType[*cgroupfs.ChangeError](e); ok {
			if !r.refuse(&change.Change, e.Error()) {
				continue
			}
		}
		r.Log.WithError(e).Error("Kernel refused a setting; Sluice tries again, and logs the next error only when the reason changes")
	}
}

// Save writes the journal to disk, and reports whether that succeeded. Until it succeeds, Write
// makes no changes other than of CPUs and memory nodes, whose originals need no journal: they
// are always all.
func (r *Reconciler) Save() bool {
	err := r.Journal.Flush()
	if err != nil && !r.unsaved {
		r.Log.WithError(err).Error("Original values can't be written to disk: only CPUs and memory nodes are set until they can be")
	}
	r.unsaved = err != nil
	return !r.unsaved
}

// Unsaved reports whether the last attempt to write the journal failed.
func (r *Reconciler) Unsaved() bool { return r.unsaved }

// savable drops the changes that must not be made while the journal can't be written.
func (r *Reconciler) savable(changes []knobs.Change) []knobs.Change {
	if r.Save() {
		return changes
	}
	var safe []knobs.Change
	for _, c := range changes {
		if c.Knob.OriginalIsAll() {
			safe = append(safe, c)
		}
	}
	return safe
}
