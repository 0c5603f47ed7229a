package agent

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// intents are the quotas that the loop wants in the kernel now, in place of what was
// asked for.
type intents struct {
	containers map[string]qos.Loop // by id: raised, or demoted
	pods       map[string]qos.Loop // by UID: batch pods that have no box
	boxes      map[string]qos.Loop // by path: cgroups that hold batch pods alone
	favour     map[string]int      // by path of a parent: weight in percent of what isn't batch below it
}

func newIntents() intents {
	return intents{containers: map[string]qos.Loop{}, pods: map[string]qos.Loop{}, boxes: map[string]qos.Loop{}, favour: map[string]int{}}
}

func (i intents) equal(other intents) bool {
	return maps.Equal(i.containers, other.containers) && maps.Equal(i.pods, other.pods) && maps.Equal(i.boxes, other.boxes) && maps.Equal(i.favour, other.favour)
}

// clone copies intents: those in force are compared with those wanted.
func (i intents) clone() intents {
	return intents{maps.Clone(i.containers), maps.Clone(i.pods), maps.Clone(i.boxes), maps.Clone(i.favour)}
}

// inherit takes over, at the first word of what runs here, the quotas and limits of
// batch work that an earlier run has left, so that a restart opens no box before the
// loop has decided.
func (a *Agent) inherit() {
	may := a.authority()
	l := &a.loop
	if l.inherited {
		return
	}
	l.inherited = true
	l.view.BatchCgroups = colocation.FindBatchCgroups(a.loopInventory())
	quotas := may.Acts(a.Config.Control.Batch.Mode) && a.Config.Pools.Mode != config.Exclusive
	limits := may.Acts(a.Config.Control.Memory.Mode)
	for _, e := range a.book.All() {
		boxed := e.Object.Level == knobs.ClassLevel && l.view.BatchCgroups.Holds(e.Object.Path)
		switch wrote := e.Wrote.(type) {
		case knobs.CPUQuota:
			if boxed && quotas {
				l.want.boxes[e.Object.Path] = qos.Loop{Quota: wrote, Why: budgetWhy}
			} else if uid := a.batchPodAt(e.Object.Path); uid != "" && quotas {
				l.want.pods[uid] = qos.Loop{Quota: wrote, Why: budgetWhy}
			}
		case knobs.Bytes:
			boxed = boxed || slices.Contains(l.view.BatchCgroups.Limited, e.Object.Path)
			if limits && e.Knob == knobs.MemoryMax && (boxed || e.Object.Level == knobs.PodLevel && a.batchPodAt(e.Object.Path) != "") {
				l.press.limits[e.Object.Path] = wrote
			}
		}
	}
	a.reweigh()
	l.intents = l.want.clone()
}

// batchPodAt is the UID of the pod with that cgroup, "" where it isn't batch as a
// whole, or in a box.
func (a *Agent) batchPodAt(path string) (uid string) {
	for _, c := range a.order {
		if c.podPath != path {
			continue
		}
		h, ok := a.ledger.Holder(c.ID)
		if !ok || h.Request.Class != workload.BE || a.loop.view.BatchCgroups.Holds(c.box) {
			return ""
		}
		uid = c.pod.UID
	}
	return uid
}

// roomFor keeps what the loop gives a cgroup as large as the quota of each container
// below it that was created and has not started: the runtime makes their cgroups with
// these, and cgroup v1 refuses a quota above that of a cgroup above it.
func (a *Agent) roomFor(l qos.Loop, below []*container) qos.Loop {
	if l.Quota.Quota <= 0 || a.Node.Features.Knobs[knobs.Quota].V2 {
		return l
	}
	for _, c := range below {
		q := c.carried.Quota
		if q.Quota == 0 {
			q = c.quota
		}
		if !c.started && q.Finite() && q.Compare(l.Quota) > 0 {
			l = qos.Loop{Quota: q, Why: "room for a container that is about to start"}
		}
	}
	return l
}

// intend brings the kernel from the present intents to these. Only pods whose quotas
// change are looked at. In preview it notes what it would do.
func (a *Agent) intend(want intents) {
	have := a.loop.intents
	if have.equal(want) {
		return
	}
	a.loop.intents, a.loop.unsafe = want.clone(), true
	if a.Kernel == nil {
		return
	}
	want = a.loop.intents
	below := !a.Node.Features.Knobs[knobs.Quota].V2 // v1: no quota is above that of what holds it
	var pods []*workload.Pod
	seen := map[string]bool{}
	for _, c := range a.order {
		if uid := c.pod.UID; !seen[uid] && (have.favour[c.box] != want.favour[c.box] || have.containers[c.ID] != want.containers[c.ID] || have.pods[uid] != want.pods[uid] ||
			below && have.boxes[c.box] != want.boxes[c.box] && a.hasQuota(c)) {
			seen[uid], pods = true, append(pods, c.pod)
		}
	}
	for _, pod := range pods {
		a.tunePod(pod)
	}
	if !maps.Equal(have.boxes, want.boxes) || !maps.Equal(have.favour, want.favour) {
		a.tuneParents()
	}
	a.reconciler.Apply()
}

// hasQuota reports whether a container or its pod may have a quota without the loop.
func (a *Agent) hasQuota(c *container) bool {
	h, ok := a.ledger.Holder(c.ID)
	return c.quota.Quota > 0 || ok && (h.Request.Batch.CPULimit.Set || h.Request.Batch.CPURequest.Set) || a.reconciler.Setting(reconcile.Key{Path: c.podPath, Knob: knobs.Quota}) != nil
}

// podResize is a resize of a pod, for which the loop leaves its quotas alone.
type podResize struct {
	until   time.Time // at the latest: one that failed has no end
	writing bool      // the runtime has yet to write a container
}

// unraise takes the loop's quotas from a pod that the kubelet resizes, which they
// could stand in the way of; they come back when it is done.
func (a *Agent) unraise(pod *workload.Pod, writing bool) {
	l := &a.loop
	l.resized[pod.UID] = podResize{a.now().Add(resizeTime), writing}
	l.safe.news = true
	_, found := l.intents.pods[pod.UID]
	a.unclaimPod(pod.UID)
	for _, c := range a.order {
		if c.pod.UID != pod.UID {
			continue
		}
		_, raised := l.intents.containers[c.ID]
		found = found || raised
		delete(l.intents.containers, c.ID)
		delete(l.want.containers, c.ID)
	}
	if found {
		a.tunePod(pod)
		a.reconciler.Apply()
	}
}

// isResizing reports whether a resize of the pod is under way.
func (a *Agent) isResizing(uid string) bool {
	r, ok := a.loop.resized[uid]
	if ok && (!a.now().Before(r.until) || !r.writing && a.showsLimits(uid)) {
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
	for _, c := range a.order {
		if c.pod.UID != uid {
			continue
		}
		has, ok := a.quotaAt(c.path)
		as, placed := a.ledger.Assignment(c.ID)
		if !ok || !c.started || !placed || !as.Unlimited && has != c.quota {
			return false
		}
		limited = limited && c.quota.Quota > 0
		sum.Quota, sum.Period = sum.Quota+c.quota.Quota, c.quota.Period
		if pod, ok = a.quotaAt(c.podPath); !ok {
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

// withBoxes adds the boxes' quotas to what the cgroups above pods get.
func (a *Agent) withBoxes(groups []qos.Group) []qos.Group {
	if !a.Node.Features.Has(knobs.Quota) {
		return groups
	}
	for box, l := range a.loop.intents.boxes {
		l = a.roomFor(l, slices.DeleteFunc(slices.Clone(a.order), func(c *container) bool { return c.started || c.box != box }))
		at := slices.IndexFunc(groups, func(g qos.Group) bool { return g.Path == box })
		if at < 0 {
			at, groups = len(groups), append(groups, qos.Group{Path: box})
		}
		groups[at].Settings = append(groups[at].Settings, qos.Setting{Knob: knobs.Quota, Value: l.Quota, Why: l.Why})
	}
	for parent, percent := range a.loop.intents.favour {
		f := a.kin()[parent]
		if f == nil {
			continue
		}
		for _, m := range f.members {
			if !m.class {
				continue
			}
			at := slices.IndexFunc(groups, func(g qos.Group) bool { return g.Path == m.path })
			if at < 0 {
				at, groups = len(groups), append(groups, qos.Group{Path: m.path})
			}
			groups[at].Settings = append(groups[at].Settings, qos.Setting{Knob: knobs.Weight, Percent: 100, Favour: percent, Why: qos.FavourWhy})
		}
	}
	return groups
}

// wantQuota notes the quota of a container, the lowest that a controller wants.
func (a *Agent) wantQuota(id string, want qos.Loop) {
	c := a.containers[id]
	if c == nil || a.isResizing(c.pod.UID) {
		return
	}
	if other, two := a.loop.want.containers[id]; two && want.Quota.Compare(other.Quota) > 0 {
		return
	}
	a.loop.want.containers[id] = want
}
