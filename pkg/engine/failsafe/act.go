package failsafe

import (
	"errors"
	"os"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Kernel reads and writes cgroups: cgroupfs.Driver.
type Kernel interface {
	Read(path string, knob knobs.Knob) (knobs.Value, error)
	Apply(changes []knobs.Change) error
}

// Carry carries a plan out. What the kernel has now decides on the order in which each
// change is safe; cgroups that are gone need nothing, nor do those that have what the
// change is from: the loop has given them back. One refusal stops no other.
func Carry(kernel Kernel, changes []knobs.Change) error {
	due := make([]knobs.Change, 0, len(changes))
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
	for _, c := range knobs.Order(due) {
		if err := kernel.Apply([]knobs.Change{c}); err != nil && !errors.Is(err, cgroupfs.ErrGone) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// Act carries out the plan of this boot that is in a folder, on the node whose /sys and
// /proc are below hostRoot, and leaves word of it for the plugin.
func Act(dir, hostRoot, why string) (Acted, error) {
	changes, err := Load(dir, procfs.BootID(os.DirFS(hostRoot)))
	if len(changes) == 0 && err == nil {
		return Acted{Time: time.Now(), Why: why}, nil
	}
	if len(changes) > 0 {
		err = errors.Join(err, carryOn(hostRoot, changes))
	}
	acted := Acted{Time: time.Now(), Why: why, Changes: len(changes)}
	if err != nil {
		acted.Problem = err.Error()
	}
	return acted, errors.Join(err, Note(dir, acted))
}

func carryOn(hostRoot string, changes []knobs.Change) error {
	driver, err := cgroupfs.Open(hostRoot)
	if err != nil {
		return err
	}
	defer driver.Close() //nolint:errcheck // it was only written, value by value
	return Carry(driver, changes)
}
