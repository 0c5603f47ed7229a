package agent

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// inherit takes over, at the first word of what runs here, the quotas and limits of
// batch work that an earlier run has left, so that a restart lifts no limit before the
// loop has decided.
func (a *Agent) inherit() {
	may := a.Authority()
	l := &a.loop
	if l.inherited {
		return
	}
	l.inherited = true
	l.view.BatchCgroups = colocation.FindBatchCgroups(a.loopInventory())
	quotas := may.Acts(a.Config.Control.Batch.Mode) && a.Config.Pools.Mode != config.Exclusive
	limits := may.Acts(a.Config.Control.Memory.Mode)
	for _, e := range a.Journal.All() {
		boxed := e.Object.Level == knobs.ClassLevel && l.view.BatchCgroups.Holds(e.Object.Path)
		switch wrote := e.Wrote.(type) {
		case knobs.CPUQuota:
			if boxed && quotas {
				l.want.BatchCgroups[e.Object.Path] = qos.Loop{Quota: wrote, Why: colocation.BudgetWhy}
			} else if uid := a.batchPodAt(e.Object.Path); uid != "" && quotas {
				l.want.Pods[uid] = qos.Loop{Quota: wrote, Why: colocation.BudgetWhy}
			}
		case knobs.Bytes:
			boxed = boxed || slices.Contains(l.view.BatchCgroups.Limited, e.Object.Path)
			if limits && e.Knob == knobs.MemoryMax && (boxed || e.Object.Level == knobs.PodLevel && a.batchPodAt(e.Object.Path) != "") {
				l.limiter.limits[e.Object.Path] = wrote
			}
		}
	}
	a.reweigh()
	l.inForce = l.want.Clone()
}

// batchPodAt is the UID of the pod with that cgroup, "" where it isn't batch as a
// whole, or in a batch cgroup.
func (a *Agent) batchPodAt(path string) (uid string) {
	for _, c := range a.Order {
		if c.PodPath != path {
			continue
		}
		h, ok := a.Ledger.Holder(c.ID)
		if !ok || h.Request.Class != workload.BE || a.loop.view.BatchCgroups.Holds(c.Above) {
			return ""
		}
		uid = c.Pod.UID
	}
	return uid
}

// roomFor keeps what the loop gives a cgroup as large as the quota of each container
// below it that was created and has not started: the runtime makes their cgroups with
// these, and cgroup v1 refuses a quota above that of a cgroup above it.
func (a *Agent) roomFor(l qos.Loop, below []*node.Container) qos.Loop {
	if l.Quota.Quota <= 0 || a.QoS.Features.Knobs[knobs.Quota].V2 {
		return l
	}
	for _, c := range below {
		q, carried := c.Carried[knobs.Quota].(knobs.CPUQuota)
		if !carried {
			q = c.Quota
		}
		if !c.Started && q.Finite() && q.Compare(l.Quota) > 0 {
			l = qos.Loop{Quota: q, Why: "room for a container that is about to start"}
		}
	}
	return l
}

// intend brings the kernel from what is in force to what is wanted. It touches only the
// pods whose quotas or weights change. In preview it notes what it would do.
func (a *Agent) intend(want colocation.CPUDesired) {
	have := a.loop.inForce
	if have.Equal(want) {
		return
	}
	a.loop.inForce, a.loop.failsafeStale = want.Clone(), true
	if a.Kernel == nil {
		return
	}
	want = a.loop.inForce
	below := !a.QoS.Features.Knobs[knobs.Quota].V2 // v1: no quota is above that of what holds it
	var pods []*workload.Pod
	seen := map[string]bool{}
	for _, c := range a.Order {
		if uid := c.Pod.UID; !seen[uid] && (have.LSWeights[c.Above] != want.LSWeights[c.Above] || have.Containers[c.ID] != want.Containers[c.ID] || have.Pods[uid] != want.Pods[uid] ||
			below && have.BatchCgroups[c.Above] != want.BatchCgroups[c.Above] && a.hasQuota(c)) {
			seen[uid], pods = true, append(pods, c.Pod)
		}
	}
	for _, pod := range pods {
		a.declarePod(pod)
	}
	if !maps.Equal(have.BatchCgroups, want.BatchCgroups) || !maps.Equal(have.LSWeights, want.LSWeights) {
		a.declareParents()
	}
	a.Reconciler.Apply()
}

// hasQuota reports whether a container or its pod may have a quota without the loop.
func (a *Agent) hasQuota(c *node.Container) bool {
	h, ok := a.Ledger.Holder(c.ID)
	return c.Quota.Quota > 0 || ok && (h.Request.Batch.CPULimit.Set || h.Request.Batch.CPURequest.Set) || a.Reconciler.Setting(reconcile.Key{Path: c.PodPath, Knob: knobs.Quota}) != nil
}

// podResize is a resize of a pod, for which the loop leaves its quotas alone.
type podResize struct {
	until   time.Time // at the latest: one that failed has no end
	writing bool      // the runtime has yet to write a container
}

// suspendQuotas takes the loop's quotas from a pod that the kubelet resizes, which they
// could stand in the way of; they come back when it is done.
func (a *Agent) suspendQuotas(pod *workload.Pod, writing bool) {
	l := &a.loop
	l.resized[pod.UID] = podResize{a.Now().Add(resizeTime), writing}
	l.safe.news = true
	_, found := l.inForce.Pods[pod.UID]
	a.unclaimPod(pod.UID)
	for _, c := range a.Order {
		if c.Pod.UID != pod.UID {
			continue
		}
		_, raised := l.inForce.Containers[c.ID]
		found = found || raised
		delete(l.inForce.Containers, c.ID)
		delete(l.want.Containers, c.ID)
	}
	if found {
		a.declarePod(pod)
		a.Reconciler.Apply()
	}
}

// isResizing reports whether a resize of the pod is under way.
func (a *Agent) isResizing(uid string) bool {
	r, ok := a.loop.resized[uid]
	if ok && (!a.Now().Before(r.until) || !r.writing && a.showsLimits(uid)) {
		delete(a.loop.resized, uid)
		return false
	}
	return ok
}

// showsLimits reports whether the kernel shows the limits that the kubelet asked for in
// all containers of a pod, and their sum in the pod's own cgroup: the kubelet writes that
// before containers that grow, and after those that shrink (doPodResizeAction in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go). It gives a pod no limit of which a
// container has none.
func (a *Agent) showsLimits(uid string) bool {
	var sum, pod knobs.CPUQuota
	limited := true
	for _, c := range a.Order {
		if c.Pod.UID != uid {
			continue
		}
		has, ok := a.quotaAt(c.Path)
		as, placed := a.Ledger.Assignment(c.ID)
		if !ok || !c.Started || !placed || !as.Unlimited && has != c.Quota {
			return false
		}
		limited = limited && c.Quota.Quota > 0
		sum.Quota, sum.Period = sum.Quota+c.Quota.Quota, c.Quota.Period
		if pod, ok = a.quotaAt(c.PodPath); !ok {
			return false
		}
	}
	if !limited {
		sum = knobs.CPUQuota{}
	}
	return pod == sum
}

// quotaAt is the quota that the kernel shows, zero where it is unlimited.
func (a *Agent) quotaAt(dir string) (q knobs.CPUQuota, ok bool) {
	if dir == "" {
		return q, false
	}
	value, err := a.Kernel.Read(dir, knobs.Quota)
	if err != nil {
		return q, false
	}
	if q = value.(knobs.CPUQuota); q.Unlimited() {
		q = knobs.CPUQuota{}
	}
	return q, true
}

// withBatchCgroups adds the batch cgroups' quotas and the classes' weights to what the cgroups above pods get.
func (a *Agent) withBatchCgroups(groups []qos.Group) []qos.Group {
	if !a.QoS.Features.Has(knobs.Quota) {
		return groups
	}
	for dir, l := range a.loop.inForce.BatchCgroups {
		l = a.roomFor(l, slices.DeleteFunc(slices.Clone(a.Order), func(c *node.Container) bool { return c.Started || c.Above != dir }))
		at := slices.IndexFunc(groups, func(g qos.Group) bool { return g.Path == dir })
		if at < 0 {
			at, groups = len(groups), append(groups, qos.Group{Path: dir})
		}
		groups[at].Settings = append(groups[at].Settings, qos.Setting{Knob: knobs.Quota, Value: l.Quota, Why: l.Why})
	}
	for parent, percent := range a.loop.inForce.LSWeights {
		for _, s := range a.servicesBelow(parent) {
			if !s.Class {
				continue
			}
			at := slices.IndexFunc(groups, func(g qos.Group) bool { return g.Path == s.Path })
			if at < 0 {
				at, groups = len(groups), append(groups, qos.Group{Path: s.Path})
			}
			groups[at].Settings = append(groups[at].Settings, qos.Setting{Knob: knobs.Weight, Percent: 100, Favour: percent, Why: qos.FavourWhy})
		}
	}
	return groups
}
