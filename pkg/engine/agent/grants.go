package agent

import (
	"github.com/sluice-dev/sluice/pkg/workload"
)

// regrantAll updates all containers to the grants in the kubelet's record. A pin whose number
// of CPUs changes waits for the runtime's update, which comes with the resize.
func (a *Agent) regrantAll() {
	if !a.Grants.TakeChanged() {
		return
	}
	pods := map[string]*workload.Pod{}
	for _, c := range a.Order {
		h, placed := a.Ledger.Holder(c.ID)
		if !placed || a.Granted(c) == c.Allocated {
			continue
		}
		c.Allocated = a.Granted(c)
		revised, _ := a.RequestBy(a.Config, c)
		if revised.Shares != "" || revised.Request.Class.Pinned() && revised.Request.CPUs != h.Request.CPUs {
			continue
		}
		if _, err := a.Ledger.Resize(c.ID, revised.Request, a.record.InFlight(c.ID)); err != nil {
			a.Log.WithField("container", c.Ref).WithError(err).Warn("What the kubelet has granted can't be taken over, the old grant stands")
			continue
		}
		a.renewRequest(c)
		pods[c.Pod.UID] = c.Pod
	}
	if len(pods) == 0 {
		return
	}
	a.Changed()
	a.cpusets.TryApply()
	for _, pod := range pods {
		a.podsettings.Reconcile(pod)
	}
}
