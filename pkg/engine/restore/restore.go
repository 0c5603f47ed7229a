// Package restore restores everything that Sluice has written on a node, from the journal, while
// no plugin runs.
package restore

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/sluice-dev/sluice/pkg/engine/disks"
	"github.com/sluice-dev/sluice/pkg/engine/egress"
	"github.com/sluice-dev/sluice/pkg/engine/groups"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/newidle"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/rdtgroup"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/engine/steering"
	"github.com/sluice-dev/sluice/pkg/engine/watermarks"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/network"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Result says what Run has done.
type Result struct {
	Changes []knobs.Change // restored settings
	Newer   []string       // settings that stay as they are, because another program has changed them since; one sentence each
	IRQs    int            // number of restored affinities
	Disks   int            // number of disks that divide their time as before
	Limited int            // pods whose limits on what they send ended
}

// Host is what Run writes to. A nil field is absent on this node.
type Host struct {
	Kernel     node.Kernel
	Affinities steering.Affinities
	Watermarks watermarks.Host
	Newidle    newidle.Host
	Disks      disks.Host
	RDT        rdtgroup.Host
	Cores      interface{ Leave(pids ...int) error }
	Priorities groups.Priorities
	Network    interface {
		Release(keep []network.ID, dry bool) (int, error)
	}
	EgressMark string // file that tells of limits on what pods send; see egress.New
	Online     cpuset.Set
	Managers   []peers.Neighbour // the kubelet's static managers, which now write some of the sets
}

// kubelets reports whether the kubelet now owns a set of CPUs or memory nodes. Its static CPU
// manager writes the CPUs of every container, and its memory manager the memory nodes of
// containers in Guaranteed pods.
func (h *Host) kubelets(e *journal.Entry) bool {
	return slices.ContainsFunc(h.Managers, func(n peers.Neighbour) bool {
		switch n.Kind {
		case peers.CPUManager:
			return e.Knob == knobs.CPUs
		case peers.MemoryManager:
			pod := workload.Pod{CgroupParent: path.Dir(e.Object.Path)}
			return e.Knob == knobs.Mems && pod.QoS() == workload.Guaranteed
		}
		return false
	})
}

// nest makes Kernel.Read include the level below a container's own cgroup where that has no limit although
// Sluice has set one: crun limits the level below alone. It leaves other containers out, which may have
// made a cgroup of their own there, without what Sluice has set above it.
func nest(kernel node.Kernel, j *journal.Journal) {
	limits := func(wrote knobs.Value) bool { return wrote != nil && !cgroupfs.Unlimited(wrote) }
	for _, e := range j.All() {
		if e.Object.Level != knobs.ContainerLevel || !limits(e.Wrote) && !limits(e.Before) {
			continue
		}
		if have, err := kernel.Read(e.Object.Path, e.Knob); err == nil && cgroupfs.Unlimited(have) {
			kernel.Nest(e.Object.Path)
		}
	}
}

// Run restores everything that the journal records. Settings that could not be restored stay in
// the journal, and the error names them. With dry, neither the host nor the journal changes.
func Run(host *Host, j *journal.Journal, dry bool) (r Result, err error) {
	var errs []error
	if host.Kernel != nil {
		nest(host.Kernel, j)
		cgroups, err := reconcile.Restore(host.Kernel, j, host.kubelets, dry)
		r.Changes, r.Newer, errs = cgroups.Changes, cgroups.Newer, []error{err}
	}
	originals, err := steering.Originals(j)
	if err != nil {
		errs = append(errs, fmt.Errorf("the original CPUs of IRQs: %w", err))
	}
	r.IRQs = len(originals)
	costs, err := disks.Originals(j)
	if err != nil {
		errs = append(errs, fmt.Errorf("the original parameters of disks: %w", err))
	}
	r.Disks = len(costs)
	if host.Network != nil {
		if r.Limited, err = egress.Restore(host.Network, host.EgressMark, dry); err != nil {
			errs = append(errs, fmt.Errorf("limits on what pods send: %w", err))
		}
	}
	if dry {
		return r, errors.Join(errs...)
	}
	if host.Affinities != nil && len(originals) > 0 {
		errs = append(errs, steering.Restore(host.Affinities, host.Online, j))
	}
	if host.Watermarks != nil {
		errs = append(errs, watermarks.Restore(host.Watermarks, j))
	}
	if host.Newidle != nil {
		errs = append(errs, newidle.Restore(host.Newidle, j))
	}
	switch {
	case host.Disks != nil:
		errs = append(errs, disks.Restore(host.Disks, j))
	case len(costs) > 0:
		errs = append(errs, errors.New("the original parameters of disks stay on record: io.cost.qos can't be read here"))
	}
	if host.RDT != nil {
		errs = append(errs, rdtgroup.Restore(host.RDT, j))
	}
	if host.Kernel != nil && host.Cores != nil {
		errs = append(errs, groups.RestoreCores(host.Kernel, host.Cores, j))
	}
	if host.Priorities != nil {
		errs = append(errs, groups.RestorePriorities(host.Priorities, j))
	}
	errs = append(errs, j.Flush())
	return r, errors.Join(errs...)
}
