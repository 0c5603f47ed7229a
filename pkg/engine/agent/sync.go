package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/podsettings"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Synchronize rebuilds the ledger from what the runtime and the kernel report. A pin stays on
// the CPUs that the kernel reports if they are valid. Pins that were created while the plugin
// wasn't connected are placed now, after all other containers have left their CPUs.
//
// Once it has begun it stays in force even if nobody reads the answer: it is what the runtime
// and the kernel have.
func (a *Agent) Synchronize(ctx context.Context, pods []*workload.Pod, specs []workload.Container) (updates []node.Update, err error) {
	err = a.events.DoWithin(ctx, "Synchronize", func() error {
		before, done := a.beforeSync(), false
		defer func() {
			if !done {
				a.restore(before)
			}
		}()
		a.Grants.Refresh(node.GrantWaitAll)
		ledger, known := a.Ledger, a.Containers
		a.Ledger = ledger.WithoutContainers()
		a.Inventory = node.NewInventory(len(specs), len(pods), a.Changes)
		undo := a.record.Synchronize()
		defer func() {
			if !done {
				undo()
			}
		}()
		byID := make(map[string]*workload.Pod, len(pods))
		for _, p := range pods {
			byID[p.ID] = p
		}
		slices.SortStableFunc(specs, func(x, y workload.Container) int {
			return cmp.Or(cmp.Compare(x.CreatedNanos, y.CreatedNanos), cmp.Compare(x.ID, y.ID))
		})
		for i := range specs {
			if pod := byID[specs[i].PodID]; pod != nil && specs[i].State != workload.Stopped {
				c := a.found(pod, specs[i], known[specs[i].ID])
				if h, ok := ledger.Holder(c.ID); ok && !c.Started && !h.CPUs.IsEmpty() {
					c.Has.CPUs = h.CPUs // the grant is newer than the container's spec
				}
			}
		}
		a.Ledger.DivideOnce(func() {
			a.Ledger.SetExternal(a.External())
			a.FindBarred()
			a.adopt(a.Order)
		})
		a.cpusets.Claim(a.Order)
		a.forgetGone()
		a.keepNotices(pods)
		a.loop.Inherit()
		a.Post("tune", func() {
			a.podsettings.ReconcileAll(a.loop.Memory.Owns)
			a.cpusets.LiftAll() // after the settings of pods that shared CPUs before
			if a.options.Failsafe != nil && a.Authority().Writes {
				a.loop.WriteFailsafePlan() // the plan of an earlier run has limits that a resize may change before the loop steps
			}
			a.groups.Synchronized()
		})
		a.Synced = true
		for _, c := range a.Order {
			a.cpusets.Widen(c)
		}
		a.completePins()
		a.cpusets.TryApply()
		a.cpusets.RejoinUntil = a.Now().Add(2 * a.Config.DriftInterval) // CPUs may have gone offline while the plugin wasn't connected
		done = true
		updates = a.record.Updates("")
		a.noteChange()
		a.Log.WithField("containers", len(a.Order)).WithField("pinned", a.Ledger.Pinned().String()).Info("Plugin synchronized with the runtime")
		return a.unread(ctx, "Synchronize", nil)
	})
	return updates, err
}

// beforeSync is a copy of the state that Synchronize rebuilds, to restore if it fails.
type beforeSync struct {
	ledger    *placement.Ledger
	inventory node.Inventory
	synced    bool
	inherited bool
	settings  podsettings.Saved
}

func (a *Agent) beforeSync() beforeSync {
	return beforeSync{
		a.Ledger, a.Inventory, a.Synced, a.loop.Inherited, a.podsettings.Save(),
	}
}

func (a *Agent) restore(i beforeSync) {
	changes := a.Changes
	a.Ledger, a.Inventory = i.ledger, i.inventory
	a.Changes = changes + 1
	a.Synced = i.synced
	a.loop.Inherited = i.inherited
	a.podsettings.Restore(i.settings)
}

// found tracks a container that existed before this connection, with what the runtime's record
// contains about it.
func (a *Agent) found(pod *workload.Pod, spec workload.Container, before *node.Container) *node.Container {
	spec.Unified = nil // Sluice's values in it can't be distinguished from the kubelet's
	c := a.Track(pod, spec)
	c.Made = true
	if c.Started && a.Reaches(c) {
		a.Kernel.Nest(c.Path)
	}
	a.record.Found(c)
	c.Has = placement.Assignment{CPUs: a.cpusets.NotAll(c.Recorded.CPUs), Mems: c.Recorded.Mems, Unlimited: c.Recorded.Unlimited}
	a.recall(c, before)
	if before != nil {
		c.OOMScoreAdj, c.Scored = before.OOMScoreAdj, before.Scored
	} else {
		c.Scored = true
	}
	return c
}

// finding is a container that existed before this connection, with its request and its cgroup's
// CPUs.
type finding struct {
	*node.Container
	request workload.Request
	refused error // why it gets no CPUs of its own although it requests them
}

// adopt enters the found containers into the ledger: first pins that run on valid CPUs, then
// all that share CPUs, then pins that need CPUs. A container that has not started has only the
// CPUs of its spec, which may belong to another pin by now. So it comes last; if it can't be
// given CPUs, its start tries again, and fails if that fails.
func (a *Agent) adopt(found []*node.Container) {
	now := a.Now()
	all := a.findings(found)
	var unplaced []*finding
	for _, f := range all {
		// A lifted quota distinguishes CPUs of its own from a shared set of the same size.
		stays := f.Started && f.Has.Unlimited && a.MayPin(f.Container, f.request) == nil
		if !f.request.Class.Pinned() || stays && a.Ledger.Adopt(f.Identity(), f.request, f.Has.CPUs, f.Has.Mems, now) {
			continue
		}
		unplaced = append(unplaced, f)
	}
	for _, f := range all {
		if !f.request.Class.Pinned() {
			a.Ledger.Adopt(f.Identity(), f.request, f.Has.CPUs, f.Has.Mems, now)
		}
	}
	for _, f := range unplaced {
		if f.refused = a.placeFound(f, now); f.refused != nil {
			a.Log.WithField("container", f.Ref).WithError(f.refused).Warn("Pin found without CPUs of its own, and none can be given: it shares if it runs")
		}
	}
	for _, f := range unplaced {
		if f.refused != nil && f.Started {
			a.Ledger.PlaceShared(f.Identity(), f.request, f.refused.Error(), now)
		}
	}
	for _, f := range all {
		if f.Started {
			a.Ledger.Hold(f.ID, now)
			a.Ledger.KeepMemory(f.ID, f.Has.Mems)
		}
	}
}

// placeFound gives CPUs to a pin that has none of its own: those that it runs on if they are
// free.
func (a *Agent) placeFound(f *finding, now time.Time) error {
	if err := a.MayPin(f.Container, f.request); err != nil {
		return err
	}
	since := f.since(now)
	if f.Has.CPUs.Size() == f.request.CPUs && a.Ledger.Adopt(f.Identity(), f.request, f.Has.CPUs, f.Has.Mems, since) {
		return nil
	}
	_, err := a.Ledger.Place(f.Identity(), f.request, a.record.InFlight(f.ID), since)
	return err
}

// since is when a container's grant began. One that has not started has waited since it was created: the
// runtime lists a container without end whose start has failed in a crash.
func (f *finding) since(now time.Time) time.Time {
	if made := time.Unix(0, f.CreatedNanos); !f.Started && f.CreatedNanos > 0 && made.Before(now) {
		return made
	}
	return now
}

// findings reads the found containers' requests and their cgroups' CPUs, and lists running
// containers first. On a node without pins and sized pools it reads no cgroups: there is
// nothing to compare, and there may be thousands.
func (a *Agent) findings(found []*node.Container) []*finding {
	all := make([]*finding, len(found))
	divided := a.Ledger.Divided()
	for i, c := range found {
		r, err := a.Request(a.Config, c)
		if err != nil {
			a.Log.WithField("container", c.Ref).WithError(err).Warn("Container runs already with a request that would be refused: it shares")
			c.Warnings = append(c.Warnings, err.Error())
			r = a.Sharing(c)
		}
		all[i] = &finding{Container: c, request: r}
		divided = divided || r.Class.Pinned()
	}
	for _, f := range all {
		switch {
		case !a.Reaches(f.Container):
		case f.request.Class.Pinned(), f.request.MemoryNodes.Policy != workload.MemoryDefault, f.request.NUMA != workload.NUMADefault:
			a.cpusets.Observe(f.Container, knobs.CPUs, knobs.Mems, knobs.Quota)
		case divided, f.Touched, !f.Recorded.CPUs.IsEmpty():
			a.cpusets.Observe(f.Container, knobs.CPUs)
		}
	}
	running := slices.DeleteFunc(slices.Clone(all), func(f *finding) bool { return !f.Started })
	return append(running, slices.DeleteFunc(all, func(f *finding) bool { return f.Started })...)
}
