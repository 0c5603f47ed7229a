package agent

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// reconcilePod brings the cgroups of a pod, of its containers, and above it to what they ask
// for, and gives back what is asked for no more. In preview it notes what it would do.
func (a *Agent) reconcilePod(pod *workload.Pod) {
	if a.Kernel == nil {
		return
	}
	a.declarePod(pod)
	a.declareParents()
	a.Reconciler.Apply()
	if object, ok := node.PodObject(pod); ok && a.Reconciler.Cgroup(object.Path) == nil {
		a.Kernel.Forget(object.Path) // it may end without another look at it
	}
}

// declarePod declares what the cgroups of a pod and of its containers are to have. Containers
// that are created and have not started count for the pod, so that it has room for them when
// the runtime makes their cgroups: v1 refuses a quota above the pod's.
func (a *Agent) declarePod(pod *workload.Pod) {
	members := a.Members(pod)
	object, ok := node.PodObject(pod)
	p := qos.Pod{
		QoS: pod.QoS(), Quota: a.podLimit(object), Containers: make([]qos.Container, len(members)),
		Loop:    a.roomFor(a.loop.inForce.Pods[pod.UID], members),
		Ceiling: a.roomFor(a.loop.inForce.BatchCgroups[colocation.Above(object.Path)], members),
	}
	if rank, _ := colocation.RankOf(a.requestsOf(pod)); rank == colocation.RankService {
		p.Favour = a.loop.inForce.LSWeights[colocation.Above(object.Path)]
	}
	for i, c := range members {
		p.Containers[i] = a.tunable(c)
		p.Containers[i].Loop = a.loop.inForce.Containers[c.ID]
	}
	settings := qos.For(&a.QoS, &p)
	if ok {
		if a.Shares(pod) {
			settings.Pod = nil
		}
		a.keepRoom(object, settings.Pod)
		a.Reconciler.Want(object, pod.UID, settings.Pod)
	}
	for i, c := range members {
		if !c.Started {
			continue
		}
		c.Notes = a.lackOfNode(&p.Containers[i].Request, settings.Notes[i])
		c.Reclaim = qos.Reclaim{}
		if settings.Reclaim != nil {
			c.Reclaim = settings.Reclaim[i]
		}
		a.Reconciler.Want(c.Object(), pod.UID, settings.Containers[i])
	}
}

// keepRoom leaves a pod's memory limit as high as it has been: of a container that
// ended, the pod is still charged for what it left behind (files in memory, page
// cache), and the kernel would kill others of the pod to get below a lower one.
func (a *Agent) keepRoom(pod knobs.Object, settings []qos.Setting) {
	e, _ := a.Journal.Entry(pod.Path, knobs.MemoryMax)
	before, _ := e.Wrote.(knobs.Bytes)
	for i := range settings {
		if now, ok := settings[i].Value.(knobs.Bytes); ok && settings[i].Knob == knobs.MemoryMax {
			settings[i].Value = max(now, before)
		}
	}
}

// podLimit is the quota that the kubelet gave the pod's own cgroup; unlimited
// where it gave none.
func (a *Agent) podLimit(pod knobs.Object) knobs.CPUQuota {
	value, kept := a.Journal.Kept(pod.Path, knobs.Quota)
	if !kept {
		var err error
		if value, err = a.Kernel.Read(pod.Path, knobs.Quota); err != nil {
			return node.Unlimited
		}
	}
	return value.(knobs.CPUQuota)
}

// declareParents declares what the cgroups above pods are to have for the settings of their pods.
func (a *Agent) declareParents() {
	var pods []qos.Group
	var above []knobs.Object
	for c := range a.Reconciler.Cgroups() {
		switch c.Level {
		case knobs.PodLevel:
			group := qos.Group{Path: c.Path}
			for _, s := range c.Settings() {
				group.Settings = append(group.Settings, s.Setting)
			}
			pods = append(pods, group)
		case knobs.ClassLevel:
			above = append(above, c.Object)
		case knobs.ContainerLevel:
		}
	}
	wanted := map[string]bool{}
	for _, g := range a.withBatchCgroups(qos.Parents(pods)) {
		wanted[g.Path] = true
		a.Reconciler.Want(knobs.Object{Path: g.Path, Name: g.Path, Level: knobs.ClassLevel}, "", g.Settings)
	}
	for _, o := range above {
		if !wanted[o.Path] {
			a.Reconciler.Want(o, "", nil)
		}
	}
}

// tunable is a container as its settings depend on it.
func (a *Agent) tunable(c *node.Container) qos.Container {
	t := qos.Container{Quota: c.Quota, MemoryLimit: c.Resources.MemoryLimit}
	if h, ok := a.Ledger.Holder(c.ID); ok {
		t.Request, t.Own = h.Request, !h.CPUs.IsEmpty()
	}
	return t
}

// reconcileAll brings the cgroups of every pod to what they ask for, after a connection has told
// what runs, and gives back what an earlier run or connection has set and nobody asks for now.
func (a *Agent) reconcileAll() {
	if a.Kernel == nil {
		return
	}
	pods, here := map[string]bool{}, map[string]bool{}
	for _, c := range a.Order { // all before one Apply: what holds a pod opens before it
		here[c.Path] = true
		if !pods[c.Pod.UID] {
			pods[c.Pod.UID] = true
			a.declarePod(c.Pod)
		}
	}
	a.declareParents()
	for _, c := range slices.Collect(a.Reconciler.Cgroups()) {
		if c.Pod() != "" && !pods[c.Pod()] || c.Level == knobs.ContainerLevel && !here[c.Path] {
			a.Reconciler.Want(c.Object, c.Pod(), nil)
		}
	}
	a.Reconciler.ReleaseUnwanted(a.ownsLimit)
	a.Reconciler.Apply()
}

// reconcilePass compares every cgroup that has settings with the kernel, but for those of pods
// that are being resized.
func (a *Agent) reconcilePass() {
	if !a.Authority().Cgroups {
		return
	}
	for _, uid := range a.Reconciler.ResumeOverdue() {
		a.resumeOverdue(uid)
	}
	a.Reconciler.Pass()
}

// newReconciler makes the owner of cgroups' settings, with the journal that was loaded.
func (a *Agent) newReconciler() *reconcile.Reconciler {
	return reconcile.New(reconcile.Options{
		Kernel: a.Kernel, Journal: a.Journal, Features: &a.QoS.Features, Log: a.Log, Now: a.Now,
		MayWrite:      func() bool { return a.Authority().Cgroups },
		DriftInterval: func() time.Duration { return a.Config.DriftInterval },
		Carried:       a.unadjusted,
		Updating:      a.updating,
		Starting:      a.IsStarting,
		Suspect:       a.Suspect,
		Failed: func(at reconcile.Key) {
			if c := a.ByPath[at.Path]; c != nil {
				a.cpusets.Observe(c, at.Knob)
			}
		},
		Blocking: a.Clock != nil,
		Spawn:    a.spawn,
		Post:     a.post,
		Panicked: func() { a.Counters.Panics++ },
	})
}
