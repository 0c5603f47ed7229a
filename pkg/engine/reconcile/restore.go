package reconcile

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// AfterFailsafe records in the journal, as written by Sluice, those changes of the failsafe's
// plan that the kernel shows. Otherwise they would count as another program's.
func AfterFailsafe(kernel Kernel, j *journal.Journal, plan []knobs.Change) {
	for i := range plan {
		c := &plan[i]
		e, kept := j.Entry(c.Object.Path, c.Knob)
		if !kept || e.Wrote == nil {
			continue
		}
		if have, err := kernel.Read(c.Object.Path, c.Knob); err == nil && kernel.Same(c.Knob, c.To, have) {
			j.RecordWrite(c.Object.Path, c.Knob, c.To)
		}
	}
}

// AfterCrash records in the journal what the kernel has where Sluice ended between the journal's
// record of a write and its end, or while the runtime was updating its record. Otherwise that value
// would count as another program's.
func AfterCrash(kernel Kernel, j *journal.Journal) {
	for _, e := range j.All() {
		if e.Wrote == nil {
			continue
		}
		have, err := kernel.Read(e.Object.Path, e.Knob)
		if err != nil || kernel.Same(e.Knob, e.Wrote, have) {
			continue
		}
		if kernel.Same(e.Knob, e.Value, have) || unfinished(kernel, &e, have) {
			j.RecordWrite(e.Object.Path, e.Knob, have)
		}
	}
}

// unfinished reports whether the kernel has a value that Sluice's own end, or the runtime for Sluice,
// has left in place of the one that Sluice wrote last.
func unfinished(kernel Kernel, e *journal.Entry, have knobs.Value) bool {
	return interrupted(kernel, e, have) || byRuntime(kernel, e, have)
}

// byRuntime reports whether the kernel has what the runtime's record has of Sluice's. The runtime
// writes all of its record with each update of a container, by Sluice or by the kubelet, and runc 1.3
// and later converts shares to other weights than Sluice does.
func byRuntime(kernel Kernel, e *journal.Entry, have knobs.Value) bool {
	for _, v := range []knobs.Value{e.Carried, e.CarriedBefore} {
		if v == nil {
			continue
		}
		if kernel.Same(e.Knob, v, have) {
			return true
		}
		if shares, ok := v.(knobs.Shares); ok && kernel.Same(e.Knob, cgroupfs.SharesOf(cgroupfs.RuncWeightOf(shares)), have) {
			return true
		}
	}
	return false
}

// interrupted reports whether the kernel has the value that Sluice wrote before its last one, or a
// part of the last one: on cgroup v1, a quota with another period is written in steps, with an
// unlimited one in between.
func interrupted(kernel Kernel, e *journal.Entry, have knobs.Value) bool {
	if e.Before != nil && kernel.Same(e.Knob, e.Before, have) {
		return true
	}
	before, wrote, now := quotaOf(e.Before), quotaOf(e.Wrote), quotaOf(have)
	if e.Before == nil {
		before = quotaOf(e.Value)
	}
	return now.Unlimited() && wrote.Finite() && wrote.Period != before.Period && (now.Period == wrote.Period || now.Period == before.Period)
}

// quotaOf is a value of a quota; zero for one of another knob.
func quotaOf(v knobs.Value) knobs.CPUQuota {
	q, _ := v.(knobs.CPUQuota)
	return q
}

// Restored is the result of Restore.
type Restored struct {
	Changes []knobs.Change // the changes made, or with dry those that would be made
	Newer   []string       // knobs left alone because another program has changed them
}

// Restore gives the knobs of all cgroups in the journal their original values back. No agent
// may be running. foreign reports whether an entry's knob belongs to another program now. What
// the kernel refuses stays in the journal, and the error says why. With dry, Restore changes
// neither the kernel nor the journal.
func Restore(kernel Kernel, j *journal.Journal, foreign func(*journal.Entry) bool, dry bool) (r Restored, err error) {
	var errs []error
	for _, e := range j.All() {
		name := fmt.Sprintf("%s of %s", e.Knob, e.Object.Name)
		switch {
		case comesWithIdle(j, e.Object.Path, e.Knob):
			continue
		case foreign(&e):
			r.Newer = append(r.Newer, name)
			continue
		}
		changes, newer, err := giveBack(kernel, j, e.Object, e.Knob)
		switch {
		case errors.Is(err, cgroupfs.ErrGone):
			if !dry {
				j.Forget(e.Object.Path)
			}
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		}
		if !dry {
			dropUnchanged(j, e.Object.Path, e.Knob, changes)
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
			j.Drop(at.Path, at.Knob)
		}
	}
	return r, errors.Join(append(errs, j.Flush())...)
}

// giveBack returns the changes that restore a knob's original value. If the kernel no longer
// shows what Sluice wrote, another program has written a newer value, which stays. The end of
// idle also restores the weight that the journal has for it.
func giveBack(kernel Kernel, j *journal.Journal, o knobs.Object, k knobs.Knob) (changes []knobs.Change, newer bool, err error) {
	e, kept := j.Entry(o.Path, k)
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
	case k == knobs.Quota && e.Wrote == nil: // Sluice lifted the quota
		notYet := e.Before != nil && kernel.Same(k, e.Before, have) // Sluice died before it lifted its own
		if same || !have.(knobs.CPUQuota).Unlimited() && !notYet {
			return nil, false, nil
		}
		return []knobs.Change{change}, false, nil
	case k == knobs.Weight && e.Wrote == nil: // the journal has it for the end of idle
		if same {
			return nil, false, nil
		}
		return []knobs.Change{change}, false, nil
	}
	if !same && e.Wrote != nil && (kernel.Same(k, e.Wrote, have) || unfinished(kernel, &e, have)) {
		changes, have = []knobs.Change{change}, e.Value
	} else {
		newer = !same && e.Wrote != nil
	}
	if k == knobs.Idle && have == knobs.Value(knobs.Number(0)) {
		weight, _, err := giveBack(kernel, j, o, knobs.Weight)
		return append(changes, weight...), newer, err
	}
	return changes, newer, nil
}

// comesWithIdle reports whether a knob is a weight that the end of idle restores.
func comesWithIdle(j *journal.Journal, path string, k knobs.Knob) bool {
	_, idle := j.Original(path, knobs.Idle)
	return idle && k == knobs.Weight
}

// dropUnchanged drops a knob, and the weight that the end of idle restores, from the journal if
// restoring it takes no change.
func dropUnchanged(j *journal.Journal, path string, k knobs.Knob, changes []knobs.Change) {
	all := []knobs.Knob{k}
	if k == knobs.Idle {
		all = append(all, knobs.Weight)
	}
	for _, k := range all {
		if !slices.ContainsFunc(changes, func(c knobs.Change) bool { return c.Knob == k }) {
			j.Drop(path, k)
		}
	}
}
