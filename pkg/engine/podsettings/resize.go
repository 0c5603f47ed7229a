package podsettings

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// ResizeTime is how long a resize may take before its pod is set again without
// word of its end.
const ResizeTime = 10 * time.Second

// podResize is a resize of a pod, for which the loop leaves its quotas alone.
type podResize struct {
	until   time.Time // at the latest: one that failed has no end
	writing bool      // the runtime has yet to write a container
}

// Suspend gives back what would make the kernel refuse a resize of the pod. Writing says that
// the runtime is about to write one of its containers.
func (s *Settings) Suspend(pod *workload.Pod, writing bool) {
	if !s.Authority().Cgroups {
		return
	}
	s.Reconciler.Suspend(pod.UID, s.Now().Add(ResizeTime))
	s.suspendQuotas(pod, writing) // bursts are away by then: one of the new limit may be above the old
}

// suspendQuotas takes the loop's quotas from a pod that the kubelet resizes, which they
// could stand in the way of; they come back when it is done.
func (s *Settings) suspendQuotas(pod *workload.Pod, writing bool) {
	s.Lives++
	s.resized[pod.UID] = podResize{s.Now().Add(ResizeTime), writing}
	_, found := s.inForce.Pods[pod.UID]
	s.unclaimPod(pod.UID)
	for _, c := range s.Order {
		if c.Pod.UID != pod.UID {
			continue
		}
		_, raised := s.inForce.Containers[c.ID]
		found = found || raised
		delete(s.inForce.Containers, c.ID)
		delete(s.Want.Containers, c.ID)
	}
	if found {
		s.declarePod(pod)
		s.Reconciler.Apply()
	}
}

// Resume sets a pod again after a resize.
func (s *Settings) Resume(pod *workload.Pod) {
	s.Reconciler.Resume(pod.UID)
	if r, ok := s.resized[pod.UID]; ok {
		s.resized[pod.UID] = podResize{until: r.until}
	}
	s.Reconcile(pod)
	if o, ok := node.PodObject(pod); ok {
		s.Reconciler.Expect(o.Path, knobs.Weight) // the kubelet writes a pod that shrinks last
	}
}

// resumeOverdue sets a pod again of whose resize no end was told: where it failed, the
// kernel still has the old quotas, and bursts have to fit.
func (s *Settings) resumeOverdue(uid string) {
	var pod *workload.Pod
	for _, c := range s.Order {
		if c.Pod.UID != uid || !c.Started || !s.Reaches(c) {
			continue
		}
		pod = c.Pod
		if as, _ := s.Ledger.Assignment(c.ID); as.Unlimited || s.Reconciler.Setting(reconcile.Key{Path: c.Path, Knob: knobs.Quota}) != nil {
			continue // the quota is Sluice's
		}
		value, err := s.Kernel.Read(c.Path, knobs.Quota)
		if q, _ := value.(knobs.CPUQuota); err == nil && q.Quota > 0 {
			c.Resources.Quota, c.Resources.Period = q.Quota.Microseconds(), uint64(q.Period.Microseconds())
			c.KeepQuota()
		}
	}
	if pod != nil {
		s.declarePod(pod)
		s.Reconciler.Apply()
	}
}

// IsResizing reports whether a resize of the pod is under way.
func (s *Settings) IsResizing(uid string) bool {
	r, ok := s.resized[uid]
	if ok && (!s.Now().Before(r.until) || !r.writing && s.showsLimits(uid)) {
		delete(s.resized, uid)
		return false
	}
	return ok
}

// Resizing are the UIDs of the pods that the kubelet is resizing; nil for none.
func (s *Settings) Resizing() map[string]bool {
	var resizing map[string]bool
	for uid := range s.resized {
		if s.IsResizing(uid) {
			if resizing == nil {
				resizing = map[string]bool{}
			}
			resizing[uid] = true
		}
	}
	return resizing
}

// showsLimits reports whether the kernel shows the limits that the kubelet asked for in
// all containers of a pod, and their sum in the pod's own cgroup: the kubelet writes that
// before containers that grow, and after those that shrink (doPodResizeAction in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go). It gives a pod no limit of which a
// container has none.
func (s *Settings) showsLimits(uid string) bool {
	var sum, pod knobs.CPUQuota
	limited := true
	for _, c := range s.Order {
		if c.Pod.UID != uid {
			continue
		}
		has, ok := s.quotaAt(c.Path)
		as, placed := s.Ledger.Assignment(c.ID)
		if !ok || !c.Started || !placed || !as.Unlimited && has != c.Quota {
			return false
		}
		limited = limited && c.Quota.Quota > 0
		sum.Quota, sum.Period = sum.Quota+c.Quota.Quota, c.Quota.Period
		if pod, ok = s.quotaAt(c.PodPath); !ok {
			return false
		}
	}
	if !limited {
		sum = knobs.CPUQuota{}
	}
	return pod == sum
}

// quotaAt is the quota that the kernel shows, zero where it is unlimited.
func (s *Settings) quotaAt(dir string) (q knobs.CPUQuota, ok bool) {
	if dir == "" {
		return q, false
	}
	value, err := s.Kernel.Read(dir, knobs.Quota)
	if err != nil {
		return q, false
	}
	if q = value.(knobs.CPUQuota); q.Unlimited() {
		q = knobs.CPUQuota{}
	}
	return q, true
}

// NoteQuota notes the quota that the kubelet has given a pod in a resize: it is the original
// from now on.
func (s *Settings) NoteQuota(pod *workload.Pod, r workload.Resources) {
	o, ok := node.PodObject(pod)
	e, kept := s.Journal.Entry(o.Path, knobs.Quota)
	if !ok || !kept || e.Wrote == nil || r.Quota <= 0 || r.Period == 0 {
		return
	}
	s.Journal.Keep(o, knobs.Quota, knobs.MicroQuota(r.Quota, r.Period))
	s.Journal.Wrote(o.Path, knobs.Quota, e.Wrote)
}

// NoteWeight notes the weight that the kubelet has given a pod, which the kernel's
// files don't tell from Sluice's where they happen to be the same.
func (s *Settings) NoteWeight(pod *workload.Pod, shares knobs.Shares) {
	o, ok := node.PodObject(pod)
	if _, kept := s.Journal.Kept(o.Path, knobs.Weight); ok && kept && shares > 0 {
		s.Journal.Keep(o, knobs.Weight, shares)
	}
}

// ExpectRewritten notes that the runtime has written a container's CPU time: the quota,
// which changes the burst on some kernels, and the shares, of which runc makes
// another weight on v2 from 1.3 on. Where systemd does it for the runtime, it writes
// every file that it knows of the scope, with the kernel's default for what it was
// not told of (cgroup_context_apply in systemd's core/cgroup.c).
func (s *Settings) ExpectRewritten(c *node.Container) {
	s.Reconciler.Expect(c.Path, knobs.Quota, knobs.Burst, knobs.Weight)
	if c.Scoped() {
		s.Reconciler.Expect(c.Path, knobs.BySystemd()...)
	}
}
