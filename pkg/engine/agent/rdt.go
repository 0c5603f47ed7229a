package agent

import (
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/rdtgroup"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// setUpRDT makes the groups that the configuration asks for, and repairs what others have
// changed of them. Without the authority to have groups, those of an earlier run end.
func (a *Agent) setUpRDT() { a.applyRDT(false) }

// applyRDT is setUpRDT where the layout may be a new one, which is no drift.
func (a *Agent) applyRDT(isNew bool) {
	switch may := a.Authority(); {
	case may.RDT:
		r := &a.Config.RDT
		a.rdt.Setup(rdtgroup.Layout{Classes: a.rdtClasses(), MaxMBps: r.MaxMBps, Monitor: r.Monitor}, isNew)
	case may.Writes && a.options.RDT != nil:
		a.rdt.End()
	}
}

// assign puts processes of the container into its group. It reports whether all of it
// succeeded.
func (a *Agent) assign(c *node.Container, pids []int) (done bool) {
	h, ok := a.Ledger.Holder(c.ID)
	if !ok || !a.Authority().RDT {
		return true
	}
	group, notes, done := a.rdt.Assign(rdtgroup.Member{ContainerID: c.ID, PodUID: c.Pod.UID, RDT: h.Request.RDT}, pids)
	if group != "" {
		c.RDTGroup = group
	}
	for _, note := range notes {
		if c.Lacks(note.Key, note.Text) {
			continue
		}
		c.Notes = append(c.Notes, note)
		if note.Missing {
			a.Log.WithField("container", c.Ref).WithField("reason", note.Text).Warn("Container is not in its RDT group")
		}
	}
	return done
}

// lackOfRDT tells what this node lacks for the cache and bandwidth that a request
// asks for.
func (a *Agent) lackOfRDT(r *workload.Request) (note qos.Note, lacks bool) {
	if a.Config.RDT.Mode != config.RDTOn || r.RDT == (workload.RDT{}) {
		return qos.Note{}, false
	}
	if a.options.RDT == nil {
		return qos.Note{Key: rdtgroup.Key, Missing: true, Text: a.options.NoRDT}, true
	}
	return a.rdt.Lack(r.RDT)
}

// pruneRDT removes the groups of pods and containers that are gone.
func (a *Agent) pruneRDT() {
	if !a.Authority().RDT {
		return
	}
	var pods, containers []string
	for _, c := range a.Order {
		pods, containers = append(pods, c.Pod.UID), append(containers, c.ID)
	}
	a.rdt.Prune(pods, containers)
}

// leaveRDT removes what was made for a container, and for its pod if that was its
// last.
func (a *Agent) leaveRDT(c *node.Container) {
	if !a.Authority().RDT {
		return
	}
	if a.Config.RDT.Monitor {
		a.rdt.Leave(c.ID)
	}
	if len(a.Members(c.Pod)) == 0 {
		a.rdt.LeavePod(c.Pod.UID)
	}
}
