// Package host opens what Sluice reads and writes of a node's kernel: its cgroups with the
// features that they have, resctrl, the affinities of interrupts and the watermarks of
// memory. Each part may be missing; the caller decides what that means.
package host

import (
	"errors"
	"fmt"
	"os"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
	"github.com/sluice-dev/sluice/pkg/kernel/watermark"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/synth"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// Host is a node's kernel. A part that could not be opened is nil, and its error says why.
type Host struct {
	Cgroups    *cgroupfs.Driver
	CgroupsErr error // cgroupfs.ErrNoCgroups where there are none

	RDT    *resctrl.Host
	RDTErr error // resctrl.ErrNone where the machine has none

	Affinities    *irq.Host
	AffinitiesErr error

	Watermarks    *watermark.Host
	WatermarksErr error
}

// Open opens the kernel of the node whose /sys and /proc are below root.
func Open(root string) *Host {
	h := &Host{}
	h.Cgroups, h.CgroupsErr = cgroupfs.Open(root)
	h.RDT, h.RDTErr = resctrl.Open(root)
	h.Affinities, h.AffinitiesErr = irq.Open(root)
	h.Watermarks, h.WatermarksErr = watermark.Open(root)
	return h
}

// Close closes all parts. What was written stays.
func (h *Host) Close() error {
	var failed []error
	if h.Cgroups != nil {
		failed = append(failed, h.Cgroups.Close())
	}
	if h.RDT != nil {
		failed = append(failed, h.RDT.Close())
	}
	if h.Affinities != nil {
		failed = append(failed, h.Affinities.Close())
	}
	if h.Watermarks != nil {
		failed = append(failed, h.Watermarks.Close())
	}
	return errors.Join(failed...)
}

// Machine is the made-up machine of a description, else the one below a host's root.
func Machine(root, description string) (*topology.Machine, error) {
	if description != "" {
		return synth.Machine(description)
	}
	machine, err := sysfs.Read(os.DirFS(root))
	if err != nil {
		return nil, fmt.Errorf("the machine below %s can't be read: %w", root, err)
	}
	return machine, nil
}
