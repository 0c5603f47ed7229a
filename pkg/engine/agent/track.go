package agent

import (
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// settings is an assignment as the runtime is told it. A container that once had
// a cpuset is told all CPUs by number: the runtime knows no "as the parent".
func (a *Agent) settings(c *node.Container, as placement.Assignment) node.Settings {
	if c.Uncontrolled {
		return node.Settings{}
	}
	if a.Authority().Foreign {
		return node.Settings{Carried: c.Carried}
	}
	s := node.Settings{CPUs: as.CPUs, Mems: as.Mems, Unlimited: as.Unlimited, Carried: c.Carried}
	if c.Touched && s.CPUs.IsEmpty() {
		s.CPUs = a.Usable()
	}
	if c.Touched && s.Mems.IsEmpty() && !c.Recorded.Mems.IsEmpty() {
		s.Mems = a.Ledger.Machine().MemoryNodes()
	}
	return s
}

// changesOf brings the container's cgroup to want. all repeats what it has already.
func changesOf(c *node.Container, want placement.Assignment, all bool) []knobs.Change {
	var changes []knobs.Change
	set := func(knob knobs.Knob, from, to knobs.Value) {
		changes = append(changes, knobs.Change{Object: c.Object(), Knob: knob, From: from, To: to, Why: want.Why})
	}
	repeat := all && c.Touched
	if want.CPUs != c.Has.CPUs || repeat || all && !want.CPUs.IsEmpty() {
		set(knobs.CPUs, knobs.CPUSet(c.Has.CPUs), knobs.CPUSet(want.CPUs))
	}
	if want.Mems != c.Has.Mems || all && !want.Mems.IsEmpty() {
		set(knobs.Mems, knobs.CPUSet(c.Has.Mems), knobs.CPUSet(want.Mems))
	}
	switch {
	case want.Unlimited && (!c.Has.Unlimited || all):
		set(knobs.Quota, nil, node.Unlimited)
	case c.Has.Unlimited && !want.Unlimited && c.Quota.Quota > 0:
		set(knobs.Quota, node.Unlimited, c.Quota)
	}
	return changes
}
