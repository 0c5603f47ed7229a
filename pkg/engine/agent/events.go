package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// CreateContainer decides what a new container gets. When it returns, the kernel has moved the
// other containers off the new one's CPUs; updates lists those that only the runtime can move.
// On an error the container is not created, and the ledger is as it was before. That includes
// the end of the context, after which nobody reads the answer.
func (a *Agent) CreateContainer(ctx context.Context, pod *workload.Pod, spec workload.Container) (reply node.Adjustment, updates []node.Update, err error) {
	err = a.events.DoWithin(ctx, "CreateContainer", func() error {
		a.noteChange()
		a.Ledger.Release(spec.ID)
		c := a.Track(pod, spec)
		if !a.KnowsBarred() {
			a.FindBarred()
		}
		a.podsettings.MakeRoom(c)
		a.AwaitGrant(c)
		placed := false
		defer func() {
			if !placed {
				a.release(c.ID)
				a.Counters.Refused++
			}
		}()
		err := a.admit(c)
		if err == nil {
			err = a.record.Prepare(c)
		}
		if err != nil {
			a.Log.WithField("container", c.Ref).WithError(err).Warn("Container refused")
			return c.Failed("", err)
		}
		placed = true
		if a.Authority().Writes {
			a.cpusets.Widen(c) // before the runtime makes the cgroup: it could not have CPUs that those above lack
			reply = a.record.Adjustment(c)
			reply.Notices = a.noticesOf(c)
			if (reply.Settings != node.Settings{Carried: c.Carried}) {
				a.cpusets.Touch(c)
			}
			if !a.Reconciler.Save() {
				a.record.Withhold(c, &reply.Settings)
			}
		}
		a.podsettings.ReweighNow()
		a.podsettings.Reconcile(c.Pod)
		updates = a.record.Updates(c.ID)
		if err := a.unread(ctx, "CreateContainer", c); err != nil {
			a.stopped(c.ID)
			return err
		}
		return nil
	})
	return reply, updates, err
}

// admit enters the container into the ledger and moves others off its CPUs. In preview it
// refuses no container: one that would be refused shares CPUs.
func (a *Agent) admit(c *node.Container) error {
	r, err := a.Request(a.Config, c)
	if err != nil {
		r = a.Sharing(c)
	} else {
		if err = errors.Join(a.MayPin(c, r), a.loop.MayStart(c, &r)); err == nil {
			err = a.place(c, r)
		}
		if a.Authority().Writes {
			a.loop.Admitted(c, &r, err)
		}
	}
	if err == nil || a.Authority().Writes {
		return err
	}
	a.Log.WithField("container", c.Ref).WithError(err).Warn("Container would be refused (preview)")
	c.Warnings = append(c.Warnings, err.Error())
	a.Ledger.PlaceShared(c.Identity(), r, err.Error(), a.Now())
	return nil
}

func (a *Agent) place(c *node.Container, r workload.Request) error {
	as, freed, err := a.grant(c, func() (placement.Assignment, error) {
		return a.Ledger.Place(c.Identity(), r, a.record.InFlight(c.ID), a.Now())
	})
	if err != nil {
		return err
	}
	cleared := false
	defer func() {
		if !cleared {
			a.Ledger.Undo()
		}
	}()
	if err := a.cpusets.Evacuate(c); err != nil {
		return err
	}
	cleared = true
	a.dropFreed(freed)
	a.loop.Memory.Reserve(c, &r)
	if a.Authority().Cpusets {
		c.Has = as
	}
	a.Counters.Placed++
	a.Log.WithFields(logrus.Fields{"container": c.Ref, "cpus": as.CPUs.String(), "mems": as.Mems.String(), "why": as.Why}).
		Log(placedLevel(as), "Container placed")
	return nil
}

// placedLevel is the level at which a placement is logged: debug for containers that get no
// CPUs of their own.
func placedLevel(as placement.Assignment) logrus.Level {
	if as.CPUs.IsEmpty() && as.Mems.IsEmpty() {
		return logrus.DebugLevel
	}
	return logrus.InfoLevel
}

// release removes a container from the ledger and gives its CPUs to the others.
func (a *Agent) release(id string) {
	c := a.Containers[id]
	a.Ledger.Release(id)
	a.Forget(id)
	if c != nil {
		a.groups.Leave(c)
	}
	a.completePins()
	a.cpusets.TryApply()
}

// completePins gives pins that lack CPUs the missing ones, where those are free now and all
// other containers can be moved off them.
func (a *Agent) completePins() {
	for _, id := range a.Ledger.ShortPins() {
		c := a.Containers[id]
		h, _ := a.Ledger.Holder(id)
		if c == nil || a.MayPin(c, h.Request) != nil || !a.Ledger.Mend(id, a.record.InFlight(id)) {
			continue
		}
		err := a.cpusets.Evacuate(c)
		if err == nil {
			err = a.cpusets.Assert(c)
		}
		if err != nil {
			a.Ledger.Undo()
		}
		a.Ledger.EndMove(id)
		a.cpusets.TryApply()
	}
}

// followClaims lets all containers follow the ledger after a claim was reserved or freed.
func (a *Agent) followClaims() {
	if a.Synced { // before that, no container is known
		a.completePins()
		a.cpusets.TryApply()
		a.cpusets.LiftAll()
	}
	a.noteChange()
}

// grant lets the ledger decide. Where CPUs are short, it releases the abandoned grants and lets
// the ledger decide once more. The caller passes the released grants to dropFreed once it has
// carried out the decision; until then the ledger's Undo restores them.
func (a *Agent) grant(next *node.Container, decide func() (placement.Assignment, error)) (as placement.Assignment, freed []string, err error) {
	as, err = decide()
	if !placement.IsShortage(err) {
		return as, nil, err
	}
	if freed = a.abandoned(next); len(freed) == 0 {
		return as, nil, err
	}
	as, err = a.Ledger.Without(freed, decide)
	return as, freed, err
}

// abandoned lists the grants, other than next's own, whose container ended or was never started
// without an event from the runtime.
func (a *Agent) abandoned(next *node.Container) []string {
	ids := a.Ledger.Stale(next.Identity(), a.Now(), a.Config.ReserveTimeout)
	for _, c := range a.Order {
		if c != next && (a.ended(c) || a.neverMade(c)) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// ended reports whether all processes of a container that takes room from others have exited.
func (a *Agent) ended(c *node.Container) bool {
	h, ok := a.Ledger.Holder(c.ID)
	if !ok || !h.TakesRoom() || !c.Started || a.Kernel == nil || c.Path == "" {
		return false
	}
	populated, err := a.Kernel.Populated(c.Path)
	return err == nil && !populated
}

// hasProcesses reports whether processes are in a container's cgroup, or may be.
func (a *Agent) hasProcesses(c *node.Container) bool {
	if !a.Reaches(c) {
		return false
	}
	populated, err := a.Kernel.Populated(c.Path)
	return populated || err != nil
}

// makeTime is how long a runtime may take between CreateContainer and PostCreateContainer, or
// until the container's cgroup exists.
const makeTime = 5 * time.Second

// neverMade reports whether the runtime seems to have failed to make a container that was
// granted CPUs of its own, or room on a NUMA node. CRI-O sends no event for that: neither StopContainer nor
// RemoveContainer.
func (a *Agent) neverMade(c *node.Container) bool {
	h, ok := a.Ledger.Holder(c.ID)
	if !ok || !h.TakesRoom() || c.Made || c.Started || !a.Reaches(c) || a.Now().Sub(h.Since) < makeTime {
		return false
	}
	_, err := a.Kernel.Read(c.Path, knobs.CPUs)
	return errors.Is(err, cgroupfs.ErrGone)
}

// PostCreateContainer records that the runtime has made a container.
func (a *Agent) PostCreateContainer(id string) error {
	return a.events.Do("PostCreateContainer", func() error {
		if c, ok := a.Containers[id]; ok {
			c.Made = true
		}
		return nil
	})
}

// dropFreed marks containers whose grants the ledger has released as unplaced: one that starts
// after all is placed again.
func (a *Agent) dropFreed(ids []string) {
	for _, id := range ids {
		a.Changed()
		if c, ok := a.Containers[id]; ok {
			c.Has = placement.Assignment{}
			a.Log.WithField("container", c.Ref).Info("Grant freed: its container ended or never started")
		}
	}
}

// StartContainer turns the container's reserved grant into a held one and writes all of its
// settings again: its cgroup exists now, and its process waits before the first instruction.
// Where nobody reads the answer, the container may run or not, so its grant stays until the
// runtime reports its end or its cgroup is empty.
func (a *Agent) StartContainer(ctx context.Context, pod *workload.Pod, spec workload.Container) error {
	a.awaitAnswer(ctx, spec.ID)
	return a.events.DoWithin(ctx, "StartContainer", func() error {
		c, ok := a.Containers[spec.ID]
		if !ok {
			c = a.Track(pod, spec)
		}
		c.PID = spec.PID
		err := a.start(c)
		c.Ran = true // CRI-O starts it even if Sluice refuses
		if err != nil {
			a.Counters.Refused++
			a.Log.WithField("container", c.Ref).WithError(err).Warn("Container not started")
			a.refuseStart(c, err)
			return c.Failed("", err)
		}
		c.Refused = node.RefusedStart{}
		a.noteChange()
		return a.unread(ctx, "StartContainer", c)
	})
}

func (a *Agent) start(c *node.Container) error {
	c.Started = true
	a.Changed()
	if a.Reaches(c) {
		a.Kernel.Nest(c.Path)
	}
	if _, known := a.Ledger.Holder(c.ID); !known {
		if err := a.admit(c); err != nil {
			return err
		}
		if h, ok := a.Ledger.Holder(c.ID); ok && !h.CPUs.IsEmpty() && a.Authority().Cpusets && !a.Reaches(c) {
			return fmt.Errorf("it has no grant any more, and new CPUs can only be given through the runtime, which takes no updates at a start; the kubelet will create it again")
		}
	}
	a.Ledger.Hold(c.ID, a.Now())
	if err := a.cpusets.Assert(c); err != nil {
		return err
	}
	if err := a.cpusets.ConfirmLeft(c, a.record.InFlight(c.ID)); err != nil {
		return err
	}
	a.cpusets.LiftQuota(c.Pod)
	a.loop.BoundBeforeStart()
	a.loop.Update()
	a.loop.Memory.Start(c.ID)
	a.LifecycleChanges++
	a.podsettings.Reconcile(c.Pod)
	a.groups.Join(c)
	a.cpusets.ReadForeign(c)
	return nil
}

// StopContainer releases the grant of a container that has ended, even if nobody waits for the
// answer any more.
func (a *Agent) StopContainer(ctx context.Context, id string) (updates []node.Update, err error) {
	err = a.events.Do("StopContainer", func() error {
		a.stopped(id)
		updates = a.record.Updates("")
		return a.unread(ctx, "StopContainer", nil)
	})
	return updates, err
}

// RemoveContainer releases what StopContainer has not: it may be the only event of a container
// whose creation failed.
func (a *Agent) RemoveContainer(id string) error {
	return a.events.Do("RemoveContainer", func() error {
		a.stopped(id)
		return nil
	})
}

func (a *Agent) stopped(id string) {
	c, ok := a.Containers[id]
	if h, placed := a.Ledger.Holder(id); ok && placed && c.Started {
		a.loop.Memory.Ended(h.Request.Class)
	}
	a.release(id)
	if ok {
		a.LifecycleChanges++
		a.podsettings.Unclaim(c)
		a.cpusets.LiftQuota(c.Pod)
		a.podsettings.Reconcile(c.Pod)
	}
	a.noteChange()
}

// RemovePod forgets a pod and its remaining containers.
func (a *Agent) RemovePod(podID, uid string) error {
	return a.events.Do("RemovePodSandbox", func() error {
		var left []string
		for _, c := range a.Order {
			if c.PodID == podID {
				left = append(left, c.ID)
			}
		}
		for _, id := range left {
			a.stopped(id)
		}
		a.endNotices(uid)
		return nil
	})
}
