package agent

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/rdtgroup"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// setUpRDT makes the groups that the configuration asks for, and repairs what others have
// changed of them. Without the authority to have groups, those of an earlier run end.
func (a *Agent) setUpRDT() { a.applyRDT(false) }

// applyRDT is setUpRDT where the layout may be a new one, which is no drift.
func (a *Agent) applyRDT(isNew bool) {
	switch may := a.authority(); {
	case may.RDT:
		r := &a.Config.RDT
		a.rdt.Setup(rdtgroup.Layout{Classes: a.rdtClasses(), MaxMBps: r.MaxMBps, Monitor: r.Monitor}, isNew)
	case may.Writes && a.RDT != nil:
		a.rdt.End()
	}
}

// assign puts processes of the container into its group. It reports whether all of it
// succeeded.
func (a *Agent) assign(c *container, pids []int) (done bool) {
	h, ok := a.ledger.Holder(c.ID)
	if !ok || !a.authority().RDT {
		return true
	}
	group, notes, done := a.rdt.Assign(rdtgroup.Member{ContainerID: c.ID, PodUID: c.pod.UID, RDT: h.Request.RDT}, pids)
	if group != "" {
		c.rdt = group
	}
	for _, note := range notes {
		if c.lacks(note.Key, note.Text) {
			continue
		}
		c.notes = append(c.notes, note)
		if note.Missing {
			a.Log.WithField("container", c.ref).WithField("reason", note.Text).Warn("Container is not in its RDT group")
		}
	}
	return done
}

// lacks reports whether a note is there already.
func (c *container) lacks(key, text string) bool {
	return slices.ContainsFunc(c.notes, func(n qos.Note) bool { return n.Key == key && n.Text == text })
}

// lackOfRDT tells what this node lacks for the cache and bandwidth that a request
// asks for.
func (a *Agent) lackOfRDT(r *workload.Request) (note qos.Note, lacks bool) {
	if a.Config.RDT.Mode != config.RDTOn || r.RDT == (workload.RDT{}) {
		return qos.Note{}, false
	}
	if a.RDT == nil {
		return qos.Note{Key: rdtgroup.Key, Missing: true, Text: a.NoRDT}, true
	}
	return a.rdt.Lack(r.RDT)
}

// pruneRDT removes the groups of pods and containers that are gone.
func (a *Agent) pruneRDT() {
	if !a.authority().RDT {
		return
	}
	var pods, containers []string
	for _, c := range a.order {
		pods, containers = append(pods, c.pod.UID), append(containers, c.ID)
	}
	a.rdt.Prune(pods, containers)
}

// leaveRDT removes what was made for a container, and for its pod if that was its
// last.
func (a *Agent) leaveRDT(c *container) {
	if !a.authority().RDT {
		return
	}
	if a.Config.RDT.Monitor {
		a.rdt.Leave(c.ID)
	}
	if len(a.members(c.pod)) == 0 {
		a.rdt.LeavePod(c.pod.UID)
	}
}
