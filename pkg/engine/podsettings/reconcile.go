package podsettings

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Reconcile writes the settings that a pod, its containers and the cgroups above it should have
// now, and restores the knobs that should have none any more. In preview it reports the changes
// and makes none.
func (s *Settings) Reconcile(pod *workload.Pod) {
	if s.Kernel == nil {
		return
	}
	s.declarePod(pod)
	s.declareParents()
	s.Reconciler.Apply()
	if object, ok := node.PodObject(pod); ok && s.Reconciler.Cgroup(object.Path) == nil {
		s.Kernel.Forget(object.Path) // the pod may end without another event
	}
}

// ReconcileAll writes the settings of every pod after a Synchronize, and restores what an
// earlier run or connection has set and no pod needs now, except the knobs for which keep
// returns true.
func (s *Settings) ReconcileAll(keep func(reconcile.Key) bool) {
	if s.Kernel == nil {
		return
	}
	s.FindHosts()
	s.noteNormalizedPods()
	pods, here := map[string]bool{}, map[string]bool{}
	for _, c := range s.Order { // all before one Apply, which writes parents' larger quotas first
		here[c.Path] = true
		if !pods[c.Pod.UID] {
			pods[c.Pod.UID] = true
			s.declarePod(c.Pod)
		}
	}
	s.declareParents()
	for _, c := range slices.Collect(s.Reconciler.Cgroups()) {
		if c.Pod() != "" && !pods[c.Pod()] || c.Level == knobs.ContainerLevel && !here[c.Path] {
			s.Reconciler.Want(c.Object, c.Pod(), nil)
		}
	}
	s.Reconciler.ReleaseUnwanted(keep)
	s.Reconciler.Apply()
}

// Pass compares every cgroup that has settings with the kernel, except those of pods that are
// being resized.
func (s *Settings) Pass() {
	if !s.Authority().Cgroups {
		return
	}
	s.noteNormalizedPods()
	for _, uid := range s.Reconciler.ResumeOverdue() {
		s.resumeOverdue(uid)
	}
	for uid := range s.resized {
		if pod := s.podOf(uid); pod != nil {
			s.notePodLimit(pod)
		}
	}
	s.Reconciler.Pass()
}

// podOf returns the pod with that UID, or nil.
func (s *Settings) podOf(uid string) *workload.Pod {
	for _, c := range s.Order {
		if c.Pod.UID == uid {
			return c.Pod
		}
	}
	return nil
}

// declarePod declares the settings of a pod's cgroup and of its containers'. The pod's limits
// include containers that are created and have not started, so that there is room for them when
// the runtime makes their cgroups: v1 refuses a quota above the pod's.
func (s *Settings) declarePod(pod *workload.Pod) {
	members := s.Members(pod)
	object, ok := node.PodObject(pod)
	p := qos.Pod{
		QoS: pod.QoS(), Quota: s.podLimit(object), Containers: make([]qos.Container, len(members)),
		Loop:    s.roomFor(s.inForce.PodQuota(pod.UID), members),
		Ceiling: s.roomFor(s.inForce.BatchCgroups[colocation.Above(object.Path)], members), KeepWeight: s.Config.KeepWeights,
	}
	if rank, _ := colocation.RankOf(s.requestsOf(pod)); rank == colocation.RankService {
		p.WeightPercent = s.inForce.LSWeights[colocation.Above(object.Path)]
	}
	for i, c := range members {
		p.Containers[i] = s.tunable(c)
		p.Containers[i].Loop = s.inForce.Containers[c.ID]
	}
	settings := qos.For(&s.QoS, &p)
	if ok {
		if s.Shares(pod) {
			settings.Pod = nil
		}
		s.keepRoom(object, settings.Pod)
		s.Reconciler.Want(object, pod.UID, settings.Pod)
	}
	for i, c := range members {
		if !c.Started {
			continue
		}
		c.Notes = s.lacking(&p.Containers[i].Request, settings.Notes[i])
		c.Reclaim = qos.Reclaim{}
		if settings.Reclaim != nil {
			c.Reclaim = settings.Reclaim[i]
		}
		s.Reconciler.Want(c.Object(), pod.UID, settings.Containers[i])
	}
}

// requestsOf lists the requests of the pod's placed containers, including those whose cgroups
// Sluice doesn't write.
func (s *Settings) requestsOf(pod *workload.Pod) (requests []*workload.Request) {
	for _, c := range s.Order {
		if h, placed := s.Ledger.Holder(c.ID); placed && c.Pod.UID == pod.UID {
			requests = append(requests, &h.Request)
		}
	}
	return requests
}

// keepRoom never lowers a pod's memory limit. The pod is still charged for files in memory and
// page cache of a container that has ended, and to get below a lower limit the kernel would
// kill the pod's other containers.
func (s *Settings) keepRoom(pod knobs.Object, settings []qos.Setting) {
	e, _ := s.Journal.Entry(pod.Path, knobs.MemoryMax)
	before, _ := e.Wrote.(knobs.Bytes)
	for i := range settings {
		if now, ok := settings[i].Value.(knobs.Bytes); ok && settings[i].Knob == knobs.MemoryMax {
			settings[i].Value = max(now, before)
		}
	}
}

// podLimit is the quota that the kubelet gave the pod's own cgroup; unlimited if it gave none.
func (s *Settings) podLimit(pod knobs.Object) knobs.CPUQuota {
	value, kept := s.Journal.Original(pod.Path, knobs.Quota)
	if !kept {
		var err error
		if value, err = s.Kernel.Read(pod.Path, knobs.Quota); err != nil {
			return knobs.UnlimitedQuota()
		}
	}
	return value.(knobs.CPUQuota)
}

// declareParents declares the settings that the cgroups above pods need for those of their
// pods, and those of the cgroups of host applications.
func (s *Settings) declareParents() {
	var pods []qos.Group
	var above []knobs.Object
	for c := range s.Reconciler.Cgroups() {
		switch c.Level {
		case knobs.PodLevel:
			group := qos.Group{Path: c.Path}
			for _, setting := range c.Settings() {
				group.Settings = append(group.Settings, setting.Setting)
			}
			pods = append(pods, group)
		case knobs.ClassLevel:
			above = append(above, c.Object)
		case knobs.ContainerLevel:
		}
	}
	wanted := map[string]bool{}
	for _, g := range s.withWeights(s.withBatchCgroups(s.withHosts(qos.Parents(pods))), pods) {
		wanted[g.Path] = true
		s.Reconciler.Want(knobs.Object{Path: g.Path, Name: g.Path, Level: knobs.ClassLevel}, "", g.Settings)
	}
	for _, o := range above {
		if !wanted[o.Path] {
			s.Reconciler.Want(o, "", nil)
		}
	}
}

// withBatchCgroups adds the batch cgroups' quotas and the LS weights to the settings of cgroups
// above pods.
func (s *Settings) withBatchCgroups(groups []qos.Group) []qos.Group {
	if !s.QoS.Features.Has(knobs.Quota) {
		return groups
	}
	for dir, l := range s.inForce.BatchCgroups {
		l = s.roomFor(l, slices.DeleteFunc(slices.Clone(s.Order), func(c *node.Container) bool { return c.Started || c.Above != dir }))
		at := slices.IndexFunc(groups, func(g qos.Group) bool { return g.Path == dir })
		if at < 0 {
			at, groups = len(groups), append(groups, qos.Group{Path: dir})
		}
		groups[at].Settings = append(groups[at].Settings, qos.Setting{Knob: knobs.Quota, Value: l.Quota, AtMostOriginal: true, Why: l.Why})
	}
	for parent, percent := range s.inForce.LSWeights {
		for _, service := range s.servicesBelow(parent) {
			if !service.Class {
				continue
			}
			at := slices.IndexFunc(groups, func(g qos.Group) bool { return g.Path == service.Path })
			if at < 0 {
				at, groups = len(groups), append(groups, qos.Group{Path: service.Path})
			}
			groups[at].Settings = append(groups[at].Settings, qos.Setting{Knob: knobs.Weight, Percent: 100, ScalePercent: percent, Why: qos.LSWeightWhy})
		}
	}
	return groups
}

// withWeights adds the I/O weights of QoS classes to the settings of cgroups above pods.
func (s *Settings) withWeights(groups, pods []qos.Group) []qos.Group {
	weights := map[string]knobs.Weights{}
	for _, c := range s.Order {
		if c.PodPath != "" {
			weights[c.PodPath] = knobs.Weights{Default: knobs.DefaultIOWeight}
		}
	}
	lower := false
	for _, pod := range pods {
		for _, setting := range pod.Settings {
			if v, ok := setting.Value.(knobs.PerDevice); ok && (setting.Knob == knobs.IOWeight || setting.Knob == knobs.BFQWeight) {
				w := v.Weights()
				weights[pod.Path], lower = w, lower || w.Default < knobs.DefaultIOWeight
			}
		}
	}
	if !lower {
		return groups
	}
	for _, g := range qos.ClassWeights(&s.QoS, weights) {
		at := slices.IndexFunc(groups, func(other qos.Group) bool { return other.Path == g.Path })
		if at < 0 {
			at, groups = len(groups), append(groups, qos.Group{Path: g.Path})
		}
		groups[at].Settings = append(groups[at].Settings, g.Settings...)
	}
	return groups
}

// Alone returns the settings that a container would have alone in its pod, with its request as
// far as settings depend on it. It also notes what this node lacks for them.
func (s *Settings) Alone(c *node.Container) (settings []qos.Setting, request *workload.Request) {
	pod := qos.Pod{QoS: c.Pod.QoS(), Containers: []qos.Container{s.tunable(c)}, KeepWeight: s.Config.KeepWeights}
	all := qos.For(&s.QoS, &pod)
	request = &pod.Containers[0].Request
	c.Notes = s.lacking(request, all.Notes[0])
	return all.Containers[0], request
}

// tunable describes a container for pkg/decide/qos.
func (s *Settings) tunable(c *node.Container) qos.Container {
	t := qos.Container{Quota: c.Quota, MemoryLimit: c.Resources.MemoryLimit, Starting: !c.Started}
	if h, ok := s.Ledger.Holder(c.ID); ok {
		t.Request, t.Own = h.Request, !h.CPUs.IsEmpty()
	}
	return t
}
