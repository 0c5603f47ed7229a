package reconcile

import "github.com/sluice-dev/sluice/pkg/knobs"

// Kernel reads and writes cgroups; see pkg/kernel/cgroupfs.
type Kernel interface {
	Apply(changes []knobs.Change) error
	Read(path string, knob knobs.Knob) (knobs.Value, error)
	// Same reports whether have is how the kernel shows the written value want, which it may
	// round.
	Same(knob knobs.Knob, want, have knobs.Value) bool
}

// Key identifies one knob of one cgroup.
type Key struct {
	Path string
	Knob knobs.Knob
}

// KeyOf is the key of the knob that a change writes.
func KeyOf(c *knobs.Change) Key { return Key{c.Object.Path, c.Knob} }

// Failures are the changes that the kernel refused, with the reasons.
type Failures map[Key]error

// In reports whether the kernel refused a change of that cgroup.
func (f Failures) In(path string) bool {
	for at := range f {
		if at.Path == path {
			return true
		}
	}
	return false
}
