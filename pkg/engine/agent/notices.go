package agent

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// noticesOf returns the node's folder with the notices for a container that asks for them, and ""
// for another one. If the folder can't be made, the container starts without it.
func (a *Agent) noticesOf(c *node.Container) string {
	h, ok := a.Ledger.Holder(c.ID)
	if !ok || !h.Request.Notice || c.Uncontrolled || a.options.Notices == nil {
		return ""
	}
	path, err := a.options.Notices.Add(c.Pod.UID)
	if err != nil {
		c.Warnings = append(c.Warnings, "it gets no notices: "+err.Error())
		a.Log.WithField("container", c.Ref).WithError(err).Warn("Container starts without the notices that it asks for")
		return ""
	}
	return path
}

// endNotices removes the notices of a pod that has ended. Those of a pod whose sandbox was replaced
// stay: its containers have them.
func (a *Agent) endNotices(uid string) {
	if a.options.Notices == nil || slices.ContainsFunc(a.Order, func(c *node.Container) bool { return c.Pod.UID == uid }) {
		return
	}
	if err := a.options.Notices.Remove(uid); err != nil {
		a.Log.WithField("pod", uid).WithError(err).Warn("Notices of an ended pod not removed")
	}
}

// keepNotices removes the notices of all pods but these.
func (a *Agent) keepNotices(pods []*workload.Pod) {
	if a.options.Notices == nil {
		return
	}
	exists := make(map[string]bool, len(pods))
	for _, p := range pods {
		exists[p.UID] = true
	}
	if err := a.options.Notices.Keep(func(uid string) bool { return exists[uid] }); err != nil {
		a.Log.WithError(err).Warn("Notices of ended pods not removed")
	}
}
