package reconcile

import (
	"errors"
	"slices"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
)

// Writer writes changes to the kernel: after the journal has their originals on disk, in a safe
// order, and those that may take long in goroutines of their own. It remembers what the kernel
// refused. It knows nothing of declared settings: it tells their owner what has become of the
// writes that it made in goroutines.
type Writer struct {
	*Options
	slow     slowWrites
	refusals refusals
	unsaved  bool // the log already says that the journal can't be written

	before func(at Key) knobs.Value            // what Sluice had written to a knob before the change that it asks for now; nil for nothing
	ended  func(c *slowWrite, failed Failures) // called with a write that the kernel has answered after Write had returned, unless another one to the knob follows
}

func newWriter(o *Options) Writer {
	return Writer{Options: o, slow: slowWrites{Options: o, writes: map[Key]*writing{}}, refusals: newRefusals()}
}

// BeginEvent resets the time that one event may wait for writes.
func (w *Writer) BeginEvent() { w.slow.waited = 0 }

// Stop prevents further writes from beginning after those that are under way.
func (w *Writer) Stop() { w.slow.stopped = true }

// UnderWay reports whether a write of a knob is under way or waits.
func (w *Writer) UnderWay(at Key) bool { return w.slow.writes[at] != nil }

// SlowWrites lists the writes that have taken longer than a second, the longest first.
func (w *Writer) SlowWrites() []status.SlowWrite { return w.slow.long() }

// Waits reports whether the kernel has refused the value so recently that a pass must not try
// it again yet.
func (w *Writer) Waits(at Key, value knobs.Value) bool {
	return value != nil && w.refusals.waiting(at, w.Now()) == value
}

// Refused reports whether the kernel has refused the last write of a knob.
func (w *Writer) Refused(at Key) bool { return w.refusals.values[at] != nil }

// Accepted records that the kernel has the declared value of a knob.
func (w *Writer) Accepted(at Key) { delete(w.refusals.values, at) }

// CountError counts a write that the kernel refused, under the knob that the error names or, if
// it names none, under the given name.
func (w *Writer) CountError(err error, knob string) { w.refusals.count(err, knob) }

// WriteErrors lists how many writes the kernel refused, by knob and errno, and the total.
func (w *Writer) WriteErrors() (all []status.KnobErrors, total int) { return w.refusals.list() }

// Write makes changes in a safe order, and those that may take long in other goroutines. A
// missing cgroup is no failure: its container has ended, or has not started and is compared
// when it does.
func (w *Writer) Write(changes []knobs.Change) (Failures, error) {
	changes, answered, errs := w.handOver(w.savable(changes))
	if len(changes) > 0 {
		errs = append(errs, cgroupfs.Refusals(w.Kernel.Apply(knobs.Order(changes)))...)
	}
	failed, refused := w.countRefusals(errs)
	w.log(append(answered, changes...), failed, refused)
	return failed, errors.Join(refused...)
}

// handOver begins the changes that may take long, and waits a moment for those of containers
// that are about to start. It returns the changes that the caller has to make, those that the
// kernel has answered, and its refusals.
func (w *Writer) handOver(changes []knobs.Change) (rest, answered []knobs.Change, refused []error) {
	if w.Blocking || !slices.ContainsFunc(changes, w.slow.takes) {
		return changes, nil, nil
	}
	var starting []*slowWrite
	for _, c := range changes {
		if !w.slow.takes(c) {
			rest = append(rest, c)
			continue
		}
		urgent := w.Starting(c.Object.Path)
		if job := w.slow.begin(c, w.before(KeyOf(&c)), urgent); urgent {
			starting = append(starting, job)
		}
	}
	for _, job := range w.slow.await(starting) {
		w.slow.finish(KeyOf(&job.Change))
		answered = append(answered, job.Change)
		refused = append(refused, cgroupfs.Refusals(job.err)...)
	}
	return rest, answered, refused
}

// answered handles the kernel's answer to a write that Write did not wait for.
func (w *Writer) answered(job *slowWrite) {
	at := KeyOf(&job.Change)
	failed, refused := w.countRefusals(cgroupfs.Refusals(job.err))
	w.log([]knobs.Change{job.Change}, failed, refused)
	if failed[at] != nil { // the kernel still has the value written before
		if next := w.slow.writes[at].next; next != nil {
			next.before = job.before
		} else if job.before != nil {
			w.Journal.RecordWrite(at.Path, at.Knob, job.before)
		}
	}
	if w.slow.finish(at) {
		return
	}
	if failed[at] != nil {
		w.Failed(at)
	}
	w.ended(job, failed)
}

// countRefusals counts the changes that the kernel refused, and returns them by knob. What only
// the runtime can set has failed, and is no refusal.
func (w *Writer) countRefusals(errs []error) (failed Failures, refused []error) {
	failed = Failures{}
	for _, e := range errs {
		if errors.Is(e, cgroupfs.ErrGone) {
			continue
		}
		if !errors.Is(e, cgroupfs.ErrNamespace) { // the runtime sets it in Sluice's place
			w.CountError(e, "other")
			refused = append(refused, e)
		}
		if change, ok := errors.AsType[*cgroupfs.ChangeError](e); ok {
			failed[KeyOf(&change.Change)] = e
		}
	}
	return failed, refused
}

// log logs each refusal once, however often the write is tried again.
func (w *Writer) log(changes []knobs.Change, failed Failures, refused []error) {
	for i := range changes {
		if at := KeyOf(&changes[i]); failed[at] == nil {
			w.Accepted(at)
		}
	}
	for _, e := range refused {
		if change, ok := errors.AsType[*cgroupfs.ChangeError](e); ok {
			if !w.refusals.add(&change.Change, e.Error(), w.Now(), w.DriftInterval()) {
				continue
			}
		}
		w.Log.WithError(e).Error("Kernel refused a setting; Sluice tries again, and logs the next error only when the reason changes")
	}
}

// Save writes the journal to disk, and reports whether that succeeded. Until it succeeds, Write
// makes no changes other than of CPUs and memory nodes, whose originals need no journal: they
// are always all.
func (w *Writer) Save() bool {
	err := w.Journal.Flush()
	if err != nil && !w.unsaved {
		w.Log.WithError(err).Error("Original values can't be written to disk: only CPUs and memory nodes are set until they can be")
	}
	w.unsaved = err != nil
	return !w.unsaved
}

// Unsaved reports whether the last attempt to write the journal failed.
func (w *Writer) Unsaved() bool { return w.unsaved }

// savable drops the changes that must not be made while the journal can't be written.
func (w *Writer) savable(changes []knobs.Change) []knobs.Change {
	if w.Save() {
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
