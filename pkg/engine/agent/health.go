package agent

import "github.com/sluice-dev/sluice/pkg/status"

// Pulse is a sign of life.
type Pulse struct {
	Runtime    status.Runtime
	Synced     bool // the runtime has told what runs here
	Containers int
}

// Pulse goes through the loop as every event does: it doesn't return while the loop
// hangs. The error is that the agent has ended.
func (a *Agent) Pulse() (p Pulse, err error) {
	err = a.events.Do("pulse", func() error {
		p = Pulse{Runtime: a.Runtime, Synced: a.Synced, Containers: len(a.Containers)}
		return nil
	})
	return p, err
}
