package reconcile

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// change makes changes and records which of them failed; a later pass tries those again.
func (r *Reconciler) change(changes []knobs.Change) {
	failed, _ := r.Write(changes)
	r.noteResults(slices.DeleteFunc(changes, func(c knobs.Change) bool { return r.UnderWay(KeyOf(&c)) }), failed)
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
			r.Journal.RecordWrite(at.Path, at.Knob, s.before)
		}
	}
}

// noteAnswer records the kernel's answer to a write in a goroutine, and gives the knob back if
// it is no longer wanted.
func (r *Reconciler) noteAnswer(job *slowWrite, failed Failures) {
	at := KeyOf(&job.Change)
	original, _ := r.Journal.Original(at.Path, at.Knob)
	if o, leaving := r.unrestored[at]; leaving && job.To != original {
		r.change(r.restoreKnob(o, at.Knob))
		return
	}
	if s := r.Setting(at); s != nil {
		s.before = job.before
	}
	r.noteResults([]knobs.Change{job.Change}, failed)
}

// wroteBefore is what Sluice had written to a knob before its last change of it; nil for
// nothing.
func (r *Reconciler) wroteBefore(at Key) knobs.Value {
	if s := r.Setting(at); s != nil {
		return s.before
	}
	return nil
}

// setProblem records why the kernel does not have a setting; "" if it has.
func (r *Reconciler) setProblem(s *Setting, problem string) {
	if s.problem != problem {
		s.problem = problem
		r.version++
	}
}
