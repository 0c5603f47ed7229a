package controlloop

import (
	"fmt"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// notYielding explains which batch pod doesn't yield its CPUs to services at once; "" if all
// do.
func (l *Loop) notYielding() string {
	y := colocation.Yielding{
		ThreadsPerCore: l.View.ThreadsPerCore, OnlineWeight: l.Config.Control.Batch.Weight(), KeepWeights: l.Config.KeepWeights,
		Siblings: l.Settings.Siblings(), Raised: l.Settings.InForce().LSWeights,
	}
	if l.Config.Pools.Mode == config.Exclusive {
		y.ThreadsPerCore = 1 // spare CPUs are whole cores, and a pool has enough others
	}
	if y.ThreadsPerCore > 1 {
		y.SharedGroups = colocation.SharedGroups(l.Settings.Collected())
	}
	for i := range l.View.Pods {
		p := &l.View.Pods[i]
		if p.Class != workload.BE {
			continue
		}
		pod := l.batchPod(l.View.Members[p.First : p.First+p.Count])
		why, beside := y.Stays(&pod)
		if len(beside) > 0 && y.OnlineWeight > 100 && (!y.KeepWeights || !colocation.HasPods(beside)) {
			path, shares := l.heaviest(beside)
			why = fmt.Sprintf("is beside %s, which has so much CPU weight (%s shares) that the kernel has no room for more", path, knobs.FormatValue(shares))
		}
		if why != "" {
			return "pod " + p.Ref + " " + why
		}
	}
	for i := range l.View.HostApplications {
		a := &l.View.HostApplications[i]
		work := colocation.BatchPod{QoS: workload.BestEffort, Above: colocation.Above(a.Cgroup), Containers: []colocation.CoreSched{{}}}
		l.priority(a.Cgroup, &work)
		if why, _ := y.Stays(&work); why != "" {
			return "host application " + a.Name + " " + why
		}
	}
	return ""
}

// priority enters the CPU priority that a cgroup has in the kernel.
func (l *Loop) priority(cgroup string, of *colocation.BatchPod) {
	if t := l.Reconciler.Cgroup(cgroup); t != nil {
		for _, k := range t.Settings() {
			of.Expelled = of.Expelled || isExpelled(k)
			of.Idle = of.Idle || k.Knob == knobs.Idle && k.Problem() == "" && k.Value == knobs.Value(knobs.Number(1))
		}
	}
}

// batchPod describes a batch pod with the settings that the kernel has of it.
func (l *Loop) batchPod(members []colocation.Container) colocation.BatchPod {
	first := &members[0]
	pod := colocation.BatchPod{QoS: first.Pod.QoS(), Above: first.Above}
	l.priority(first.PodPath, &pod)
	for i := range members {
		c := l.Containers[members[i].ID]
		pod.Containers = append(pod.Containers, colocation.CoreSched{Group: members[i].Request.CoreSched, Whole: l.Groups.JoinedCores(c)})
	}
	return pod
}

// isExpelled reports whether a vendor kernel keeps the cgroup off CPUs that services want, and
// off their sibling hyperthreads.
func isExpelled(k *reconcile.Setting) bool {
	return k.Knob.Expels() && k.Problem() == "" && k.Value == knobs.Value(knobs.Number(-1))
}

// heaviest returns the cgroup with the most CPU weight from the kubelet.
func (l *Loop) heaviest(services []colocation.Sibling) (path string, most knobs.Shares) {
	for _, s := range services {
		if shares, ok := l.Settings.OwnWeight(s); ok && shares > most {
			path, most = s.Path, shares
		}
	}
	return path, most
}
