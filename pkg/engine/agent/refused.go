package agent

import (
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
)

// refusalTime is how long a runtime may take to end a container whose start was refused. In
// that time the cgroup's process is the runtime's own, which waits before exec.
const refusalTime = 5 * time.Second

// refuseStart keeps the grant of a container whose start was refused until the runtime reports
// the container's end or its cgroup is empty, since it may run nevertheless. containerd ends it
// and sends StopContainer; CRI-O only logs the refusal (server/container_start.go).
func (a *Agent) refuseStart(c *node.Container, why error) {
	c.Refused = node.RefusedStart{Why: why.Error(), At: a.Now()}
	if strings.EqualFold(a.Runtime.Name, "cri-o") {
		a.runsRefused(c)
	}
	a.noteChange()
}

// findRunningRefused finds containers that run although their start was refused.
func (a *Agent) findRunningRefused() {
	for _, c := range a.Order {
		if c.Refused.Why == "" || c.Refused.Runs || a.Now().Sub(c.Refused.At) < refusalTime || !a.Reaches(c) {
			continue
		}
		if populated, err := a.Kernel.Populated(c.Path); err == nil && populated {
			a.runsRefused(c)
		}
	}
}

// runsRefused enters a container that runs although its start was refused. It shares CPUs, as a
// running container does whose request can't be met, until completePins can give it the CPUs
// that it requests. A container whose cgroup can't be written keeps its CPUs, since it can't be
// moved off them.
func (a *Agent) runsRefused(c *node.Container) {
	c.Refused.Runs = true
	a.Counters.RanRefused++
	if _, held := a.Ledger.Holder(c.ID); !held || a.Reaches(c) {
		r, err := a.Request(a.Config, c)
		if err != nil {
			r = a.Sharing(c)
		}
		a.Ledger.PlaceShared(c.Identity(), r, c.Refused.Warning(), a.Now())
	}
	a.Ledger.Hold(c.ID, a.Now())
	a.cpusets.TakeOver(c)
	a.LifecycleChanges++
	a.completePins()
	a.cpusets.TryApply()
	a.cpusets.LiftQuota(c.Pod)
	a.podsettings.Reconcile(c.Pod)
	a.Log.WithField("container", c.Ref).Warn("The runtime runs a container whose start was refused: it shares CPUs, and has none of its own")
}
