package agent

import (
	"github.com/sluice-dev/sluice/pkg/engine/controlloop"
	"github.com/sluice-dev/sluice/pkg/engine/cpusets"
	"github.com/sluice-dev/sluice/pkg/engine/disks"
	"github.com/sluice-dev/sluice/pkg/engine/groups"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/newidle"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/nodestatus"
	"github.com/sluice-dev/sluice/pkg/engine/podsettings"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/engine/runtimerecord"
	"github.com/sluice-dev/sluice/pkg/engine/steering"
	"github.com/sluice-dev/sluice/pkg/engine/watermarks"
	"github.com/sluice-dev/sluice/pkg/kernel/procfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// load opens the journal. A line that is lost or corrupt costs only its own value.
func (a *Agent) load() {
	j, err := journal.Open(a.options.Originals, procfs.BootID(a.Host))
	if err != nil {
		a.Log.WithError(err).Warn("Original values not read in full: what an earlier run changed may not be given back")
	}
	a.Journal = j
	a.Reconciler = a.newReconciler()
	if a.options.Formerly != "" && a.options.Formerly != a.options.Originals {
		if err := j.TakeOver(a.options.Formerly); err != nil {
			a.Log.WithError(err).Warn("Original values of an earlier version not taken over in full: what it changed may not be given back")
		}
	}
	if a.Kernel != nil {
		reconcile.AfterCrash(a.Kernel, j)
		reconcile.AfterFailsafe(a.Kernel, j, a.options.FailsafePlan)
	}
	a.steering = steering.New(a.options.Affinities, j, func(work, then func()) { a.Aside("steer", work, then) }, a.Log)
	a.watermarks = watermarks.New(a.options.Watermarks, j, a.Log)
	a.newidle = newidle.New(a.options.Newidle, j, a.Log)
	a.disks = disks.New(a.options.Disks, a.options.NoDisks, j, func(work, then func()) { a.Aside("disks", work, then) }, a.weighDisks, a.Log)
	a.groups = groups.New(a.Node, a.options.Cores, a.options.Priorities, a.options.RDT, a.options.NoRDT)
	a.cpusets = cpusets.New(a.Node)
	a.podsettings = podsettings.New(a.Node, a.groups.Lacks, a.options.Memory.Reclaim == nil)
	a.record = runtimerecord.New(a.Node, a.cpusets, a.podsettings, a.groups)
	a.loop = controlloop.New(a.ctx, a.Node, controlloop.Parts{
		CPUSets: a.cpusets, Settings: a.podsettings, Groups: a.groups, Record: a.record, Decisions: a.decisions,
	}, a.options.Memory, a.loopOptions())
	a.reporter = nodestatus.New(a.Node, a.sources())
	a.Claims.Restore(a.followClaims)
}

// recall restores what Sluice has recorded of a container that runs already: from an earlier
// connection of this process if there was one, from the journal of the process before
// otherwise.
func (a *Agent) recall(c, before *node.Container) {
	if before != nil {
		c.Touched, c.Quota, c.Drift, c.Contest = before.Touched, before.Quota, before.Drift, before.Contest
		return
	}
	if _, ok := a.Journal.Original(c.Path, knobs.CPUs); ok {
		c.Touched = true
	}
	if quota, ok := a.Journal.Original(c.Path, knobs.Quota); ok {
		c.Quota = quota.(knobs.CPUQuota)
	} else if c.Recorded.Unlimited && a.Reaches(c) { // the runtime's record has Sluice's quota; sluice restore has given the kernel the original
		if have, err := a.Kernel.Read(c.Path, knobs.Quota); err == nil && have.(knobs.CPUQuota).Finite() {
			c.Quota = have.(knobs.CPUQuota)
		}
	}
}

// forgetGone drops the journal's entries of containers that ended while the plugin wasn't
// connected.
func (a *Agent) forgetGone() {
	here := make(map[string]bool, len(a.Order))
	for _, c := range a.Order {
		here[c.Path] = true
	}
	for _, e := range a.Journal.All() {
		if e.Object.Level == knobs.ContainerLevel && !here[e.Object.Path] {
			a.Journal.Forget(e.Object.Path)
		}
	}
}
