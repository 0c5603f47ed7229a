package failsafe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/egress"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Kernel reads and writes cgroups; cgroupfs.Driver implements it.
type Kernel interface {
	Read(path string, knob knobs.Knob) (knobs.Value, error)
	Nest(path string)
	Apply(changes []knobs.Change) error
}

// Carry carries out a plan. It orders the writes by the kernel's present values, so that each
// is safe. It skips cgroups that are gone, and knobs that already have the value from before
// the loop, which the loop has restored. After a refusal it continues with the other changes.
func Carry(kernel Kernel, changes []knobs.Change) error {
	due := make([]knobs.Change, 0, len(changes))
	for _, c := range changes {
		have, err := kernel.Read(c.Object.Path, c.Knob)
		if err == nil && c.Object.Level == knobs.ContainerLevel && cgroupfs.Unlimited(have) {
			kernel.Nest(c.Object.Path) // crun may have put the limit on the level below alone
			have, err = kernel.Read(c.Object.Path, c.Knob)
		}
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

// Act carries out the plan of this boot in the directory dir, on the node whose /sys and /proc
// are below hostRoot, lowers what batch work sends, and leaves a report for the plugin; see Note.
func Act(dir, hostRoot, why string) (Report, error) {
	changes, err := Load(dir, procfs.BootID(os.DirFS(hostRoot)))
	if len(changes) > 0 {
		err = errors.Join(err, carryOn(hostRoot, changes))
	}
	pods, refused := egress.Lower(hostRoot, filepath.Join(dir, egress.MarkFile))
	if refused != nil {
		err = errors.Join(err, fmt.Errorf("lowering what batch work sends: %w", refused))
	}
	acted := Report{Time: time.Now(), Why: why, Changes: len(changes) + pods}
	if acted.Changes == 0 && err == nil {
		return acted, nil
	}
	if err != nil {
		acted.Problem = err.Error()
	}
	return acted, errors.Join(err, SaveReport(dir, acted))
}

func carryOn(hostRoot string, changes []knobs.Change) error {
	driver, err := cgroupfs.Open(hostRoot)
	if err != nil {
		return err
	}
	defer driver.Close() //nolint:errcheck // each value was written at once, so closing loses nothing
	return Carry(driver, changes)
}
