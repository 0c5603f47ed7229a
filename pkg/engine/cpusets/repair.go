package cpusets

import (
	"path"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Repair compares a container with the kernel and writes what differs. suspect is the program
// that is believed to have changed it; with "", Repair finds a likely one.
func (w *Writer) Repair(c *node.Container, suspect string) {
	if !c.Touched || !c.Started || !w.SetsCPUs(c) || !w.Authority().Cpusets {
		return
	}
	want, ok := w.Ledger.Assignment(c.ID)
	if !ok {
		return
	}
	known := c.Has
	compared := []knobs.Knob{knobs.CPUs}
	if !want.Mems.IsEmpty() && !w.Reconciler.UnderWay(reconcile.Key{Path: c.Path, Knob: knobs.Mems}) {
		compared = append(compared, knobs.Mems)
	}
	if want.Unlimited {
		compared = append(compared, knobs.Quota)
	}
	if c.Contest.Waits(w.Now()) && !w.onPinned(c) {
		return
	}
	w.Observe(c, compared...)
	if want.CPUs.IsEmpty() && !c.Has.None && w.hasAllOfPod(c) {
		c.Has.CPUs = cpuset.Set{}
	}
	if c.Has.CPUs == want.CPUs && !c.Has.None && (want.Mems.IsEmpty() || c.Has.Mems == want.Mems) && (c.Has.Unlimited || !want.Unlimited) {
		c.Has = want
		for _, k := range compared {
			w.Reconciler.Accepted(reconcile.Key{Path: c.Path, Knob: k})
		}
		return
	}
	changes := Changes(c, want, true)
	held := w.delayedKnobs(c, changes)
	if len(held) > 0 {
		changes = slices.DeleteFunc(Changes(c, want, false), func(change knobs.Change) bool { return held[change.Knob] })
		if len(changes) == 0 {
			return
		}
	}
	if c.Has.CPUs != known.CPUs || c.Has.None || c.Has.Mems != known.Mems || known.Unlimited && !c.Has.Unlimited {
		c.Drift++
		w.Reconciler.CountRepair(&c.Contest)
		w.Counters.Drift++
		if suspect == "" {
			suspect = w.suspectOf(c, known)
		}
		w.Log.WithFields(logrus.Fields{
			"container": c.Ref,
			"found":     knobs.CPUSet(c.Has.CPUs).String() + " on nodes " + knobs.CPUSet(c.Has.Mems).String(),
			"want":      knobs.CPUSet(want.CPUs).String() + " on nodes " + knobs.CPUSet(want.Mems).String(),
			"suspect":   suspect,
		}).Warn("Settings of a container were changed, repaired" + c.Contest.Notice(w.Now()))
	}
	if _, err := w.Reconciler.Write(changes); err == nil && len(held) == 0 {
		c.Has = want
	}
}

// delayedKnobs lists the knobs of a container that a pass must not write yet because the kernel
// refused them recently. It is empty if the container is on CPUs of a pin, which must be
// repaired at once.
func (w *Writer) delayedKnobs(c *node.Container, changes []knobs.Change) map[knobs.Knob]bool {
	var delayed map[knobs.Knob]bool
	for i := range changes {
		if w.Reconciler.Waits(reconcile.KeyOf(&changes[i]), changes[i].To) {
			if delayed == nil {
				delayed = map[knobs.Knob]bool{}
			}
			delayed[changes[i].Knob] = true
		}
	}
	if delayed != nil && w.onPinned(c) {
		return nil
	}
	return delayed
}

// onPinned reports whether the kernel shows a container on another container's pinned CPUs.
// Such a container is repaired even if its cpuset is contested.
func (w *Writer) onPinned(c *node.Container) bool {
	// Most containers are on no pin's CPUs, and listing the pins is slower: it reads all
	// holders.
	now, err := w.on(c, cpuset.Difference(w.Ledger.Machine().Online, w.Ledger.Shared()))
	if err != nil || now.IsEmpty() {
		return false
	}
	pinned := w.Ledger.Pinned()
	if h, ok := w.Ledger.Holder(c.ID); ok {
		pinned = cpuset.Difference(pinned, h.CPUs)
	}
	return now.Overlaps(pinned)
}

// hasAllOfPod reports whether a container has all CPUs that its pod may use. These may be fewer
// than the machine's, since another program may have limited the cgroups above it.
func (w *Writer) hasAllOfPod(c *node.Container) bool {
	if c.Has.CPUs.IsEmpty() {
		return true
	}
	pod, err := w.Kernel.Read(path.Dir(c.Path), knobs.CPUs)
	return err == nil && pod == knobs.Value(knobs.CPUSet(c.Has.CPUs))
}

// suspectOf names the program that probably moved a container from its known assignment to the
// present one.
func (w *Writer) suspectOf(c *node.Container, known placement.Assignment) string {
	switch {
	case c.Has.CPUs != known.CPUs:
		return w.Suspect(c.Object(), knobs.CPUs, knobs.CPUSet(c.Has.CPUs))
	case c.Has.Mems != known.Mems:
		return w.Suspect(c.Object(), knobs.Mems, knobs.CPUSet(c.Has.Mems))
	}
	return w.Suspect(c.Object(), knobs.Quota, c.Quota)
}
