package reconcile

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// AfterFailsafe enters the changes of the failsafe's plan that the kernel shows as written
// by Sluice: the failsafe wrote them in its place, so they are nobody else's newer values.
func AfterFailsafe(kernel Kernel, book *journal.Book, plan []knobs.Change) {
	for i := range plan {
		c := &plan[i]
		e, kept := book.Entry(c.Object.Path, c.Knob)
		if !kept || e.Wrote == nil {
			continue
		}
		if have, err := kernel.Read(c.Object.Path, c.Knob); err == nil && kernel.Same(c.Knob, c.To, have) {
			book.Wrote(c.Object.Path, c.Knob, c.To)
		}
	}
}

// Restored is what Restore has given back.
type Restored struct {
	Changes []knobs.Change // made, or with dry to be made
	Newer   []string       // knobs left alone, since somebody else has changed them
}

// Restore gives the knobs of all cgroups in the journal their original values back,
// while no agent runs; foreign tells which of them belong to somebody else now. What the
// kernel refuses stays in the journal, and the error says why. With dry, neither the kernel
// nor the journal is changed.
func Restore(kernel Kernel, book *journal.Book, foreign func(*journal.Entry) bool, dry bool) (r Restored, err error) {
	var errs []error
	for _, e := range book.All() {
		name := fmt.Sprintf("%s of %s", e.Knob, e.Object.Name)
		switch {
		case comesWithIdle(book, e.Object.Path, e.Knob):
			continue
		case foreign(&e):
			r.Newer = append(r.Newer, name)
			continue
		}
		changes, newer, err := giveBack(kernel, book, e.Object, e.Knob)
		switch {
		case errors.Is(err, cgroupfs.ErrGone):
			if !dry {
				book.Forget(e.Object.Path)
			}
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		}
		if !dry {
			dropUnchanged(book, e.Object.Path, e.Knob, changes)
		}
		if newer {
			r.Newer = append(r.Newer, name)
		}
		r.Changes = append(r.Changes, changes...)
	}
	if dry {
		return r, errors.Join(errs...)
	}
	refused := Failures{}
	for _, e := range cgroupfs.Refusals(kernel.Apply(knobs.Order(r.Changes))) {
		if change, ok := errors.AsType[*cgroupfs.ChangeError](e); ok && !errors.Is(e, cgroupfs.ErrGone) {
			refused[KeyOf(&change.Change)] = e
			errs = append(errs, e)
		}
	}
	for i := range r.Changes {
		if at := KeyOf(&r.Changes[i]); refused[at] == nil {
			book.Drop(at.Path, at.Knob)
		}
	}
	return r, errors.Join(append(errs, book.Flush())...)
}

// giveBack returns the changes that give a knob its original value back, where the
// kernel still shows what Sluice wrote: a newer value is somebody else's and stays. The end
// of idle brings the weight that the journal keeps for it.
func giveBack(kernel Kernel, book *journal.Book, o knobs.Object, k knobs.Knob) (changes []knobs.Change, newer bool, err error) {
	e, kept := book.Entry(o.Path, k)
	if !kept {
		return nil, false, nil
	}
	have, err := kernel.Read(o.Path, k)
	if err != nil {
		return nil, false, err
	}
	change := knobs.Change{Object: o, Knob: k, From: have, To: e.Value, Why: "Sluice lets it go"}
	same := kernel.Same(k, e.Value, have)
	switch {
	case k.OriginalIsAll():
		return []knobs.Change{change}, false, nil
	case k == knobs.Quota && e.Wrote == nil: // lifted
		if same || !have.(knobs.CPUQuota).Unlimited() {
			return nil, false, nil
		}
		return []knobs.Change{change}, false, nil
	case k == knobs.Weight && e.Wrote == nil: // kept for the end of idle
		if same {
			return nil, false, nil
		}
		return []knobs.Change{change}, false, nil
	}
	if !same && e.Wrote != nil && kernel.Same(k, e.Wrote, have) {
		changes, have = []knobs.Change{change}, e.Value
	} else {
		newer = !same && e.Wrote != nil
	}
	if k == knobs.Idle && have == knobs.Value(knobs.Number(0)) {
		weight, _, err := giveBack(kernel, book, o, knobs.Weight)
		return append(changes, weight...), newer, err
	}
	return changes, newer, nil
}

// comesWithIdle reports whether a knob is the weight that its cgroup gets back with the
// end of idle.
func comesWithIdle(book *journal.Book, path string, k knobs.Knob) bool {
	_, idle := book.Kept(path, knobs.Idle)
	return idle && k == knobs.Weight
}

// dropUnchanged drops a knob, with the weight that comes with idle, from the journal
// where giving it back takes no change.
func dropUnchanged(book *journal.Book, path string, k knobs.Knob, changes []knobs.Change) {
	all := []knobs.Knob{k}
	if k == knobs.Idle {
		all = append(all, knobs.Weight)
	}
	for _, k := range all {
		if !slices.ContainsFunc(changes, func(c knobs.Change) bool { return c.Knob == k }) {
			book.Drop(path, k)
		}
	}
}
