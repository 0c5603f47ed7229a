// Package runtimerecord keeps the container runtime's own record of each container's resources
// in agreement with the kernel. Sluice writes to cgroup files at once; the runtime knows nothing
// of it, and writes all that its record holds with its next update of the container, as does
// systemd with each reload. So Sluice also updates the record: in the reply to a request of the
// runtime where there is one, and later through an unsolicited update.
//
// An unsolicited update is carried out whenever the runtime gets to it, so that what it says may
// be old by then. It then undoes newer writes: the container is back on CPUs that another one
// has been given as its own, or has a quota or weight that was changed since. This is prevented,
// or made good, as follows:
//
//   - An update is sent only when nothing has changed on the node for recordUpdates.delay, and only
//     one at a time.
//   - Until the runtime answers, a new pin avoids the CPUs that the update names if others serve
//     as well, a growing pin doesn't take them (InFlight), and a pin that has them doesn't start
//     (Awaited).
//   - Whatever the answer is, the container's cgroup is compared with what Sluice wants, and
//     repaired.
//   - Before the plugin's end no update is sent, and the answer to the last one is awaited (Leave).
//   - What an update names is in the journal before it is sent. After a crash it counts as Sluice's, and
//     what is restored waits for an unanswered update (Settle).
//   - The runtime writes not just what the update names but all that it records of a container's
//     CPU. So an update also takes back what the record holds of Sluice's and nobody asks for any
//     more, and none is sent where that isn't possible.
//
// The package owns Container.Recorded, Carried, Unadjusted and FailedUpdate, and the status of the
// runtime (Node.Runtime). It lies above pkg/engine/cpusets, podsettings and groups.
package runtimerecord

import (
	"errors"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/cpusets"
	"github.com/sluice-dev/sluice/pkg/engine/groups"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/podsettings"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Recorder updates the runtime's record. The agent's event loop calls its methods.
type Recorder struct {
	*node.Node
	cpusets     *cpusets.Writer
	podsettings *podsettings.Settings
	groups      *groups.Joiner

	runtime node.Runtime // nil while none is connected
	unsafe  string       // why Sluice must not send this runtime updates; "" if it may
	connection
	answered chan struct{} // closed when the runtime has answered the pending update; nil if there is none
	timer    *time.Timer   // fires when the Recorder next compares the record
	leaving  bool          // no further update is sent

	quietAt  time.Time // when nothing will have changed for recordUpdates.delay
	steadyAt time.Time // when the pools' sizes will have been the same for steadyPools

	replied node.LedgerState // the ledger's state that the runtime's record has; zero if unknown
	before  []replaced       // what the last call of Updates replaced
}

// replaced is what a container had, and what the runtime's record had of it, before an update.
type replaced struct {
	*node.Container
	has      placement.Assignment
	recorded node.Settings
}

// connection is the state that ends with a connection to the runtime.
type connection struct {
	listed  bool         // the runtime has sent its list of containers
	pending *node.Update // the update that was sent and not yet answered
}

// New makes a Recorder to which no runtime is connected.
func New(n *node.Node, w *cpusets.Writer, s *podsettings.Settings, g *groups.Joiner) *Recorder {
	return &Recorder{Node: n, cpusets: w, podsettings: s, groups: g}
}

// switchedOff is the reason for sending no updates if the configuration disables them.
const switchedOff = "switched off in the config"

// Connected starts the use of a connection to a runtime. unsafe explains why Sluice must not
// send this runtime updates; "" if it may.
func (r *Recorder) Connected(runtime node.Runtime, info status.Runtime, unsafe string) {
	if r.Kernel == nil {
		unsafe = "no cgroups here: everything goes through the runtime's replies"
	}
	if !r.Runtime.ChangedAt.IsZero() {
		r.Counters.Reconnects++
	}
	r.runtime, r.unsafe, r.listed = runtime, unsafe, false
	r.Runtime = info
	r.Runtime.Connected, r.Runtime.ChangedAt = true, r.Now()
	r.Reconfigure()
}

// Disconnected ends the use of the connection.
func (r *Recorder) Disconnected() {
	r.runtime, r.pending = nil, nil
	if r.Runtime.Connected {
		r.Runtime.Connected, r.Runtime.ChangedAt = false, r.Now()
	}
}

// Reconfigure starts or stops sending updates by the configuration in force.
func (r *Recorder) Reconfigure() {
	if r.runtime == nil {
		return
	}
	r.Runtime.RecordUpdates, r.Runtime.RecordUpdatesWhy = status.RecordUpdatesOn, r.whyOff()
	if r.Runtime.RecordUpdatesWhy != "" {
		r.Runtime.RecordUpdates = status.RecordUpdatesOff
	}
}

// whyOff explains why the connected runtime is sent no updates; "" if it is sent some.
func (r *Recorder) whyOff() string {
	if !r.Config.RecordUpdates.Enabled {
		return switchedOff
	}
	return r.unsafe
}

// Synchronize records that the runtime has sent its list of containers. It no longer expects
// answers to earlier updates. If the list can't be processed, the caller calls undo.
func (r *Recorder) Synchronize() (undo func()) {
	before := r.connection
	r.connection = connection{listed: true}
	r.noteAnswered() // the runtime processes one request after the other
	return func() { r.connection = before }
}

// Postpone delays updates until recordUpdates.delay from now, because something has changed.
func (r *Recorder) Postpone() {
	delay := r.Config.RecordUpdates.Delay
	r.quietAt = r.Now().Add(delay)
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.runtime != nil {
		r.timer = time.AfterFunc(delay, func() { r.Post("runtime record", r.Update) })
	}
}

// steadyPools is how long the pools' sizes must stay the same before the record is updated to
// them: each update costs the runtime a fork, and the loop may resize pools many times a
// second.
const steadyPools = time.Minute

// PoolsResized delays updates of containers that share a pool until the pools' sizes have been
// the same for steadyPools.
func (r *Recorder) PoolsResized() { r.steadyAt = r.Now().Add(steadyPools) }

// InFlight is the set of CPUs in an unanswered update of another container, which may return to
// that container. CPUs that both containers have by a claim are not in it.
func (r *Recorder) InFlight(id string) cpuset.Set {
	if p := r.pending; p != nil && p.ContainerID != id {
		return cpuset.Difference(p.CPUs, r.Ledger.Common(p.ContainerID, id))
	}
	return cpuset.Set{}
}

// Awaited returns a channel that is closed when the runtime has answered an update of another
// container that names CPUs of the pin, or nil if there is no such update.
func (r *Recorder) Awaited(pin string) <-chan struct{} {
	if h, ok := r.Ledger.Holder(pin); ok && h.CPUs.Overlaps(r.InFlight(pin)) {
		return r.answered
	}
	return nil
}

// Leave ends the sending of updates before the plugin's end. It returns a channel that is closed when
// the runtime has answered the pending update and what it wrote is repaired; nil if there is none.
func (r *Recorder) Leave() <-chan struct{} {
	r.leaving = true
	if r.pending == nil {
		return nil
	}
	return r.answered
}

// Updating reports whether the runtime may be updating the container with that cgroup for
// Sluice now.
func (r *Recorder) Updating(path string) bool {
	if r.pending == nil {
		return false
	}
	c, ok := r.Containers[r.pending.ContainerID]
	return ok && c.Path == path
}

// Update sends the update of one container whose record is out of date, if nothing has changed
// for recordUpdates.delay. The answer triggers the next update.
func (r *Recorder) Update() {
	now := r.Now()
	if r.runtime == nil || !r.listed || r.leaving || r.pending != nil || r.whyOff() != "" || !r.Authority().Writes || now.Before(r.quietAt) {
		return
	}
	for _, c := range r.Order {
		want, ok := r.Ledger.Assignment(c.ID)
		if !ok || !c.Started || !c.Touched {
			continue
		}
		if !want.Unlimited && now.Before(r.steadyAt) {
			continue // the loop will resize its pool again
		}
		if c.Recorded.Unlimited && !want.Unlimited {
			continue // the runtime would write the lifted quota that its record holds
		}
		if !want.Unlimited && r.exceedsPod(c) {
			continue // the kernel would refuse the quota that the runtime writes
		}
		set := r.settings(c, want)
		if set == c.Recorded || (set == node.Settings{}) || gaveUp(c, set) {
			continue
		}
		// The runtime writes all CPU settings of its record, which lacks what a container that
		// was found here has been given since. A memory limit would also set v1's swap limit.
		r.Prepare(c) //nolint:errcheck // an error would be about a requirement, and the container runs already
		r.takeBack(c)
		c.Carried[knobs.MemoryMax] = c.Recorded.Carried[knobs.MemoryMax]
		set = r.settings(c, want)
		r.carry(c, set)
		r.noteSent()
		if !r.Reconciler.Save() && set.Carried != (knobs.Values{}) {
			r.carry(c, c.Recorded)
			r.Postpone() // after a crash, nobody would know that it is Sluice's
			return
		}
		r.Send(c, set)
		return
	}
}

// exceedsPod reports whether the limit that the record has of a container is above the quota that
// Sluice has given its pod, which cgroup v1 refuses.
func (r *Recorder) exceedsPod(c *node.Container) bool {
	if r.Kernel == nil || r.QoS.Features.Knobs[knobs.Quota].V2 || !c.Quota.Finite() {
		return false
	}
	if e, kept := r.Journal.Entry(c.PodPath, knobs.Quota); !kept || e.Wrote == nil {
		return false
	}
	pod, err := r.Kernel.Read(c.PodPath, knobs.Quota)
	return err == nil && pod.(knobs.CPUQuota).Finite() && pod.(knobs.CPUQuota).Compare(c.Quota) < 0
}

// Send makes the runtime update a container's record, unless another update is pending.
// acknowledge handles the answer.
func (r *Recorder) Send(c *node.Container, set node.Settings) {
	update := node.Update{ContainerID: c.ID, Settings: set}
	r.pending, r.answered = &update, make(chan struct{})
	r.Counters.RecordUpdates++
	runtime := r.runtime
	r.Spawn(func() {
		err := runtime.Update(update)
		r.Post("runtime record", func() { r.acknowledge(&update, err) })
	})
}

// acknowledge handles the runtime's answer to an update.
func (r *Recorder) acknowledge(update *node.Update, err error) {
	if r.pending != update {
		return // the answer belongs to an earlier connection
	}
	r.pending = nil
	lost := errors.Is(err, node.ErrNoAnswer)
	if !lost {
		r.noteAnswered()
	}
	if r.answered != nil {
		close(r.answered)
		r.answered = nil
	}
	c, ok := r.Containers[update.ContainerID]
	if !ok {
		return
	}
	if err != nil {
		r.carry(c, c.Recorded)
		if !lost {
			fail(c, update.Settings)
		}
		r.Counters.RecordUpdateFailures++
		r.Log.WithField("container", c.Ref).WithError(err).Debug("Runtime did not take the record of a container")
	} else {
		c.Recorded = update.Settings
		c.FailedUpdate = node.FailedUpdate{}
		r.Made(c)
	}
	r.cpusets.Repair(c, "the runtime, late")
	r.podsettings.ExpectRewritten(c)
	r.podsettings.Reconcile(c.Pod)
	if !lost { // the end of the connection follows
		r.Update()
	}
}

// maxAttempts is how often Sluice sends the same update that the runtime refuses. The kernel
// has the values in any case.
const maxAttempts = 3

// fail counts a refused update.
func fail(c *node.Container, to node.Settings) {
	if c.FailedUpdate.To != to {
		c.FailedUpdate = node.FailedUpdate{To: to}
	}
	c.FailedUpdate.Times++
}

// gaveUp reports whether an update was refused so often that Sluice no longer sends it.
func gaveUp(c *node.Container, to node.Settings) bool {
	return c.FailedUpdate.Times >= maxAttempts && c.FailedUpdate.To == to
}
