package agent

import (
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// refusedStart is a start that was refused, and of which the runtime has not yet
// reported the end. The zero value is none.
type refusedStart struct {
	why  string
	at   time.Time
	runs bool // the container runs all the same
}

// warning tells of it in the status, "" where there is nothing to tell.
func (r *refusedStart) warning() string {
	if !r.runs {
		return ""
	}
	return "its start was refused, and the runtime runs it all the same: " + r.why
}

// refusalTime is how long a runtime may take to end a container whose start was
// refused: until then its process is the runtime's own, which waits before exec.
const refusalTime = 5 * time.Second

// refuseStart keeps what a container holds whose start was refused until the runtime
// reports its end or its cgroup is empty: it may run all the same. containerd ends it
// and sends StopContainer; CRI-O only logs the refusal (server/container_start.go).
func (a *Agent) refuseStart(c *container, why error) {
	c.refused = refusedStart{why: why.Error(), at: a.now()}
	if strings.EqualFold(a.runtime.Name, "cri-o") {
		a.runsRefused(c)
	}
	a.quiet()
}

// lookAtRefused finds containers that run although their start was refused.
func (a *Agent) lookAtRefused() {
	for _, c := range a.order {
		if c.refused.why == "" || c.refused.runs || a.now().Sub(c.refused.at) < refusalTime || !a.reaches(c) {
			continue
		}
		if populated, err := a.Kernel.Populated(c.path); err == nil && populated {
			a.runsRefused(c)
		}
	}
}

// runsRefused enters a container that runs although its start was refused: it shares,
// as one that is found with a request that can't be met, until it can be given what it
// asks for (see mend). One whose cgroup can't be written keeps its CPUs, since it can't be
// moved off them.
func (a *Agent) runsRefused(c *container) {
	c.refused.runs = true
	a.counters.RanRefused++
	if _, held := a.ledger.Holder(c.ID); !held || a.reaches(c) {
		r, err := a.request(a.Config, c)
		if err != nil {
			r = a.sharing(c)
		}
		a.ledger.PlaceShared(c.identity(), r, c.refused.warning(), a.now())
	}
	a.ledger.Hold(c.ID, a.now())
	if a.reaches(c) && a.authority().Cpusets {
		a.touch(c)
		a.observe(c, knobs.CPUs, knobs.Mems, knobs.Quota)
	}
	a.loop.safe.news = true
	a.mend()
	a.settled = 0 // one that shares may be entered without a new version of the ledger
	a.settle("")  //nolint:errcheck // what failed is in the log and is tried again
	a.liftQuota(c.pod)
	a.reconcilePod(c.pod)
	a.Log.WithField("container", c.ref).Warn("The runtime runs a container whose start was refused: it shares CPUs, and has none of its own")
}
