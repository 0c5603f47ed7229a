// Package host opens the parts of a node's kernel that Sluice reads and writes: the cgroups and
// their features, resctrl, the interrupt affinities, the memory watermarks, the scheduler's features and
// io.cost. Any part may be missing; the caller decides what that means.
package host

import (
	"errors"
	"fmt"
	"os"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/iocost"
	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/pkg/kernel/network"
	"github.com/sluice-dev/sluice/pkg/kernel/newidle"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
	"github.com/sluice-dev/sluice/pkg/kernel/watermark"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/synth"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// Host is a node's kernel. A part that could not be opened is nil, and its error says why.
type Host struct {
	Cgroups    *cgroupfs.Driver
	CgroupsErr error // cgroupfs.ErrNoCgroups if there are none

	RDT    *resctrl.Host
	RDTErr error // resctrl.ErrNone if the machine has no RDT

	Affinities    *irq.Host
	AffinitiesErr error

	Watermarks    *watermark.Host
	WatermarksErr error

	Newidle    *newidle.Host
	NewidleErr error

	IOCost    *iocost.Host
	IOCostErr error

	Network    *network.Host
	NetworkErr error
}

// Open opens the kernel of the node whose /sys and /proc are below root.
func Open(root string) *Host {
	h := &Host{}
	h.Cgroups, h.CgroupsErr = cgroupfs.Open(root)
	h.RDT, h.RDTErr = resctrl.Open(root)
	h.Affinities, h.AffinitiesErr = irq.Open(root)
	h.Watermarks, h.WatermarksErr = watermark.Open(root)
	h.Newidle, h.NewidleErr = newidle.Open(root)
	h.Network, h.NetworkErr = network.Open(root)
	if h.IOCostErr = h.CgroupsErr; h.Cgroups != nil {
		h.IOCost, h.IOCostErr = iocost.Open(h.Cgroups, os.DirFS(root))
	}
	return h
}

// Close closes all parts. Values that were written stay.
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
	if h.Newidle != nil {
		failed = append(failed, h.Newidle.Close())
	}
	return errors.Join(failed...)
}

// Machine returns the synthetic machine of a description or, without a description, the machine
// below a host's root.
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
