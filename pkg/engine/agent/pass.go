package agent

import (
	"path"
	"runtime/debug"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/node"
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
			a.Counters.Panics++
			a.Log.Errorf("panic in the periodic pass: %v\n%s", p, debug.Stack())
		}
	}()
	a.moves++
	a.Reconciler.BeginEvent()
	a.shown.draft = nil // nobody else has asked for it
	if !a.Synced {
		return
	}
	a.FindBarred()
	for _, c := range a.Order {
		if a.ended(c) {
			a.Ledger.Release(c.ID)
			a.noteFreed([]string{c.ID})
		}
	}
	a.lookAtRefused()
	a.Grants.Look(0)
	a.regrantAll()
	a.mend()
	a.settleDue() //nolint:errcheck // what failed is in the log and is tried again
	for _, c := range a.Order {
		a.repair(c, "")
		a.lookAtForeign(c)
	}
	if !a.Now().After(a.unplugged) {
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
	a.Reconciler.Save()
}

// repair compares a container with the kernel and writes what differs. Without a
// suspect the likely one is found out.
func (a *Agent) repair(c *node.Container, suspect string) {
	if !c.Touched || !c.Started || !a.Reaches(c) || !a.Authority().Cpusets {
		return
	}
	want, ok := a.Ledger.Assignment(c.ID)
	if !ok {
		return
	}
	known := c.Has
	compared := []knobs.Knob{knobs.CPUs}
	if !want.Mems.IsEmpty() && !a.Reconciler.UnderWay(reconcile.Key{Path: c.Path, Knob: knobs.Mems}) {
		compared = append(compared, knobs.Mems)
	}
	if want.Unlimited {
		compared = append(compared, knobs.Quota)
	}
	if c.Contest.Waits(a.Now()) && !a.onPinned(c) {
		return
	}
	a.observe(c, compared...)
	if want.CPUs.IsEmpty() && a.hasAllOfPod(c) {
		c.Has.CPUs = cpuset.Set{}
	}
	if c.Has.CPUs == want.CPUs && (want.Mems.IsEmpty() || c.Has.Mems == want.Mems) && (c.Has.Unlimited || !want.Unlimited) {
		c.Has = want
		for _, k := range compared {
			a.Reconciler.Accepted(reconcile.Key{Path: c.Path, Knob: k})
		}
		return
	}
	changes := changesOf(c, want, true)
	held := a.heldOf(c, changes)
	if len(held) > 0 {
		changes = slices.DeleteFunc(changesOf(c, want, false), func(change knobs.Change) bool { return held[change.Knob] })
		if len(changes) == 0 {
			return
		}
	}
	if c.Has.CPUs != known.CPUs || c.Has.Mems != known.Mems || known.Unlimited && !c.Has.Unlimited {
		c.Drift++
		a.Reconciler.CountRepair(&c.Contest)
		a.Counters.Drift++
		if suspect == "" {
			suspect = a.suspectOf(c, known)
		}
		a.Log.WithFields(logrus.Fields{
			"container": c.Ref,
			"found":     knobs.CPUSet(c.Has.CPUs).String() + " on nodes " + knobs.CPUSet(c.Has.Mems).String(),
			"want":      knobs.CPUSet(want.CPUs).String() + " on nodes " + knobs.CPUSet(want.Mems).String(),
			"suspect":   suspect,
		}).Warn("Settings of a container were changed, repaired" + c.Contest.Notice(a.Now()))
	}
	if _, err := a.Reconciler.Write(changes); err == nil && len(held) == 0 {
		c.Has = want
	}
}

// heldOf lists the changes of a container that a pass is not to try yet, since the kernel
// refused them a short time ago; none where the container is on another's own CPUs.
func (a *Agent) heldOf(c *node.Container, changes []knobs.Change) map[knobs.Knob]bool {
	var held map[knobs.Knob]bool
	for i := range changes {
		if a.Reconciler.Waits(reconcile.KeyOf(&changes[i]), changes[i].To) {
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
func (a *Agent) onPinned(c *node.Container) bool {
	// Most are where no pin is, and counting the pins takes all holders.
	now, err := a.on(c, cpuset.Difference(a.Ledger.Machine().Online, a.Ledger.Shared()))
	if err != nil || now.IsEmpty() {
		return false
	}
	pinned := a.Ledger.Pinned()
	if h, ok := a.Ledger.Holder(c.ID); ok {
		pinned = cpuset.Difference(pinned, h.CPUs)
	}
	return now.Overlaps(pinned)
}

// hasAllOfPod reports whether a container has all CPUs that its pod may use, which
// need not be the machine's: somebody may have limited the cgroups above it.
func (a *Agent) hasAllOfPod(c *node.Container) bool {
	if c.Has.CPUs.IsEmpty() {
		return true
	}
	pod, err := a.Kernel.Read(path.Dir(c.Path), knobs.CPUs)
	return err == nil && pod == knobs.Value(knobs.CPUSet(c.Has.CPUs))
}

// confine keeps the plugin itself off pinned CPUs: in the system set, or with the
// pools.
func (a *Agent) confine() {
	if a.options.Confine == nil || a.confined == a.Ledger.Version() || !a.Authority().Writes {
		return
	}
	a.confined = a.Ledger.Version()
	cpus := cpuset.Intersect(a.Config.System, a.Ledger.Machine().Online)
	if cpus.IsEmpty() {
		cpus = a.Ledger.Shared()
	}
	if err := a.options.Confine(cpus); err != nil {
		a.Log.WithError(err).Warn("Sluice's own threads may run on pinned CPUs")
	}
}
