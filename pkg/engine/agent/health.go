package agent

import "github.com/sluice-dev/sluice/pkg/status"

// Pulse is the result of a health check.
type Pulse struct {
	Runtime    status.Runtime
	Synced     bool // the runtime has sent its list of containers
	Containers int
}

// Pulse runs as an event, so it doesn't return while the event loop hangs. It fails if the
// agent has ended.
func (a *Agent) Pulse() (p Pulse, err error) {
	err = a.events.Do("pulse", func() error {
		p = Pulse{Runtime: a.Runtime, Synced: a.Synced, Containers: len(a.Containers)}
		return nil
	})
	return p, err
}
