package agent

import (
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// stays tells which batch pod doesn't yield its CPUs at once, and why; "" where all do. They
// yield by a vendor's group identity. Without one they yield on their own thread by the idle
// class, where all that could compete with them has more weight; and on the thread beside it
// by a core-scheduling cookie that nothing but batch work has.
func (a *Agent) stays() string {
	v := &a.loop.view.View
	shared := a.sharedCores()
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Class != workload.BE {
			continue
		}
		t := a.reconciler.Cgroup(a.loop.view.Members[p.First].PodPath)
		if t != nil && slices.ContainsFunc(t.Settings(), isExpelled) {
			continue
		}
		why := a.ranked(p, t)
		if why == "" && v.ThreadsPerCore > 1 {
			why = a.besideOthers(p, shared)
		}
		if why != "" {
			return "pod " + p.Ref + " " + why
		}
	}
	return ""
}

// isExpelled reports whether a vendor's kernel keeps the cgroup off CPUs that others want, and
// off the threads beside them.
func isExpelled(k *reconcile.Setting) bool {
	switch k.Knob {
	case knobs.BVT, knobs.CPUIdentity, knobs.CPUQoS:
		return k.Problem() == "" && k.Value == knobs.Value(knobs.Number(-1))
	}
	return false
}

// ranked tells why a pod of batch work isn't the last on its own thread, "" where it is.
func (a *Agent) ranked(p *control.Pod, t *reconcile.Cgroup) string {
	idle := t != nil && slices.ContainsFunc(t.Settings(), func(k *reconcile.Setting) bool {
		return k.Knob == knobs.Idle && k.Problem() == "" && k.Value == knobs.Value(knobs.Number(1))
	})
	first := &a.loop.view.Members[p.First]
	if !idle {
		if qos := first.Pod.QoS(); qos == workload.Guaranteed || qos == workload.Burstable {
			return fmt.Sprintf("is %s: the kubelet writes its CPU weight, which the kernel refuses in the idle class", qos)
		}
		return "isn't in the idle class (cpu.idle)"
	}
	families, above := a.kin(), a.loop.intents.favour
	box := first.Above
	if f := families[box]; f != nil && len(f.members) > 0 && above[box] <= 100 {
		return a.unfavoured(f.members)
	}
	if !colocation.IsBestEffort(box) && !colocation.IsBurstable(box) {
		return ""
	}
	up := colocation.Above(box)
	f := families[up]
	if f == nil || len(f.members) == 0 {
		return ""
	}
	if slices.ContainsFunc(f.members, func(m member) bool { return m.path == box }) && len(f.members) > 1 {
		return "is below " + box + ", which others that aren't batch are in too"
	}
	if above[up] <= 100 {
		return a.unfavoured(f.members)
	}
	return ""
}

// unfavoured tells why nothing beside batch work has more weight.
func (a *Agent) unfavoured(members []member) string {
	if a.Config.Control.Batch.OnlineWeight <= 100 {
		return "has no less weight than usual beside others (control.batch.onlineWeight)"
	}
	largest, most := "", knobs.Shares(0)
	for _, m := range members {
		if shares, ok := a.ownWeight(m); ok && shares > most {
			largest, most = m.path, shares
		}
	}
	return fmt.Sprintf("is beside %s, which has so much CPU weight (%s shares) that the kernel has no room for more", largest, knobs.FormatValue(most))
}

// sharedCores are the core-scheduling groups that hold others than batch work.
func (a *Agent) sharedCores() map[string]bool {
	if a.loop.view.ThreadsPerCore < 2 {
		return nil
	}
	groups := map[string]bool{}
	for _, c := range a.order {
		if h, ok := a.ledger.Holder(c.ID); ok && h.Request.CoreSched != "" && h.Request.Class != workload.BE {
			groups[h.Request.CoreSched] = true
		}
	}
	return groups
}

// besideOthers tells why a pod's processes may run on the thread beside others than batch
// work, "" where they can't.
func (a *Agent) besideOthers(p *control.Pod, shared map[string]bool) string {
	for _, member := range a.loop.view.Members[p.First : p.First+p.Count] {
		c := a.containers[member.ID]
		h, _ := a.ledger.Holder(c.ID)
		switch group := h.Request.CoreSched; {
		case group == "":
			return "shares cores of two threads with others: it has no core-sched group"
		case shared[group]:
			return fmt.Sprintf("is in the core-sched group %s with others than batch work", group)
		case !a.authority().Cgroups || c.started && len(c.processes) == 0,
			slices.ContainsFunc(c.notes, func(n qos.Note) bool { return n.Key == coreSchedKey }):
			return fmt.Sprintf("has processes outside of its core-sched group %s", group)
		}
	}
	return ""
}
