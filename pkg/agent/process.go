package agent

import (
	"maps"

	"github.com/sluice-dev/sluice/pkg/plan"
	"github.com/sluice-dev/sluice/pkg/reclaim"
	"github.com/sluice-dev/sluice/pkg/tune"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Cores puts processes into core-scheduling groups; see pkg/coresched.
type Cores interface {
	Supported() (plan.Support, string)
	Join(group string, pids ...int) (moved int, err error)
}

// Reclaimer reclaims memory in the background; see pkg/reclaim.
type Reclaimer interface {
	Set(targets map[string]reclaim.Target)
}

const (
	coreSchedKey = "core-sched"
)

// join puts a container's processes where they share cores with their group alone.
// What starts later in the container inherits it.
func (a *Agent) join(c *container) {
	h, ok := a.ledger.Holder(c.ID)
	if !ok || h.Request.CoreSched == "" || !a.tunes() || c.uncontrolled {
		return
	}
	if tune.Missing(c.notes, coreSchedKey) {
		return
	}
	pids := []int{c.PID}
	if found, err := a.Kernel.Processes(c.path); err == nil && len(found) > 0 {
		pids = found
	}
	if _, err := a.Cores.Join(h.Request.CoreSched, pids...); err != nil {
		c.notes = append(c.notes, tune.Note{Key: coreSchedKey, Missing: true, Text: err.Error()})
		a.Log.WithField("container", c.ref).WithError(err).Warn("Container shares cores with others")
	}
}

// lackOfNode adds what this node lacks for a request besides cgroup files.
func (a *Agent) lackOfNode(r *workload.Request, notes []tune.Note) []tune.Note {
	if r.CoreSched != "" {
		support, why := plan.Unsupported, "this plugin runs without it"
		if a.Cores != nil {
			support, why = a.Cores.Supported()
		}
		if support != plan.Supported {
			notes = append(notes, tune.Note{Key: coreSchedKey, Missing: true, Text: why})
		}
	}
	return notes
}

// retarget tells the reclaimer what to hold where, when that has changed.
func (a *Agent) retarget() {
	if a.Reclaimer == nil {
		return
	}
	targets := map[string]reclaim.Target{}
	for _, c := range a.order {
		if c.started && c.reclaim != (tune.Reclaim{}) && a.tunes() {
			targets[c.path] = reclaim.Target(c.reclaim)
		}
	}
	if !maps.Equal(targets, a.targets) {
		a.targets = targets
		a.Reclaimer.Set(targets)
	}
}
