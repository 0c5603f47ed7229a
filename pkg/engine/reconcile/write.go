package reconcile

import (
	"errors"
	"slices"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Key names one knob of one cgroup.
type Key struct {
	Path string
	Knob knobs.Knob
}

// KeyOf names the knob that a change writes.
func KeyOf(c *knobs.Change) Key { return Key{c.Object.Path, c.Knob} }

// Failures are the changes that the kernel refused.
type Failures map[Key]error

// In reports whether a change of the cgroup is among them.
func (f Failures) In(path string) bool {
	for at := range f {
		if at.Path == path {
			return true
		}
	}
	return false
}

// Write makes changes in their safe order, those that may take long outside of the caller's
// goroutine. A cgroup that is not there is no failure: it is a container's that has ended, or
// one's that has not started and is compared when it does.
func (r *Reconciler) Write(changes []knobs.Change) (Failures, error) {
	changes, answered, errs := r.handOver(r.savable(changes))
	if len(changes) > 0 {
		errs = append(errs, cgroupfs.Refusals(r.Kernel.Apply(knobs.Order(changes)))...)
	}
	failed, refused := r.answers(errs)
	r.log(append(answered, changes...), failed, refused)
	return failed, errors.Join(refused...)
}

// change makes changes and notes which of them failed; those are tried again by a later pass.
func (r *Reconciler) change(changes []knobs.Change) {
	failed, _ := r.Write(changes)
	r.noteAnswers(slices.DeleteFunc(changes, func(c knobs.Change) bool { return r.writer.writes[KeyOf(&c)] != nil }), failed)
}

// noteAnswers notes which of the changes that were made failed.
func (r *Reconciler) noteAnswers(changes []knobs.Change, failed Failures) {
	for i := range changes {
		at := KeyOf(&changes[i])
		err := failed[at]
		if _, leaving := r.leaving[at]; leaving && err == nil && !r.unsaved {
			delete(r.leaving, at)
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
		r.trouble(s, problem)
		if e, _ := r.Journal.Entry(at.Path, at.Knob); s.problem != "" && s.before != nil && e.Wrote == changes[i].To {
			r.Journal.Wrote(at.Path, at.Knob, s.before)
		}
	}
}

// answers counts what the kernel has refused, by knob.
func (r *Reconciler) answers(errs []error) (failed Failures, refused []error) {
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

// log says once what the kernel refuses, however often it is tried again.
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

// Save writes the journal to disk, and reports whether that succeeded. Until it does,
// Write makes no changes but those of CPUs and memory nodes, whose original is always all.
func (r *Reconciler) Save() bool {
	err := r.Journal.Flush()
	if err != nil && !r.unsaved {
		r.Log.WithError(err).Error("Original values can't be written to disk: only CPUs and memory nodes are set until they can be")
	}
	r.unsaved = err != nil
	return !r.unsaved
}

// Unsaved reports whether the journal could not be written when it was tried last.
func (r *Reconciler) Unsaved() bool { return r.unsaved }

// savable leaves out what must not be written while the journal can't be.
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
