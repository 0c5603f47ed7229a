package agent

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// slowLane brings the runtime's own record after the kernel, so that a later
// runtime update or a systemd reload does not undo what was written directly. It
// sends one container at a time and only when no event came for a while: while an
// update is under way its CPUs may go back to its container, however late.
type slowLane struct {
	runtime node.Runtime
	shut    string // why it is not used; "" open
	// otherwise is why it would not be used, were it switched on.
	otherwise string
	pending   *node.Update
	settled   chan struct{} // closed when pending is acknowledged; nil where none is
	timer     *time.Timer
	quiet     time.Time // when nothing will have happened for long enough
	told      bool      // this connection has told what runs
	pools     time.Time // when the pools will have kept their sizes for long enough
}

func (l *slowLane) reset() { l.pending = nil }

// maxAttempts is how often an update that the runtime refuses is tried again
// before the lane waits for another desire; the kernel holds the values anyway.
const maxAttempts = 3

// Connected tells the agent how to reach the runtime, and why the slow lane must
// stay shut there ("" where it need not).
func (a *Agent) Connected(runtime node.Runtime, info status.Runtime, shut string) {
	a.do("connected", func() error { //nolint:errcheck // only a closed agent fails it
		if a.Kernel == nil {
			shut = "no cgroups here: everything goes through the runtime's replies"
		}
		a.lane.otherwise = shut
		if !a.Config.SlowLane.Enabled {
			shut = laneOff
		}
		if !a.Runtime.ChangedAt.IsZero() {
			a.Counters.Reconnects++
		}
		a.lane.runtime, a.lane.told = runtime, false
		a.Runtime = info
		a.Runtime.Connected, a.Runtime.ChangedAt = true, a.Now()
		a.shutLane(shut)
		return nil
	})
}

// shutLane shuts the slow lane for a reason, or opens it where there is none.
func (a *Agent) shutLane(why string) {
	a.lane.shut = why
	a.Runtime.SlowLane, a.Runtime.SlowLaneWhy = status.SlowLaneOpen, why
	if why != "" {
		a.Runtime.SlowLane = status.SlowLaneShut
	}
}

// Disconnected tells the agent that the runtime is gone.
func (a *Agent) Disconnected() {
	a.do("disconnected", func() error { //nolint:errcheck // only a closed agent fails it
		a.lane.runtime, a.lane.pending = nil, nil
		if a.Runtime.Connected {
			a.Runtime.Connected, a.Runtime.ChangedAt = false, a.Now()
		}
		return nil
	})
}

// laneOff is why the lane is shut where the configuration says so.
const laneOff = "switched off in the config"

// quiet starts the wait for a quiet moment anew, after a change of what runs here.
func (a *Agent) quiet() {
	a.Changed()
	a.lane.quiet = a.Now().Add(a.Config.SlowLane.Delay)
	if a.lane.timer != nil {
		a.lane.timer.Stop()
	}
	if a.lane.runtime == nil {
		return
	}
	a.lane.timer = time.AfterFunc(a.Config.SlowLane.Delay, func() { a.post("slow lane", a.record) })
}

// inFlight is the CPUs that an unacknowledged runtime update of another container
// names: until it is acknowledged they may go back to that container.
func (a *Agent) inFlight(id string) cpuset.Set {
	if p := a.lane.pending; p != nil && p.ContainerID != id {
		return p.CPUs
	}
	return cpuset.Set{}
}

// onTheWire is how long a start waits for an acknowledgement. The runtime serves
// one request at a time, so it has applied the update before it sent the start:
// only the answer may still be under way. An update that waits behind the start
// can't be acknowledged, and the start fails.
const onTheWire = 50 * time.Millisecond

// awaitAcknowledgement waits that long for an update that names CPUs of the pin.
func (a *Agent) awaitAcknowledgement(pin string) {
	var settled <-chan struct{}
	a.do("acknowledgement", func() error { //nolint:errcheck // a closed agent fails the start itself
		if h, ok := a.Ledger.Holder(pin); ok && h.CPUs.Overlaps(a.inFlight(pin)) {
			settled = a.lane.settled
		}
		return nil
	})
	if settled == nil {
		return
	}
	select {
	case <-settled:
	case <-time.After(onTheWire):
	}
}

// record sends the next container whose record differs from its desire.
func (a *Agent) record() {
	if a.lane.runtime == nil || !a.lane.told || a.lane.shut != "" || a.lane.pending != nil || !a.Authority().Writes || a.Now().Before(a.lane.quiet) {
		return
	}
	for _, c := range a.Order {
		want, ok := a.Ledger.Assignment(c.ID)
		if !ok || !c.Started || !c.Touched || c.Attempts >= maxAttempts {
			continue
		}
		if !want.Unlimited && a.Now().Before(a.lane.pools) {
			continue // the loop will move its pool again
		}
		set := a.settings(c, want)
		if c.Recorded.Unlimited && !want.Unlimited {
			continue // an update would repeat the record's lifted quota
		}
		if set == c.Recorded || (set == node.Settings{}) {
			continue
		}
		// An update repeats the CPU fields of the record, which lacks what an adopted
		// container was given. A limit would set v1's swap limit too.
		a.prepare(c) //nolint:errcheck // it runs already
		a.unrecord(c)
		c.Carried[knobs.MemoryMax] = c.Recorded.Carried[knobs.MemoryMax]
		a.send(c, a.settings(c, want))
		return
	}
}

func (a *Agent) send(c *node.Container, set node.Settings) {
	update := node.Update{ContainerID: c.ID, Settings: set}
	a.lane.pending, a.lane.settled = &update, make(chan struct{})
	a.Counters.SlowUpdates++
	runtime := a.lane.runtime
	a.spawn(func() {
		err := runtime.Update(update)
		a.post("slow lane", func() { a.acknowledge(&update, err) })
	})
}

// acknowledge takes the runtime's answer: whatever it was, the kernel is looked
// at and repaired, since the update may have come after a newer desire.
func (a *Agent) acknowledge(update *node.Update, err error) {
	if a.lane.pending != update {
		return // of an earlier connection
	}
	a.lane.pending = nil
	if a.lane.settled != nil {
		close(a.lane.settled)
		a.lane.settled = nil
	}
	c, ok := a.Containers[update.ContainerID]
	if !ok {
		return
	}
	if err != nil {
		c.Attempts++
		a.Counters.SlowFailures++
		a.Log.WithField("container", c.Ref).WithError(err).Debug("Runtime did not take the record of a container")
	} else {
		c.Recorded, c.Attempts = update.Settings, 0
	}
	a.cpusets.Repair(c, "the runtime, late")
	a.podsettings.ExpectRewritten(c)
	a.podsettings.Reconcile(c.Pod)
	a.record()
}
