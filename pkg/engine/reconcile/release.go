package reconcile

import (
	"errors"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// restoreKnob returns the changes that give a knob its original value back.
func (r *Reconciler) restoreKnob(o knobs.Object, k knobs.Knob) []knobs.Change {
	at := Key{o.Path, k}
	last, underWay := r.slow.abandon(at)
	if last != nil { // a value that was never written must not stay recorded: the kernel's value would count as another program's
		r.Journal.RecordWrite(o.Path, k, last)
	}
	if underWay {
		r.unrestored[at] = o // restored when the kernel has answered
		return nil
	}
	if e, kept := r.Journal.Entry(o.Path, k); kept && e.Wrote == nil && k.Placement() {
		delete(r.unrestored, at) // the placement of containers has written it since
		return nil
	}
	if comesWithIdle(r.Journal, o.Path, k) {
		delete(r.unrestored, at)
		return nil
	}
	if !r.MayWrite() {
		if _, kept := r.Journal.Entry(o.Path, k); kept {
			r.unrestored[at] = o
		}
		return nil
	}
	changes, _, err := giveBack(r.Kernel, r.Journal, o, k)
	if err != nil && !errors.Is(err, cgroupfs.ErrGone) {
		r.unrestored[at] = o
		return nil
	}
	dropUnchanged(r.Journal, o.Path, k, changes)
	delete(r.unrestored, at)
	if len(changes) == 0 {
		r.Accepted(at)
	}
	for i := range changes {
		if at := KeyOf(&changes[i]); r.Setting(at) == nil {
			r.unrestored[at] = o
		}
	}
	return changes
}
