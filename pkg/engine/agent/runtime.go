package agent

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/status"
)

// Connected tells the agent how to reach the runtime, and why it must not be sent unsolicited
// updates ("" where it may).
func (a *Agent) Connected(runtime node.Runtime, info status.Runtime, unsafe string) {
	a.events.Do("connected", func() error { //nolint:errcheck // only a closed agent fails it
		a.record.Connected(runtime, info, unsafe)
		return nil
	})
}

// Disconnected tells the agent that the runtime is gone.
func (a *Agent) Disconnected() {
	a.events.Do("disconnected", func() error { //nolint:errcheck // only a closed agent fails it
		a.record.Disconnected()
		return nil
	})
}

// noteChange counts a change of what runs here. The runtime's record follows when no other
// change has come for a while.
func (a *Agent) noteChange() {
	a.Changed()
	a.record.Postpone()
}

// acknowledgeTime is how long the start of a pin waits for the runtime's answer to an update that
// names its CPUs. The runtime serves one request at a time, so it has carried out the update
// before it sent the start: only the answer may still be under way. An update that waits behind
// the start can't be answered, and the start fails.
const acknowledgeTime = 50 * time.Millisecond

// awaitAnswer waits that long for such an answer.
func (a *Agent) awaitAnswer(pin string) {
	var answered <-chan struct{}
	a.events.Do("acknowledgement", func() error { //nolint:errcheck // a closed agent fails the start itself
		answered = a.record.Awaited(pin)
		return nil
	})
	if answered == nil {
		return
	}
	select {
	case <-answered:
	case <-time.After(acknowledgeTime):
	}
}
