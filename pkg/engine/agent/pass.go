package agent

import (
	"path"
	"runtime/debug"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Pass is one periodic pass, for an agent with a clock of its own.
func (a *Agent) Pass() {
	a.do("pass", func() error { a.pass(); return nil }) //nolint:errcheck // only a closed agent fails it
}

// pass is what the clock does: grants of ended containers are freed, pins that
// lack CPUs are mended, and every container that Sluice has set is compared with
// the kernel.
func (a *Agent) pass() {
	defer func() {
		if p := recover(); p != nil {
			a.counters.Panics++
			a.Log.Errorf("panic in the periodic pass: %v\n%s", p, debug.Stack())
		}
	}()
	a.moves++
	a.reconciler.BeginEvent()
	a.shown.draft = nil // nobody else has asked for it
	if !a.synced {
		return
	}
	a.lookAtParent()
	for _, c := range a.order {
		if a.ended(c) {
			a.ledger.Release(c.ID)
			a.noteFreed([]string{c.ID})
		}
	}
	a.lookAtRefused()
	a.grants.Look(0)
	a.regrantAll()
	a.mend()
	a.settleDue() //nolint:errcheck // what failed is in the log and is tried again
	for _, c := range a.order {
		a.repair(c, "")
		a.lookAtForeign(c)
	}
	if !a.now().After(a.unplugged) {
		a.rejoinAll()
	}
	a.liftAll()
	a.reconcilePass()
	a.setUpRDT()
	a.joinAll()
	a.retarget()
	a.record()
	a.confine()
	a.steer()
	a.reconciler.Save()
}

// repair compares a container with the kernel and writes what differs. Without a
// suspect the likely one is found out.
func (a *Agent) repair(c *container, suspect string) {
	if !c.touched || !c.started || !a.reaches(c) || !a.authority().Cpusets {
		return
	}
	want, ok := a.ledger.Assignment(c.ID)
	if !ok {
		return
	}
	known := c.has
	compared := []knobs.Knob{knobs.CPUs}
	if !want.Mems.IsEmpty() && !a.reconciler.UnderWay(reconcile.Key{Path: c.path, Knob: knobs.Mems}) {
		compared = append(compared, knobs.Mems)
	}
	if want.Unlimited {
		compared = append(compared, knobs.Quota)
	}
	if c.contest.Waits(a.now()) && !a.onPinned(c) {
		return
	}
	a.observe(c, compared...)
	if want.CPUs.IsEmpty() && a.hasAllOfPod(c) {
		c.has.CPUs = cpuset.Set{}
	}
	if c.has.CPUs == want.CPUs && (want.Mems.IsEmpty() || c.has.Mems == want.Mems) && (c.has.Unlimited || !want.Unlimited) {
		c.has = want
		for _, k := range compared {
			a.reconciler.Accepted(reconcile.Key{Path: c.path, Knob: k})
		}
		return
	}
	changes := c.changes(want, true)
	held := a.heldOf(c, changes)
	if len(held) > 0 {
		changes = slices.DeleteFunc(c.changes(want, false), func(change knobs.Change) bool { return held[change.Knob] })
		if len(changes) == 0 {
			return
		}
	}
	if c.has.CPUs != known.CPUs || c.has.Mems != known.Mems || known.Unlimited && !c.has.Unlimited {
		c.drift++
		a.reconciler.CountRepair(&c.contest)
		a.counters.Drift++
		if suspect == "" {
			suspect = a.suspectOf(c, known)
		}
		a.Log.WithFields(logrus.Fields{
			"container": c.ref,
			"found":     knobs.CPUSet(c.has.CPUs).String() + " on nodes " + knobs.CPUSet(c.has.Mems).String(),
			"want":      knobs.CPUSet(want.CPUs).String() + " on nodes " + knobs.CPUSet(want.Mems).String(),
			"suspect":   suspect,
		}).Warn("Settings of a container were changed, repaired" + c.contest.Notice(a.now()))
	}
	if _, err := a.reconciler.Write(changes); err == nil && len(held) == 0 {
		c.has = want
	}
}

// heldOf lists the changes of a container that a pass is not to try yet, since the kernel
// refused them a short time ago; none where the container is on another's own CPUs.
func (a *Agent) heldOf(c *container, changes []knobs.Change) map[knobs.Knob]bool {
	var held map[knobs.Knob]bool
	for i := range changes {
		if a.reconciler.Waits(reconcile.KeyOf(&changes[i]), changes[i].To) {
			if held == nil {
				held = map[knobs.Knob]bool{}
			}
			held[changes[i].Knob] = true
		}
	}
	if held != nil && a.onPinned(c) {
		return nil
	}
	return held
}

// onPinned reports whether the kernel shows a container on another's own CPUs,
// which no contest excuses.
func (a *Agent) onPinned(c *container) bool {
	// Most are where no pin is, and counting the pins takes all holders.
	now, err := a.on(c, cpuset.Difference(a.ledger.Machine().Online, a.ledger.Shared()))
	if err != nil || now.IsEmpty() {
		return false
	}
	pinned := a.ledger.Pinned()
	if h, ok := a.ledger.Holder(c.ID); ok {
		pinned = cpuset.Difference(pinned, h.CPUs)
	}
	return now.Overlaps(pinned)
}

// hasAllOfPod reports whether a container has all CPUs that its pod may use, which
// need not be the machine's: somebody may have limited the cgroups above it.
func (a *Agent) hasAllOfPod(c *container) bool {
	if c.has.CPUs.IsEmpty() {
		return true
	}
	pod, err := a.Kernel.Read(path.Dir(c.path), knobs.CPUs)
	return err == nil && pod == knobs.Value(knobs.CPUSet(c.has.CPUs))
}

// confine keeps the plugin itself off pinned CPUs: in the system set, or with the
// pools.
func (a *Agent) confine() {
	if a.Confine == nil || a.confined == a.ledger.Version() || !a.authority().Writes {
		return
	}
	a.confined = a.ledger.Version()
	cpus := cpuset.Intersect(a.Config.System, a.ledger.Machine().Online)
	if cpus.IsEmpty() {
		cpus = a.ledger.Shared()
	}
	if err := a.Confine(cpus); err != nil {
		a.Log.WithError(err).Warn("Sluice's own threads may run on pinned CPUs")
	}
}
