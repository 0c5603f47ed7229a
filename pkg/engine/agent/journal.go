package agent

import (
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/rdtgroup"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/engine/steering"
	"github.com/sluice-dev/sluice/pkg/engine/watermarks"
	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// load opens the book of originals; a line that is lost or corrupt costs only its
// own value.
func (a *Agent) load() {
	book, err := journal.Open(a.Originals, procfs.BootID(a.Host))
	if err != nil {
		a.Log.WithError(err).Warn("Original values not read in full: what an earlier run changed may not be given back")
	}
	a.book = book
	a.reconciler = a.newReconciler()
	if a.Formerly != "" && a.Formerly != a.Originals {
		if err := book.TakeOver(a.Formerly); err != nil {
			a.Log.WithError(err).Warn("Original values of an earlier version not taken over in full: what it changed may not be given back")
		}
	}
	if a.Kernel != nil {
		reconcile.AfterFailsafe(a.Kernel, book, a.FailsafePlan)
	}
	a.steering = steering.New(a.Affinities, book, func(work, then func()) { a.aside("steer", work, then) }, a.Log)
	a.watermarks = watermarks.New(a.Watermarks, book, a.Log)
	a.rdt = rdtgroup.New(a.RDT, book, func() { a.counters.Drift++ }, a.Log)
	for _, e := range book.All() {
		if e.Object.Level == knobs.PodLevel && e.Knob == knobs.Quota && e.Wrote == nil {
			a.lifted[e.Object.Path] = e.Object
		}
	}
}

// keep notes a container's originals, before the first write: all of its pod's
// CPUs and memory, and the kubelet's quota.
func (a *Agent) keep(c *container) {
	if c.path == "" {
		return
	}
	all := knobs.CPUSet{}
	a.book.Keep(c.object(), knobs.CPUs, all)
	want, _ := a.ledger.Assignment(c.ID)
	if !want.Mems.IsEmpty() {
		a.book.Keep(c.object(), knobs.Mems, all)
	}
	if want.Unlimited && c.quota.Quota > 0 {
		a.book.Keep(c.object(), knobs.Quota, c.quota)
	}
}

// recall tells a found container what was done to it: on an earlier connection
// of this run, or in the run before.
func (a *Agent) recall(c, before *container) {
	a.recallCarried(c)
	if before != nil {
		c.touched, c.quota, c.drift, c.contest = before.touched, before.quota, before.drift, before.contest
		return
	}
	if _, ok := a.book.Kept(c.path, knobs.CPUs); ok {
		c.touched = true
	}
	if quota, ok := a.book.Kept(c.path, knobs.Quota); ok {
		c.quota = quota.(knobs.CPUQuota)
	}
}

// recallCarried undoes, in what the runtime says of a found container, what the
// runtime carries for Sluice. A value that is not Sluice's is newer than the book's.
func (a *Agent) recallCarried(c *container) {
	if !a.reaches(c) {
		return
	}
	recall := func(k knobs.Knob, now knobs.Value, set func(knobs.Value)) {
		e, kept := a.book.Entry(c.path, k)
		switch {
		case !kept || e.Wrote == nil:
		case now == e.Wrote:
			set(e.Value)
		case !a.Kernel.Same(k, now, e.Value):
			a.book.Keep(e.Object, k, now)
			a.book.Wrote(c.path, k, e.Wrote)
		}
	}
	r := &c.Resources
	if r.Shares > 0 {
		recall(knobs.Weight, knobs.Shares(r.Shares), func(v knobs.Value) { r.Shares = uint64(v.(knobs.Shares)) })
	}
	if r.MemoryLimit > 0 {
		recall(knobs.MemoryMax, knobs.Bytes(r.MemoryLimit), func(v knobs.Value) { r.MemoryLimit = max(0, int64(v.(knobs.Bytes))) })
	}
	if c.quota.Quota > 0 {
		recall(knobs.Quota, c.quota, func(v knobs.Value) { c.quota = v.(knobs.CPUQuota) })
	}
}

// forgetGone lets the originals of containers go that ended while nobody told.
func (a *Agent) forgetGone() {
	here := make(map[string]bool, len(a.order))
	for _, c := range a.order {
		here[c.path] = true
	}
	for _, e := range a.book.All() {
		if e.Object.Level == knobs.ContainerLevel && !here[e.Object.Path] {
			a.book.Forget(e.Object.Path)
		}
	}
}
