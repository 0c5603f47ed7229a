package agent

import (
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
)

const (
	// allocatedWait bounds how long an event waits for the record. The kubelet wrote it
	// just before, so that it is in memory and read within milliseconds; on a disk that
	// hangs the event goes on with what is known, and the pass catches up.
	allocatedWait = 50 * time.Millisecond
	// allocatedStart bounds it where all containers are looked at; the runtime waits 2 s.
	allocatedStart = 500 * time.Millisecond
)

// granted is what the kubelet has granted to a container, by its record, or would by a
// manifest where it keeps a record.
func (a *Agent) granted(c *container) workload.Granted {
	if c.Granted.Pod && a.grants.Known() {
		return c.Granted
	}
	return a.grants.Of(c.pod.UID, c.Name)
}

// admitted has the record be new enough for a container that is being created: the
// kubelet writes a pod's entry before it asks for the pod's sandbox, so a pod that is
// known needs no look at the file.
func (a *Agent) admitted(c *container) {
	if !a.granted(c).Pod {
		a.grants.Look(allocatedWait)
	}
}

// regrantAll brings all containers to what the record says of them by now. Pins whose
// number of CPUs changes wait for the runtime's update, which comes with the resize.
func (a *Agent) regrantAll() {
	if !a.grants.News() {
		return
	}
	pods := map[string]*workload.Pod{}
	for _, c := range a.order {
		h, placed := a.ledger.Holder(c.ID)
		if !placed || a.granted(c) == c.granted {
			continue
		}
		c.granted = a.granted(c)
		asked, _ := a.requestBy(a.Config, c)
		if asked.Shares != "" || asked.Request.Class.Pinned() && asked.Request.CPUs != h.Request.CPUs {
			continue
		}
		if _, err := a.ledger.Resize(c.ID, asked.Request, a.inFlight(c.ID)); err != nil {
			a.Log.WithField("container", c.ref).WithError(err).Warn("What the kubelet has granted can't be taken over, the old grant stands")
			continue
		}
		a.rerequest(c)
		pods[c.pod.UID] = c.pod
	}
	if len(pods) == 0 {
		return
	}
	a.loop.stale = true
	a.settle("") //nolint:errcheck // what failed is in the log and is tried again
	for _, pod := range pods {
		a.reconcilePod(pod)
	}
}

// tellCut logs and counts a container whose annotation claims more than the kubelet has
// granted, once.
func (a *Agent) tellCut(c *container, warnings []annotation.Warning) {
	for _, w := range warnings {
		if known := a.containers[c.ID]; w.Cut && known != nil && !known.cut {
			known.cut, c.cut = true, true
			a.counters.GrantsCut++
			a.Log.WithFields(logrus.Fields{"container": c.ref, "source": w.Source}).Warn("Grant cut: " + w.Text)
		}
	}
}
