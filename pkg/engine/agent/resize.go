package agent

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/podsettings"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// UpdateContainer answers a change of the container's resources with the updates that the
// runtime must make. A resize that can't be granted, or whose answer nobody reads, fails, and
// the old grant stays in force.
func (a *Agent) UpdateContainer(ctx context.Context, pod *workload.Pod, spec workload.Container, change workload.Resources) (updates []node.Update, err error) {
	err = a.events.DoWithin(ctx, "UpdateContainer", func() error {
		c, ok := a.Containers[spec.ID]
		if !ok {
			c = a.found(pod, spec, nil)
			a.adopt([]*node.Container{c})
			a.cpusets.Claim([]*node.Container{c})
		}
		a.cpusets.AwaitResize(pod, podsettings.ResizeTime)
		if err := a.resize(ctx, c, change); err != nil {
			if ctx.Err() != nil {
				return err
			}
			a.refuseResize(c, change, err)
			if a.Authority().Writes {
				return c.Failed("resize of ", err)
			}
		} else if change.Shares != 0 || change.Quota != 0 || change.MemoryLimit != 0 {
			c.Unresized = node.RefusedResize{}
		}
		a.podsettings.Suspend(c.Pod, true)
		updates = append(a.record.Updates(c.ID), a.ownUpdate(c)...)
		a.noteChange()
		return a.unread(ctx, "UpdateContainer", c)
	})
	return updates, err
}

// refusalLogInterval is how often the refusal of the same resize is logged while the kubelet
// repeats its request, which it does every half second.
const refusalLogInterval = time.Hour

// refuseResize counts and logs a refused resize, once for all attempts at the same resize.
func (a *Agent) refuseResize(c *node.Container, change workload.Resources, err error) {
	last, now := &c.Unresized, a.Now()
	same := last.Change == change && last.Answer == err.Error()
	if same && now.Sub(last.LoggedAt) < refusalLogInterval {
		last.Repeats++
		return
	}
	log := a.Log.WithField("container", c.Ref).WithError(err)
	if same {
		log = log.WithField("attempts", last.Repeats+1)
	} else {
		a.Counters.ResizesRefused++
	}
	*last = node.RefusedResize{Change: change, Answer: err.Error(), LoggedAt: now}
	log.Warn("Resize refused, the old grant stands; further attempts of the kubelet at the same resize are logged once an hour")
}

// resize updates the ledger, and then the other containers, to the container's new resources.
// On an error the ledger is as it was before.
func (a *Agent) resize(ctx context.Context, c *node.Container, change workload.Resources) error {
	h, ok := a.Ledger.Holder(c.ID)
	if !ok || change.Shares == 0 && change.Quota == 0 && change.MemoryLimit == 0 {
		return nil
	}
	a.Grants.Refresh(node.GrantWait) // the kubelet has written its record before it sends the resize
	old, done := c.Resources, false
	c.Resources = old.With(change)
	defer func() {
		if !done {
			c.Resources = old
		}
	}()
	as, freed, err := a.regrant(c)
	if err != nil {
		return err
	}
	defer func() {
		if !done {
			a.Ledger.Undo()
			a.cpusets.TryApply()
		}
	}()
	if err := a.carryOut(c, h.CPUs, as); err != nil {
		return err
	}
	if err := a.unread(ctx, "UpdateContainer", c); err != nil {
		return err
	}
	done = true
	a.dropFreed(freed)
	c.KeepQuota()
	if c.Touched {
		a.cpusets.RecordOriginals(c)
	}
	a.completePins() // the CPUs that the container returned may complete another pin
	if c.Resources != old {
		a.Counters.Resized++
	}
	if as.CPUs != h.CPUs && h.Request.Class.Pinned() {
		a.Log.WithFields(logrus.Fields{"container": c.Ref, "from": h.CPUs.String(), "cpus": as.CPUs.String()}).Info("Container resized")
	}
	return nil
}

// carryOut writes a resize to the kernel. A pin that grows waits until the others have left the
// new CPUs; one that shrinks leaves its CPUs before the others get them.
func (a *Agent) carryOut(c *node.Container, from cpuset.Set, as placement.Assignment) error {
	if from.SubsetOf(as.CPUs) {
		if err := a.cpusets.Evacuate(c); err != nil {
			return err
		}
		if err := a.cpusets.Assert(c); err != nil && !as.CPUs.IsEmpty() {
			return err
		}
		return nil
	}
	err := a.cpusets.Apply("")
	if err != nil && a.Reaches(c) && c.Has.CPUs != as.CPUs {
		return err
	}
	return nil
}

func (a *Agent) regrant(c *node.Container) (as placement.Assignment, freed []string, err error) {
	r, err := a.Request(a.Config, c)
	if err != nil {
		return placement.Assignment{}, nil, err
	}
	return a.grant(c, func() (placement.Assignment, error) {
		return a.Ledger.Resize(c.ID, r, a.record.InFlight(c.ID))
	})
}

// ownUpdate is the container's own part of the reply to its update.
func (a *Agent) ownUpdate(c *node.Container) []node.Update {
	want, ok := a.Ledger.Assignment(c.ID)
	if !ok || !a.Authority().Writes {
		return nil
	}
	a.record.Prepare(c) //nolint:errcheck // the features that it requires were present when it was created
	set := a.record.Reply(c, want)
	if (set == node.Settings{}) {
		return nil
	}
	return []node.Update{{ContainerID: c.ID, Settings: set}}
}

// PostUpdateContainer compares the container's cgroup with its settings after the runtime has
// written it, and repairs what differs.
func (a *Agent) PostUpdateContainer(id string) error {
	return a.events.Do("PostUpdateContainer", func() error {
		if c, ok := a.Containers[id]; ok {
			a.record.Made(c)
			a.cpusets.Repair(c, "a runtime update")
			a.cpusets.LiftQuota(c.Pod)
			if c.Scoped() {
				a.podsettings.ExpectRewritten(c)
			}
			a.podsettings.Resume(c.Pod)
		}
		return nil
	})
}

// UpdatePod records a pod's new resources. The kubelet has already written the quota of the
// pod's own cgroup, so UpdatePod lifts it again if Sluice had lifted it before. Updates of the
// pod's containers may follow, so it gives back the settings that could make the kernel refuse
// them until the next pass.
func (a *Agent) UpdatePod(ctx context.Context, podID string, change workload.Resources) error {
	return a.events.DoWithin(ctx, "UpdatePodSandbox", func() error {
		var pod *workload.Pod
		for _, c := range a.Order {
			if c.PodID == podID {
				pod = c.Pod
				pod.Resources = pod.Resources.With(change)
			}
		}
		if pod != nil {
			a.cpusets.AwaitResize(pod, podsettings.ResizeTime)
			a.cpusets.LiftQuota(pod)
			a.podsettings.NoteQuota(pod, change)
			a.podsettings.Suspend(pod, false)
			a.Reconciler.Resume(pod.UID)
			a.podsettings.NoteWeight(pod, knobs.Shares(change.Shares))
		}
		return nil
	})
}
