package cpusets

import (
	"errors"
	"path"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// MachineChanged updates cgroups after a hotplug of CPUs or memory nodes. The ledger must have
// the new machine.
func (w *Writer) MachineChanged(old *topology.Machine) {
	m := w.Ledger.Machine()
	w.returned = cpuset.Intersect(cpuset.Union(w.returned, cpuset.Difference(m.Online, old.Online)), m.Online)
	w.Journal.SaveState(returnedState, w.returned.String()) //nolint:errcheck // a text is always encoded
	for _, c := range w.Order {
		w.Widen(c)
		// v1 removed the CPUs from every set, including those that Sluice has never written.
		if c.Started && w.Reaches(c) && (c.Touched || !w.returned.IsEmpty()) {
			w.Observe(c, knobs.CPUs, knobs.Mems)
		}
	}
	w.applied = node.LedgerState{}
	w.TryApply()
}

// returnedState is the name under which the journal has the CPUs that came back, in the notation of
// cpuset.Parse.
const returnedState = "returned-cpus"

// recallReturned reads the CPUs that came back while an earlier process ran.
func (w *Writer) recallReturned() {
	var text string
	if ok, err := w.Journal.State(returnedState, &text); ok && err == nil {
		w.returned, _ = cpuset.Parse(text) // none, if it can't be read
	}
}

// CPUsWent moves processes back into their cpusets, now and in the next passes, since the
// kernel moves them out when their CPUs go offline.
func (w *Writer) CPUsWent() {
	w.RejoinUntil = w.Now().Add(rejoinTime)
	w.RejoinAll()
}

// Widen adds CPUs that went offline and came back to the cgroups above a container. cgroup v1
// doesn't add them itself, not even in a pod without containers at that time.
func (w *Writer) Widen(c *node.Container) {
	if w.returned.IsEmpty() || !w.Reaches(c) || !w.Authority().Cpusets {
		return
	}
	if err := w.Kernel.GiveBack(path.Dir(c.Path), w.returned); err != nil {
		w.Log.WithError(err).WithField("container", c.Ref).WithField("cpus", w.returned.String()).Warn("CPUs came back, and a cgroup does not get them again")
	}
}

// RejoinAll moves processes back into their containers' cpusets.
func (w *Writer) RejoinAll() {
	for _, c := range w.Order {
		if !c.Started || !w.Reaches(c) || !w.Authority().Cpusets {
			continue
		}
		log := w.Log.WithField("container", c.Ref)
		moved, err := w.Kernel.Rejoin(c.Path)
		if moved > 0 {
			log.WithField("processes", moved).Warn("CPUs went offline, and the kernel took processes out of their container's cpuset: they are back in it")
		}
		if err != nil && !errors.Is(err, cgroupfs.ErrGone) {
			log.WithError(err).Error("Processes that the kernel took out of their container's cpuset can't be put back: they may run on all CPUs of their pod; the next pass tries again")
		}
	}
}

// rejoinTime is how long after CPUs went offline RejoinAll is called: the kernel moves
// processes in a work queue, at any time after the event.
const rejoinTime = time.Minute
