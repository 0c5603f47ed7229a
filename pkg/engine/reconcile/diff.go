package reconcile

import (
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// facts are all that a decision about one setting of one cgroup depends on.
type facts struct {
	level   knobs.Level
	setting qos.Setting
	have    knobs.Value // in the kernel

	entry journal.Entry // in the journal
	kept  bool          // there is one
	// without is what the cgroup would have without Sluice, where the journal has no entry.
	without knobs.Value
	// carried is what the runtime would set if it didn't set Sluice's value in its place;
	// nil where it sets none.
	carried knobs.Value

	coming    knobs.Value // the value of a write that is under way; nil where none is
	refused   knobs.Value // the value that the kernel refused, and that waits; nil where none does
	expected  bool        // somebody whom Sluice expects to may have written the knob
	failed    bool        // Sluice's last write of it failed
	updating  bool        // the runtime may be writing the container for Sluice
	contested bool        // repairs are delayed

	v2 bool // weights are those of cgroup v2
	// same reports whether the kernel shows have where want was written.
	same func(k knobs.Knob, want, have knobs.Value) bool
}

// action is what is to be done about a setting.
type action int

const (
	wait    action = iota // nothing now
	settled               // nothing: the kernel has it
	foreign               // nothing: it is somebody else's
	write                 // write the wanted value
)

// decision is the answer to facts.
type decision struct {
	action   action
	want     knobs.Value // nil for foreign
	from     knobs.Value // for write: the value before
	original knobs.Value // goes into the journal as the original; nil leaves that as it is
	// keepWeight has the cgroup's weight kept in the journal too: the kernel resets it when
	// idle ends (sched_group_set_idle in kernel/sched/fair.c).
	keepWeight bool
	drift      bool   // for write: somebody else has changed the knob
	reason     string // for foreign
}

// diff decides about one setting. It is pure: the Reconciler carries the decision out.
func diff(f *facts) decision {
	d, wrote := f.originals()
	if d.action == foreign {
		return d
	}
	switch {
	case f.coming != nil && f.coming == d.want:
		return d
	case f.coming != nil:
		d.action, d.from = write, f.coming
		return d
	case f.shows(d.want):
		d.action = settled
		return d
	case f.refused != nil && f.refused == d.want:
		return d
	}
	if wrote != nil && !f.updating && !f.expected && !f.failed && !f.shows(wrote) {
		switch {
		case f.level == knobs.ClassLevel && f.setting.Percent > 0:
			// The kubelet writes the weights of its QoS classes each minute.
			d.renew(f)
		case f.contested:
			return d
		default:
			d.drift = true
			if f.setting.Knob == knobs.Weight && f.level == knobs.PodLevel {
				d.renew(f) // the kubelet has written a newer one
			}
		}
	}
	d.action, d.from = write, f.have
	return d
}

// originals decides what the original is, and from it what is wanted. wrote is what Sluice
// has written since that original; nil where it has written nothing.
func (f *facts) originals() (d decision, wrote knobs.Value) {
	original, knob := f.entry.Value, f.setting.Knob
	wrote = f.entry.Wrote
	switch {
	case !f.kept:
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
	d.keepWeight = knob == knobs.Idle && (!f.kept || f.expected)
	d.want = Target(&f.setting, original, f.v2)
	return d, wrote
}

// shows reports whether the kernel shows the value.
func (f *facts) shows(value knobs.Value) bool { return f.same(f.setting.Knob, value, f.have) }

// renew takes the value in the kernel as the new original.
func (d *decision) renew(f *facts) {
	d.original, d.want = f.have, Target(&f.setting, f.have, f.v2)
}

// owned reports whether a memory protection has another writer: it is not what the kernel
// gives a new cgroup.
func owned(k knobs.Knob, original knobs.Value) bool {
	return k.Deferred() && original != cgroupfs.Describe(k).Default
}

// Target is the value that a cgroup is to have by a setting, where original is what it had
// before Sluice. The setting may be a weight in percent of that.
func Target(s *qos.Setting, original knobs.Value, v2 bool) knobs.Value {
	if s.Percent == 0 && s.Favour == 0 {
		return s.Value
	}
	shares, _ := s.Value.(knobs.Shares)
	if s.Percent > 0 {
		shares, _ = original.(knobs.Shares)
		shares = cgroupfs.Scale(shares, s.Percent, v2)
	}
	if s.Favour > 0 {
		shares = cgroupfs.Scale(shares, s.Favour, v2)
	}
	return shares
}
