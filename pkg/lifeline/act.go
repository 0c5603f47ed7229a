package lifeline

import (
	"errors"

	"github.com/sluice-dev/sluice/pkg/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/plan"
)

// Kernel reads and writes cgroups: cgroupfs.Driver.
type Kernel interface {
	Read(path string, knob plan.Knob) (plan.Value, error)
	Apply(changes []plan.Change) error
}

// Carry carries a plan out. What the kernel has now decides on the order in which each
// change is safe; cgroups that are gone need nothing, nor do those that have what the
// change is from: the loop has given them back. One refusal stops no other.
func Carry(kernel Kernel, changes []plan.Change) error {
	due := make([]plan.Change, 0, len(changes))
	for _, c := range changes {
		have, err := kernel.Read(c.Object.Path, c.Knob)
		if errors.Is(err, cgroupfs.ErrGone) {
			continue
		}
		if err != nil {
			have = nil
		} else if have == c.From {
			continue
		}
		c.From = have
		due = append(due, c)
	}
	var failed []error
	for _, c := range plan.Order(due) {
		if err := kernel.Apply([]plan.Change{c}); err != nil && !errors.Is(err, cgroupfs.ErrGone) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
