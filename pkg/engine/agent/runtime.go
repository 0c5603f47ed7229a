package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/status"
)

// Connected passes the connection to the runtime to the agent. unsafe is the reason why the
// agent must not send unsolicited updates, "" if it may.
func (a *Agent) Connected(runtime node.Runtime, info status.Runtime, unsafe string) {
	a.events.Do("connected", func() error { //nolint:errcheck // fails only if the agent has ended
		a.record.Connected(runtime, info, unsafe)
		return nil
	})
}

// Disconnected ends the use of the runtime's connection, which is closed.
func (a *Agent) Disconnected() {
	a.events.Do("disconnected", func() error { //nolint:errcheck // fails only if the agent has ended
		a.record.Disconnected()
		return nil
	})
}

// leaveTime is how long Leave waits. Together with shutdownTimeout it is less than the time after
// which a service manager kills the process.
const leaveTime = 3 * time.Second

// Leave prepares for the end of the connection: the agent sends no further update of the runtime's
// record, and waits up to leaveTime for the answer to the one under way. Otherwise the runtime would
// write to the kernel after the end of this process, over what has been restored by then.
func (a *Agent) Leave() {
	var answered <-chan struct{}
	a.events.Do("leaving", func() error { //nolint:errcheck // if the agent has ended, nothing is under way
		answered = a.record.Leave()
		return nil
	})
	if answered == nil {
		return
	}
	select {
	case <-answered:
	case <-time.After(leaveTime):
		a.Log.Warn("Ending while the runtime is still updating its record of a container: the journal has what it writes")
	}
}

// noteChange counts a change of the containers on this node. The runtime's record is updated
// when no further change has come for a while.
func (a *Agent) noteChange() {
	a.Changed()
	a.record.Postpone()
}

// acknowledgeTime is how long the start of a pin waits for the runtime's answer to an update
// that names its CPUs. The runtime serves one request at a time, so it has carried out the
// update before it sent the start, and only the answer may still be under way. An update that
// waits behind the start can't be answered, and then the start fails.
const acknowledgeTime = 50 * time.Millisecond

// unread returns an error if the runtime has given up on an event of a container, or of all if
// c is nil: it reads no answer, and has not made the updates in it. The context of an event ends
// with the runtime's deadline (2 s unless configured) and with the connection. After a deadline
// the runtime ends the connection too (nri v0.12.5, handleRequestError of
// pkg/adaptation/plugin.go), so that Synchronize corrects what else was assumed, unless it was
// the kubelet's deadline: then the runtime fails the kubelet's request.
func (a *Agent) unread(ctx context.Context, event string, c *node.Container) error {
	if ctx.Err() == nil {
		return nil
	}
	a.record.Unread()
	log := a.Log.WithField("event", event)
	if c != nil {
		log = log.WithField("container", c.Ref)
	}
	log.WithError(ctx.Err()).Warn("The runtime gave up on an event before Sluice had an answer; a container that was being created or resized is as it was before")
	return fmt.Errorf("sluice: the runtime gave up on %s before there was an answer: %w", event, ctx.Err())
}

// awaitAnswer waits up to acknowledgeTime for the answers to updates that name a pin's CPUs.
func (a *Agent) awaitAnswer(ctx context.Context, pin string) {
	var answered <-chan struct{}
	a.events.Do("acknowledgement", func() error { //nolint:errcheck // if the agent has ended, the start fails by itself
		answered = a.record.Awaited(pin)
		return nil
	})
	if answered == nil {
		return
	}
	select {
	case <-answered:
	case <-ctx.Done():
	case <-time.After(acknowledgeTime):
	}
}
