// Package cpusets keeps containers on the CPUs and memory nodes that the ledger assigns to
// them, and off those of other containers. It compares cgroups with the ledger, writes and
// repairs them, and reads the kernel to confirm that containers have moved. It owns what it
// knows of containers' cgroups (node.Container's Has, Touched, Drift, Contest and Foreign), and the
// lifted quotas of pods whose containers all have CPUs of their own. It writes through the
// reconciler, in an order that never lets two sets overlap that must not.
package cpusets

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Writer moves containers to the CPUs and memory nodes that the ledger assigns to them.
type Writer struct {
	*node.Node
	applied node.LedgerState // the ledger's state that all containers were moved to; zero if some were not

	lifted   map[string]knobs.Object // cgroups of pods whose quota Sluice has lifted
	resizing map[string]time.Time    // by the pod's cgroup: until when the kubelet may write it for a resize

	returned cpuset.Set // CPUs that went offline and came back since the node's boot, as far as Sluice ran
	// RejoinUntil is until when the kernel may move processes out of their containers' cpusets
	// after CPUs have gone offline. Until then each pass calls RejoinAll.
	RejoinUntil time.Time
}

// New makes a writer for a node whose journal has been loaded.
func New(n *node.Node) *Writer {
	w := &Writer{Node: n, lifted: map[string]knobs.Object{}, resizing: map[string]time.Time{}}
	for _, e := range n.Journal.All() {
		if e.Object.Level == knobs.PodLevel && e.Knob == knobs.Quota && e.Wrote == nil {
			w.lifted[e.Object.Path] = e.Object
		}
	}
	w.recallReturned()
	return w
}

// Apply writes the ledger's present assignments to the cgroups of all containers except the one
// with the ID skip. The error names the containers that could not be moved; the next Apply
// tries them again.
func (w *Writer) Apply(skip string) error {
	return w.applyBut(func(c *node.Container, _ []knobs.Change) bool { return c.ID == skip })
}

// TryApply is Apply for callers that continue after a failure. The log reports it, and the next
// Apply tries again.
func (w *Writer) TryApply() { w.Apply("") } //nolint:errcheck // the reconciler logs what fails

// ownTime is how long a container passes for this process's own after the kernel has refused to set
// its cpuset. Others can be refused like that too, for a while.
const ownTime = 5 * time.Minute

// ApplyDue is TryApply for the periodic pass. It skips the containers whose last write failed
// too recently to try again.
func (w *Writer) ApplyDue() {
	for _, c := range w.Order {
		if !c.Own.IsZero() && w.Now().Sub(c.Own) >= ownTime {
			c.Own = w.Now()
			w.TakeOver(c)
		}
	}
	waiting := false
	w.applyBut(func(c *node.Container, changes []knobs.Change) bool { //nolint:errcheck // the reconciler logs what fails
		held := len(w.delayedKnobs(c, changes)) > 0
		waiting = waiting || held
		return held
	})
	if waiting {
		w.applied = node.LedgerState{}
	}
}

// applyBut writes the assignments of all containers except those that skip selects.
func (w *Writer) applyBut(skip func(*node.Container, []knobs.Change) bool) error {
	if w.applied == w.LedgerState() || !w.Authority().Cpusets {
		return nil
	}
	var (
		moved   []*node.Container
		wants   []placement.Assignment
		changes []knobs.Change
	)
	for _, c := range w.Order {
		want, ok := w.Ledger.Assignment(c.ID)
		if !ok || !w.Reaches(c) {
			continue
		}
		if more := Changes(c, want, false); len(more) > 0 && !skip(c, more) {
			w.Touch(c) // even if the writes fail, the pass compares it from now on
			moved, wants, changes = append(moved, c), append(wants, want), append(changes, more...)
		}
	}
	failed, err := w.Reconciler.Write(changes)
	for i, c := range moved {
		if failed.In(c.Path) {
			c.Own = time.Time{}
			if errors.Is(failed[reconcile.Key{Path: c.Path, Knob: knobs.CPUs}], cgroupfs.ErrNamespace) {
				c.Own = w.Now()
			}
			w.Observe(c, knobs.CPUs, knobs.Mems, knobs.Quota)
			continue
		}
		c.Has, c.Own = wants[i], time.Time{}
	}
	if err == nil {
		w.applied = w.LedgerState()
	}
	return err
}

// Touch records that Sluice sets the container's CPUs or memory nodes from now on.
func (w *Writer) Touch(c *node.Container) {
	c.Touched = true
	w.RecordOriginals(c)
}

// TakeOver makes the next Apply compare a running container with its assignment, even if the
// ledger has not changed.
func (w *Writer) TakeOver(c *node.Container) {
	if w.Reaches(c) && w.Authority().Cpusets {
		w.Touch(c)
		w.Observe(c, knobs.CPUs, knobs.Mems, knobs.Quota)
	}
	w.applied = node.LedgerState{}
}

// Resync reads the CPUs of all containers that Sluice sets, after another program has written
// them with Sluice's consent, and then writes the ledger's assignments.
func (w *Writer) Resync() {
	for _, c := range w.Order {
		if c.Touched && c.Started && w.Reaches(c) && w.Authority().Cpusets {
			w.Observe(c, knobs.CPUs)
		}
	}
	w.applied = node.LedgerState{}
	w.TryApply()
}

// RecordOriginals records a container's originals in the journal before the first write: all of its pod's
// CPUs and memory nodes, and the kubelet's quota.
func (w *Writer) RecordOriginals(c *node.Container) {
	if c.Path == "" {
		return
	}
	all := knobs.CPUSet{}
	w.Journal.Record(c.Object(), knobs.CPUs, all)
	want, _ := w.Ledger.Assignment(c.ID)
	if !want.Mems.IsEmpty() {
		w.Journal.Record(c.Object(), knobs.Mems, all)
	}
	if want.Unlimited && c.Quota.Quota > 0 {
		w.Journal.Record(c.Object(), knobs.Quota, c.Quota)
		w.Journal.RecordLift(c.Path, knobs.Quota)
	}
}

// Assert writes everything that a started container is assigned, without regard to Has: the
// container's spec and its cgroup may be older than the assignment.
func (w *Writer) Assert(c *node.Container) error {
	want, ok := w.Ledger.Assignment(c.ID)
	if !ok || !w.Reaches(c) || !w.Authority().Cpusets {
		return nil
	}
	changes := Changes(c, want, true)
	if len(changes) == 0 {
		return nil
	}
	w.Touch(c)
	w.Widen(c)
	if _, err := w.Reconciler.Write(changes); err != nil {
		w.Observe(c, knobs.CPUs, knobs.Mems, knobs.Quota)
		return fmt.Errorf("container %s can't be given its CPUs %s: %w", c.Ref, knobs.CPUSet(want.CPUs), err)
	}
	c.Has = want
	return nil
}

// Claim finds, among containers that ran before this connection, those whose CPUs or memory
// nodes Sluice sets: the ones that are assigned less than all.
func (w *Writer) Claim(found []*node.Container) {
	for _, c := range found {
		if want, _ := w.Ledger.Assignment(c.ID); w.Authority().Cpusets && !c.Uncontrolled && (!want.CPUs.IsEmpty() || !want.Mems.IsEmpty()) {
			w.Touch(c)
		}
	}
}

// Changes lists the writes that bring the container's cgroup to an assignment; with all,
// including the values that it has already.
func Changes(c *node.Container, want placement.Assignment, all bool) []knobs.Change {
	var changes []knobs.Change
	set := func(knob knobs.Knob, from, to knobs.Value) {
		changes = append(changes, knobs.Change{Object: c.Object(), Knob: knob, From: from, To: to, Why: want.Why})
	}
	repeat := all && c.Touched
	if want.CPUs != c.Has.CPUs || c.Has.None || repeat || all && !want.CPUs.IsEmpty() {
		set(knobs.CPUs, knobs.CPUSet(c.Has.CPUs), knobs.CPUSet(want.CPUs))
	}
	if want.Mems != c.Has.Mems || all && !want.Mems.IsEmpty() {
		set(knobs.Mems, knobs.CPUSet(c.Has.Mems), knobs.CPUSet(want.Mems))
	}
	switch {
	case want.Unlimited && (!c.Has.Unlimited || all):
		set(knobs.Quota, nil, knobs.UnlimitedQuota())
	case c.Has.Unlimited && !want.Unlimited && c.Quota.Quota > 0:
		set(knobs.Quota, knobs.UnlimitedQuota(), c.Quota)
	}
	return changes
}
