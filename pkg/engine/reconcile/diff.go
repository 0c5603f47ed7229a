package reconcile

import (
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// facts are the inputs of the decision about one setting of one cgroup.
type facts struct {
	level   knobs.Level
	setting qos.Setting
	have    knobs.Value // the kernel's present value

	entry     journal.Entry // the journal's entry
	journaled bool          // the journal has an entry
	// without is the value that the cgroup would have without Sluice, if the journal has no
	// entry.
	without knobs.Value
	// carried is the value that the runtime would set if it didn't set Sluice's in its place;
	// nil if it sets none.
	carried knobs.Value

	underWay  knobs.Value // the value that a write under way will leave; nil if there is none
	refused   knobs.Value // the value that the kernel refused and that waits to be tried again; nil if there is none
	expected  bool        // a program that Sluice expects to write the knob may have written it
	failed    bool        // Sluice's last write of the knob failed
	updating  bool        // the runtime may be writing the container for Sluice, or has just made it
	contested bool        // repairs are delayed

	v2 bool // weights have the units of cgroup v2
	// same reports whether have is how the kernel shows the written value want.
	same func(k knobs.Knob, want, have knobs.Value) bool
}

// action is what the Reconciler does about a setting.
type action int

const (
	wait     action = iota // do nothing now
	matching               // do nothing: the kernel has the wanted value
	foreign                // do nothing: the knob belongs to another program
	write                  // write the wanted value
)

// decision is the result of diff.
type decision struct {
	action   action
	want     knobs.Value // nil if the action is foreign
	from     knobs.Value // the value before a write
	original knobs.Value // the journal's new original; nil leaves it unchanged
	// journalWeight records the cgroup's weight in the journal too, because the kernel resets
	// the weight when idle ends (sched_group_set_idle in kernel/sched/fair.c).
	journalWeight bool
	drift         bool   // another program changed the knob before this write
	reason        string // why the action is foreign
}

// diff decides what to do about one setting. It is a pure function: the Reconciler carries the
// decision out.
func diff(f *facts) decision {
	d, wrote := f.originals()
	if d.action == foreign {
		return d
	}
	switch {
	case f.underWay != nil && f.underWay == d.want:
		return d
	case f.underWay != nil:
		d.action, d.from = write, f.underWay
		return d
	case f.shows(d.want):
		d.action = matching
		return d
	case f.refused != nil && f.refused == d.want:
		return d
	}
	if wrote != nil && !f.updating && !f.expected && !f.failed && !f.shows(wrote) {
		switch {
		case f.level == knobs.ClassLevel && f.setting.Percent > 0:
			// The kubelet writes the weights of its QoS classes each minute.
			d.adoptOriginal(f)
		case f.contested:
			return d
		default:
			d.drift = true
			if f.setting.Knob == knobs.Weight && f.level == knobs.PodLevel {
				d.adoptOriginal(f) // the kubelet has written a newer one
			}
		}
	}
	d.action, d.from = write, f.have
	return d
}

// originals decides what the original is, and derives the wanted value from it. wrote is what
// Sluice has written since the journal recorded that original; nil if it has written nothing.
func (f *facts) originals() (d decision, wrote knobs.Value) {
	original, knob := f.entry.Value, f.setting.Knob
	wrote = f.entry.Wrote
	switch {
	case !f.journaled:
		original = f.without
		if f.carried != nil {
			original = f.carried
		}
		if owned(knob, original) {
			return decision{action: foreign, reason: "left alone: somebody else has set it to " + original.String() + ", likely the kubelet's MemoryQoS"}, nil
		}
		d.original = original
	case f.carried != nil && f.carried != original: // the container was resized
		d.original = f.carried
	case f.expected && f.carried == nil && knob == knobs.Weight && !f.shows(original) && (wrote == nil || !f.shows(wrote)):
		d.original = f.have
	}
	if d.original != nil {
		original, wrote = d.original, nil
	}
	d.journalWeight = knob == knobs.Idle && (!f.journaled || f.expected)
	d.want = Target(&f.setting, original, f.v2)
	return d, wrote
}

// shows reports whether the kernel shows the value.
func (f *facts) shows(value knobs.Value) bool { return f.same(f.setting.Knob, value, f.have) }

// adoptOriginal makes the kernel's present value the new original.
func (d *decision) adoptOriginal(f *facts) {
	d.original, d.want = f.have, Target(&f.setting, f.have, f.v2)
}

// owned reports whether another program writes a memory protection: its value differs from the
// kernel's default for a new cgroup.
func owned(k knobs.Knob, original knobs.Value) bool {
	return k.Deferred() && original != cgroupfs.Describe(k).Default
}

// Target is the value that a setting gives a cgroup whose value before Sluice was original. A
// setting may be a weight in percent of the original.
func Target(s *qos.Setting, original knobs.Value, v2 bool) knobs.Value {
	if own, limited := original.(knobs.CPUQuota); s.AtMostOriginal && limited && own.Finite() && own.Compare(s.Value.(knobs.CPUQuota)) < 0 {
		return original
	}
	if s.Percent == 0 && s.ScalePercent == 0 {
		return s.Value
	}
	shares, _ := s.Value.(knobs.Shares)
	if s.Percent > 0 {
		shares, _ = original.(knobs.Shares)
		shares = cgroupfs.Scale(shares, s.Percent, v2)
	}
	if s.ScalePercent > 0 {
		shares = cgroupfs.Scale(shares, s.ScalePercent, v2)
	}
	return shares
}
