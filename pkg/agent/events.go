package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/annotation"
	"github.com/sluice-dev/sluice/pkg/policy"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// CreateContainer decides what a new container gets. Other containers have left
// its CPUs, in the kernel, when it returns; updates are for those that can only
// be moved by the runtime. An error fails the container and leaves no trace.
func (a *Agent) CreateContainer(pod *workload.Pod, spec workload.Container) (reply Settings, updates []Update, err error) {
	err = a.do("CreateContainer", func() error {
		a.quiet()
		a.ledger.Release(spec.ID)
		c := a.track(pod, spec)
		placed := false
		defer func() {
			if !placed {
				a.drop(c.ID)
				a.counters.Refused++
			}
		}()
		if err := a.admit(c); err != nil {
			a.Log.WithField("container", c.ref).WithError(err).Warn("Container refused")
			return c.failed("", err)
		}
		placed = true
		if a.writes() {
			reply = a.settings(c, c.has)
			c.recorded = reply
			if (reply != Settings{}) {
				a.touch(c)
			}
		}
		updates = a.updates(c.ID)
		return nil
	})
	return reply, updates, err
}

// failed is an error as the pod's events show it; an invalid value's names its
// container itself.
func (c *container) failed(what string, err error) error {
	if _, ok := errors.AsType[*annotation.Invalid](err); ok {
		return fmt.Errorf("sluice: %s%w", what, err)
	}
	return fmt.Errorf("sluice: %scontainer %s: %w", what, c.ref, err)
}

// admit enters the container into the ledger and makes room for it. In preview
// nothing is refused: what would be shares.
func (a *Agent) admit(c *container) error {
	r, err := a.request(c)
	if err != nil {
		r = a.sharing(c)
	} else if err = a.mayPin(c, r); err == nil {
		err = a.place(c, r)
	}
	if err == nil || a.writes() {
		return err
	}
	a.Log.WithField("container", c.ref).WithError(err).Warn("Container would be refused (preview)")
	c.warnings = append(c.warnings, err.Error())
	a.ledger.PlaceShared(c.identity(), r, err.Error(), time.Now())
	return nil
}

func (a *Agent) place(c *container, r workload.Request) error {
	as, err := a.ledger.Place(c.identity(), r, a.inFlight(c.ID), time.Now())
	if policy.IsShortage(err) && a.reclaim(c) {
		as, err = a.ledger.Place(c.identity(), r, a.inFlight(c.ID), time.Now())
	}
	if err != nil {
		return err
	}
	cleared := false
	defer func() {
		if !cleared {
			a.ledger.Undo()
		}
	}()
	if err := a.evacuate(c); err != nil {
		return err
	}
	cleared = true
	if a.acts() {
		c.has = as
	}
	a.counters.Placed++
	a.Log.WithFields(logrus.Fields{"container": c.ref, "cpus": as.CPUs.String(), "mems": as.Mems.String(), "why": as.Why}).
		Log(placedLevel(as), "Container placed")
	return nil
}

// placedLevel keeps containers that get nothing of their own out of the log.
func placedLevel(as policy.Assignment) logrus.Level {
	if as.CPUs.IsEmpty() && as.Mems.IsEmpty() {
		return logrus.DebugLevel
	}
	return logrus.InfoLevel
}

// drop releases and forgets a container and gives what it held to the others.
func (a *Agent) drop(id string) {
	a.ledger.Release(id)
	a.forget(id)
	a.mend()
	a.settle("") //nolint:errcheck // what failed is in the log and is tried again
}

// mend makes pins whole that lack CPUs, where CPUs are free now and everyone
// leaves them.
func (a *Agent) mend() {
	for _, id := range a.ledger.Lacking() {
		c := a.containers[id]
		h, _ := a.ledger.Holder(id)
		if c == nil || a.mayPin(c, h.Request) != nil || !a.ledger.Mend(id, a.inFlight(id)) {
			continue
		}
		err := a.evacuate(c)
		if err == nil {
			err = a.assert(c)
		}
		if err != nil {
			a.ledger.Undo()
		}
		a.ledger.Left(id)
		a.settle("") //nolint:errcheck // what failed is in the log and is tried again
	}
}

// reclaim frees grants whose container has ended, or never started, without an
// event that said so, where next is to be placed.
func (a *Agent) reclaim(next *container) bool {
	ended := a.ledger.Stale(next.identity(), time.Now(), a.Config.ReserveTimeout)
	for _, c := range a.order {
		if a.ended(c) {
			ended = append(ended, c.ID)
		}
	}
	for _, id := range ended {
		a.free(id)
	}
	return len(ended) > 0
}

// ended reports whether a pin's processes are all gone.
func (a *Agent) ended(c *container) bool {
	h, ok := a.ledger.Holder(c.ID)
	if !ok || h.CPUs.IsEmpty() || !c.started || a.Kernel == nil || c.path == "" {
		return false
	}
	populated, err := a.Kernel.Populated(c.path)
	return err == nil && !populated
}

// free gives a grant back while its container is still known: should it start
// after all, it is placed again.
func (a *Agent) free(id string) {
	c := a.containers[id]
	a.ledger.Release(id)
	if c != nil {
		c.has = policy.Assignment{}
		a.Log.WithField("container", c.ref).Info("Grant freed: its container ended or never started")
	}
}

// StartContainer holds the grant and re-asserts all of it: the cgroup exists now
// and its process waits before the first instruction.
func (a *Agent) StartContainer(pod *workload.Pod, spec workload.Container) error {
	a.awaitAcknowledgement(spec.ID)
	return a.do("StartContainer", func() error {
		c, ok := a.containers[spec.ID]
		if !ok {
			c = a.track(pod, spec)
		}
		started := false
		defer func() {
			if !started {
				a.drop(c.ID)
				a.counters.Refused++
			}
		}()
		if err := a.start(c); err != nil {
			a.Log.WithField("container", c.ref).WithError(err).Warn("Container not started")
			return c.failed("", err)
		}
		started = true
		a.quiet()
		return nil
	})
}

func (a *Agent) start(c *container) error {
	c.started = true
	if _, known := a.ledger.Holder(c.ID); !known {
		if err := a.admit(c); err != nil {
			return err
		}
		if h, ok := a.ledger.Holder(c.ID); ok && !h.CPUs.IsEmpty() && a.acts() && !a.reaches(c) {
			return fmt.Errorf("it has no grant any more, and new CPUs can only be given through the runtime, which takes no updates at a start; the kubelet will create it again")
		}
	}
	a.ledger.Hold(c.ID, time.Now())
	if err := a.assert(c); err != nil {
		return err
	}
	if err := a.evacuated(c); err != nil {
		return err
	}
	a.liftQuota(c.pod.UID)
	return nil
}

// UpdateContainer answers a change of the container's resources with what the
// container is to have then; a resize that can't be granted fails, and the old
// grant stands.
func (a *Agent) UpdateContainer(pod *workload.Pod, spec workload.Container, change workload.Resources) (updates []Update, err error) {
	err = a.do("UpdateContainer", func() error {
		c, ok := a.containers[spec.ID]
		if !ok {
			c = a.found(pod, spec, nil)
			a.adopt([]*container{c})
			a.claim([]*container{c})
		}
		if err := a.resize(c, change); err != nil {
			a.Log.WithField("container", c.ref).WithError(err).Warn("Resize refused, the old grant stands")
			if a.writes() {
				return c.failed("resize of ", err)
			}
		}
		updates = append(a.updates(c.ID), a.own(c)...)
		a.quiet()
		return nil
	})
	return updates, err
}

// resize brings the ledger, and then the other containers, to the container's new
// resources. On an error everything is as it was.
func (a *Agent) resize(c *container, change workload.Resources) error {
	h, ok := a.ledger.Holder(c.ID)
	if !ok || change.Shares == 0 && change.Quota == 0 && change.MemoryLimit == 0 {
		return nil
	}
	old, done := c.Resources, false
	c.Resources = old.With(change)
	defer func() {
		if !done {
			c.Resources = old
		}
	}()
	as, err := a.regrant(c)
	if err != nil {
		return err
	}
	defer func() {
		if !done {
			a.ledger.Undo()
			a.settle("") //nolint:errcheck // what failed is in the log and is tried again
		}
	}()
	if err := a.carryOut(c, h.CPUs, as); err != nil {
		return err
	}
	done = true
	c.keepQuota()
	a.mend() // what it gave back may be what another pin lacks
	if as.CPUs != h.CPUs && h.Request.Class.Pinned() {
		a.counters.Resized++
		a.Log.WithFields(logrus.Fields{"container": c.ref, "from": h.CPUs.String(), "cpus": as.CPUs.String()}).Info("Container resized")
	}
	return nil
}

// carryOut brings a resize to the kernel: a pin that grows waits until the others
// have left, one that shrinks leaves before they come.
func (a *Agent) carryOut(c *container, from cpuset.Set, as policy.Assignment) error {
	if from.SubsetOf(as.CPUs) {
		if err := a.evacuate(c); err != nil {
			return err
		}
		if err := a.assert(c); err != nil && !as.CPUs.IsEmpty() {
			return err
		}
		return nil
	}
	err := a.settle("")
	if err != nil && a.reaches(c) && c.has.CPUs != as.CPUs {
		return err
	}
	return nil
}

func (a *Agent) regrant(c *container) (policy.Assignment, error) {
	r, err := a.request(c)
	if err != nil {
		return policy.Assignment{}, err
	}
	as, err := a.ledger.Resize(c.ID, r, a.inFlight(c.ID))
	if policy.IsShortage(err) && a.reclaim(c) {
		as, err = a.ledger.Resize(c.ID, r, a.inFlight(c.ID))
	}
	return as, err
}

// own is the container's own part of the reply to its update.
func (a *Agent) own(c *container) []Update {
	want, ok := a.ledger.Assignment(c.ID)
	if !ok || !a.writes() {
		return nil
	}
	set := a.settings(c, want)
	if (set == Settings{}) {
		return nil
	}
	c.recorded = set
	return []Update{{ContainerID: c.ID, Settings: set}}
}

// PostUpdateContainer looks at what the runtime has written, and repairs it.
func (a *Agent) PostUpdateContainer(id string) error {
	return a.do("PostUpdateContainer", func() error {
		if c, ok := a.containers[id]; ok {
			a.repair(c, "a runtime update")
			a.liftQuota(c.pod.UID)
		}
		return nil
	})
}

// StopContainer takes back what an ended container held.
func (a *Agent) StopContainer(id string) (updates []Update, err error) {
	err = a.do("StopContainer", func() error {
		a.stopped(id)
		updates = a.updates("")
		return nil
	})
	return updates, err
}

// RemoveContainer may be the only event of a container whose creation failed.
func (a *Agent) RemoveContainer(id string) error {
	return a.do("RemoveContainer", func() error {
		a.stopped(id)
		return nil
	})
}

func (a *Agent) stopped(id string) {
	c, ok := a.containers[id]
	a.drop(id)
	if ok {
		a.liftQuota(c.pod.UID)
	}
	a.quiet()
}

// RemovePod forgets whatever is left of a pod.
func (a *Agent) RemovePod(podID string) error {
	return a.do("RemovePodSandbox", func() error {
		var left []string
		for _, c := range a.order {
			if c.PodID == podID {
				left = append(left, c.ID)
			}
		}
		for _, id := range left {
			a.stopped(id)
		}
		return nil
	})
}

// UpdatePod notes a pod's new resources. The kubelet has written the pod's own
// cgroup by then: its quota is lifted again where it was.
func (a *Agent) UpdatePod(podID string, change workload.Resources) error {
	return a.do("UpdatePodSandbox", func() error {
		for _, c := range a.order {
			if c.PodID == podID {
				c.pod.Resources = c.pod.Resources.With(change)
				a.liftQuota(c.pod.UID)
			}
		}
		return nil
	})
}
