package agent

import (
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// requestsOf are the requests of the pod's containers that are placed, also of those whose
// own cgroups Sluice doesn't write.
func (a *Agent) requestsOf(pod *workload.Pod) (requests []*workload.Request) {
	for _, c := range a.Order {
		if h, placed := a.Ledger.Holder(c.ID); placed && c.Pod.UID == pod.UID {
			requests = append(requests, &h.Request)
		}
	}
	return requests
}

// siblings are the cgroups that compete with each other now, by the path of their parent.
func (a *Agent) siblings() map[string]*colocation.Siblings {
	l := &a.loop
	if l.siblings == nil || a.isStale() || l.looked != a.Ledger.Version() {
		l.siblings = colocation.FindSiblings(a.loopInventory())
	}
	return l.siblings
}

// servicesBelow are the cgroups below a parent that compete with batch work beside them.
func (a *Agent) servicesBelow(parent string) []colocation.Sibling {
	if s := a.siblings()[parent]; s != nil {
		return s.Services
	}
	return nil
}

// raisesWeights reports whether the weights of what isn't batch are raised at all.
func (a *Agent) raisesWeights() bool {
	cfg := &a.Config.Control.Batch
	return a.Kernel != nil && a.Authority().Acts(cfg.Mode) && a.Config.Pools.Mode != config.Exclusive && cfg.OnlineWeight > 100 && a.QoS.Features.Has(knobs.Weight)
}

// reweigh decides by how much the weights of what isn't batch are raised.
func (a *Agent) reweigh() {
	l := &a.loop
	if !a.raisesWeights() {
		l.lsWeights.Reset(l.want)
		return
	}
	siblings := a.siblings()
	room := map[string]int{}
	for _, parent := range l.lsWeights.Parents(siblings) {
		room[parent] = a.weightRoom(siblings[parent].Services)
	}
	l.lsWeights.Step(a.Now(), a.Config.Control.Batch.OnlineWeight, siblings, room, l.want)
}

// weightRoom is the percentage by which the weights of all these cgroups can be multiplied
// before the kernel cuts one.
func (a *Agent) weightRoom(services []colocation.Sibling) int {
	v2 := a.QoS.Features.Knobs[knobs.Weight].V2
	room := cgroupfs.Room(0, v2)
	for _, s := range services {
		if shares, ok := a.ownWeight(s); ok {
			room = min(room, cgroupfs.Room(cgroupfs.Scale(shares, s.Percent, v2), v2))
		}
	}
	return room
}

// ownWeight is the weight that the kubelet gave a cgroup. What it has written since Sluice
// did is newer than what is kept.
func (a *Agent) ownWeight(s colocation.Sibling) (knobs.Shares, bool) {
	e, kept := a.Journal.Entry(s.Path, knobs.Weight)
	if kept && e.Wrote != nil && !s.Class {
		return e.Value.(knobs.Shares), true
	}
	value, err := a.Kernel.Read(s.Path, knobs.Weight)
	if err != nil {
		return 0, false
	}
	if kept && e.Wrote != nil && a.Kernel.Same(knobs.Weight, e.Wrote, value) {
		value = e.Value
	}
	return value.(knobs.Shares), true
}

// reweighNow has weights follow what an event has changed, before the container that it is
// about runs.
func (a *Agent) reweighNow() {
	if !a.Synced || !a.raisesWeights() {
		return
	}
	a.reweigh()
	a.intend(a.loop.want)
}

// keepClasses puts the weights of the kubelet's classes right, which it writes each minute:
// until then all pods in them have a fraction of what they are due.
func (a *Agent) keepClasses() {
	if !a.Authority().Cgroups {
		return
	}
	changed := false
	for parent := range a.loop.inForce.LSWeights {
		for _, s := range a.servicesBelow(parent) {
			if s.Class && a.Reconciler.Recheck(reconcile.Key{Path: s.Path, Knob: knobs.Weight}) {
				changed = true
			}
		}
	}
	if !changed {
		return
	}
	a.reweigh() // by the newer weights, which are in the book now
	a.Reconciler.Apply()
	a.intend(a.loop.want)
}

// failsafeWeights gives back the weights that the kubelet gave, so that what starts while the
// plugin is away competes with the others as it is due.
func (a *Agent) failsafeWeights(changes []knobs.Change) []knobs.Change {
	for t := range a.Reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if k.Knob != knobs.Weight || k.Favour == 0 {
				continue
			}
			e, kept := a.Journal.Entry(t.Path, knobs.Weight)
			if !kept || e.Wrote == nil {
				continue
			}
			without := k.Setting
			without.Favour = 100
			to := reconcile.Target(&without, e.Value, a.QoS.Features.Knobs[knobs.Weight].V2)
			changes = append(changes, knobs.Change{Object: t.Object, Knob: knobs.Weight, From: to, To: to, Why: "the loop is gone: the weight without its favour"})
		}
	}
	return changes
}
