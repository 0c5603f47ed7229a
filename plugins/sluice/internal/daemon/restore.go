package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/notices"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/engine/restore"
	"github.com/sluice-dev/sluice/pkg/engine/runtimerecord"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/coresched"
	"github.com/sluice-dev/sluice/pkg/kernel/ioprio"
	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/host"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// Restore restores what the plugin with its journal in these folders has changed on the node
// whose /sys and /proc are below hostRoot. It waits up to wait for that plugin to end. With dry
// it neither waits nor changes anything. It returns a report also with an error, except if the
// plugin runs.
func Restore(ctx context.Context, at statedir.Dirs, hostRoot string, dry bool, wait time.Duration) (*status.Restored, error) {
	if !dry {
		unlock, err := statedir.Lock(ctx, at.State, wait)
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	r, err := giveBack(ctx, at, hostRoot, dry)
	if err != nil {
		err = fmt.Errorf("not all could be given back: %w; it stays on record: run it again", err)
	}
	report := &status.Restored{DryRun: dry, Changes: []status.Returned{}, IRQs: r.IRQs, Disks: r.Disks, Limited: r.Limited, LeftAlone: append([]string{}, r.Newer...)}
	for _, c := range r.Changes {
		from := "unknown"
		if c.From != nil {
			from = c.From.String()
		}
		report.Changes = append(report.Changes, status.Returned{Where: c.Object.Name, Knob: c.Knob.String(), From: from, To: c.To.String()})
	}
	return report, err
}

func giveBack(ctx context.Context, at statedir.Dirs, hostRoot string, dry bool) (r restore.Result, err error) {
	node := os.DirFS(hostRoot)
	plan := at.FailsafePlan(procfs.BootID(node))
	if !dry {
		if err := at.ForgetFailsafe(); err != nil {
			return r, fmt.Errorf("the failsafe of the plugin that was stopped would undo what is given back: %w", err)
		}
	}
	j, bad := at.Journal(procfs.BootID(node), dry)
	defer func() {
		if !dry {
			err = errors.Join(err, j.Close())
		}
		err = errors.Join(bad, err)
	}()
	if !dry {
		if err := runtimerecord.Settle(ctx, j); err != nil {
			return r, fmt.Errorf("waiting for the runtime to make the last update of the plugin that was killed: %w", err)
		}
	}
	machine, err := sysfs.Read(node)
	if err != nil {
		return r, fmt.Errorf("reading the machine below %s: %w", hostRoot, err)
	}
	h := host.Open(hostRoot)
	defer h.Close() //nolint:errcheck // all writes have reached the kernel
	if err := errors.Join(h.AffinitiesErr, h.WatermarksErr, h.NewidleErr, unless(h.CgroupsErr, cgroupfs.ErrNoCgroups), unless(h.RDTErr, resctrl.ErrNone)); err != nil {
		return r, err
	}
	all := restore.Host{Online: machine.Online, Cores: coresched.New(), Affinities: h.Affinities, Watermarks: h.Watermarks, Newidle: h.Newidle}
	if h.Cgroups != nil {
		all.Kernel, all.Priorities = h.Cgroups, ioprio.New(h.Cgroups.AllThreads)
	}
	if h.IOCost != nil {
		all.Disks = h.IOCost
	}
	var limited error
	if h.Network != nil {
		all.Network, all.EgressMark = h.Network, at.EgressMark()
	} else if _, none := os.Stat(at.EgressMark()); none == nil {
		limited = fmt.Errorf("limits on what pods send stay: %w", h.NetworkErr)
	}
	if h.RDT != nil {
		all.RDT = h.RDT
	}
	var unknown error
	if all.Managers, unknown = peers.Managers(node); unknown != nil { // there can be both an error and managers
		all.Managers = []peers.Neighbour{{Kind: peers.CPUManager}, {Kind: peers.MemoryManager}}
	}
	if all.Kernel != nil {
		reconcile.AfterFailsafe(h.Cgroups, j, plan)
	}
	r, err = restore.Run(&all, j, dry)
	if !dry {
		err = errors.Join(err, notices.RemoveAll(at.Runtime))
	}
	return r, errors.Join(err, unknown, limited)
}

// unless returns err, or nil if err is the expected error.
func unless(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
