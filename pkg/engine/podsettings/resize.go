package podsettings

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// ResizeTime is how long a resize may take. After it, the pod gets its settings again even if
// the kubelet has reported no end.
const ResizeTime = 10 * time.Second

// podResize is a resize of a pod, during which the loop gives the pod no quotas.
type podResize struct {
	until   time.Time // the latest end of the resize, since a failed one is never reported
	writing bool      // the runtime has yet to write a container
}

// Suspend restores the knobs that could make the kernel refuse a resize of the pod. writing
// means that the runtime is about to write one of its containers.
func (s *Settings) Suspend(pod *workload.Pod, writing bool) {
	if !s.Authority().Cgroups {
		return
	}
	s.Reconciler.Suspend(pod.UID, s.Now().Add(ResizeTime))
	s.suspendQuotas(pod, writing) // after the bursts: a burst for the loop's quota may exceed the kubelet's quota
}

// suspendQuotas removes the loop's quotas from a pod that the kubelet is resizing, since they
// could make the kernel refuse it. The loop sets them again after the resize.
func (s *Settings) suspendQuotas(pod *workload.Pod, writing bool) {
	s.LifecycleChanges++
	s.resized[pod.UID] = podResize{s.Now().Add(ResizeTime), writing}
	found := s.inForce.PodQuota(pod.UID) != qos.Loop{}
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

// Resume writes a pod's settings again after a resize.
func (s *Settings) Resume(pod *workload.Pod) {
	s.Reconciler.Resume(pod.UID)
	if r, ok := s.resized[pod.UID]; ok {
		s.resized[pod.UID] = podResize{until: r.until}
	}
	for _, c := range s.Members(pod) {
		s.noteLimit(c)
	}
	s.notePodLimit(pod)
	s.Reconcile(pod)
	if o, ok := node.PodObject(pod); ok {
		s.Reconciler.Expect(o.Path, knobs.Weight) // when a pod shrinks, the kubelet writes the pod's cgroup last
	}
}

// resumeOverdue writes the settings of a pod again whose resize had no reported end. It may
// have failed, so it reads the containers' quotas, which bursts must fit, from the kernel.
func (s *Settings) resumeOverdue(uid string) {
	var pod *workload.Pod
	for _, c := range s.Order {
		if c.Pod.UID != uid || !c.Started || !s.Reaches(c) {
			continue
		}
		pod = c.Pod
		own := s.Reconciler.Setting(reconcile.Key{Path: c.Path, Knob: knobs.Quota}) != nil
		if as, _ := s.Ledger.Assignment(c.ID); as.Unlimited || own && s.limitOf(c) == c.Quota {
			continue // the quota is a setting of Sluice's, not the kubelet's
		}
		value, err := s.Kernel.Read(c.Path, knobs.Quota)
		if e, kept := s.Journal.Entry(c.Path, knobs.Quota); own && kept && e.Wrote != nil && err == nil && s.Kernel.Same(knobs.Quota, e.Wrote, value) {
			value = e.Value // normalized: nobody has written it since
		}
		if q, _ := value.(knobs.CPUQuota); err == nil && q.Quota > 0 {
			c.Resources.Quota, c.Resources.Period = q.Quota.Microseconds(), uint64(q.Period.Microseconds())
			c.KeepQuota()
			s.noteLimit(c)
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

// Resizing lists the UIDs of the pods that the kubelet is resizing; nil if there are none.
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

// showsLimits reports whether the kernel shows the requested limits in all containers of a pod,
// and their sum in the pod's own cgroup. The kubelet writes the pod's cgroup before containers
// that grow and after those that shrink (doPodResizeAction in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go). A pod with an unlimited container has no
// limit.
func (s *Settings) showsLimits(uid string) bool {
	var sum, pod knobs.CPUQuota
	limited := true
	for _, c := range s.Order {
		if c.Pod.UID != uid {
			continue
		}
		has, ok := s.quotaAt(c.Path)
		as, placed := s.Ledger.Assignment(c.ID)
		limit := s.limitOf(c)
		if !ok || !c.Started || !placed || !as.Unlimited && has != limit {
			return false
		}
		limited = limited && limit.Quota > 0
		sum.Quota, sum.Period = sum.Quota+limit.Quota, limit.Period
		if pod, ok = s.quotaAt(c.PodPath); !ok {
			return false
		}
	}
	if !limited {
		sum = knobs.CPUQuota{}
	}
	return pod == sum
}

// noteLimit records the limit that the kubelet has given a container in a resize as the original of a
// normalized one.
func (s *Settings) noteLimit(c *node.Container) {
	e, kept := s.Journal.Entry(c.Path, knobs.Quota)
	if !kept || e.Wrote == nil || s.limitOf(c) == c.Quota || e.Value == knobs.Value(c.Quota) {
		return
	}
	s.Journal.Record(c.Object(), knobs.Quota, c.Quota)
	s.Journal.RecordWrite(c.Path, knobs.Quota, e.Wrote)
}

// noteNormalizedPods notes the limits of pods with normalized containers: the kubelet writes the pod's
// before it tells of the resize, and writes both while Sluice does not run.
func (s *Settings) noteNormalizedPods() {
	noted := map[string]bool{}
	for _, c := range s.Order {
		if !noted[c.Pod.UID] && c.Started && s.Reaches(c) && s.limitOf(c) != c.Quota {
			noted[c.Pod.UID] = true
			s.notePodLimit(c.Pod)
		}
	}
}

// notePodLimit records the quota that the kernel shows in a pod as the original if it is neither
// Sluice's nor the present original: the kubelet has written it, and containerd 1.7 reports no resize of
// pods.
func (s *Settings) notePodLimit(pod *workload.Pod) {
	o, ok := node.PodObject(pod)
	e, kept := s.Journal.Entry(o.Path, knobs.Quota)
	if !ok || !kept || e.Wrote == nil {
		return
	}
	have, err := s.Kernel.Read(o.Path, knobs.Quota)
	if err != nil || !have.(knobs.CPUQuota).Finite() || s.Kernel.Same(knobs.Quota, e.Wrote, have) || s.Kernel.Same(knobs.Quota, e.Value, have) {
		return
	}
	s.Journal.Record(o, knobs.Quota, have)
	s.Journal.RecordWrite(o.Path, knobs.Quota, e.Wrote)
}

// limitOf is the CPU limit that the kubelet gave a container, normalized.
func (s *Settings) limitOf(c *node.Container) knobs.CPUQuota {
	h, placed := s.Ledger.Holder(c.ID)
	if !placed {
		return c.Quota
	}
	return s.QoS.Normalized(h.Request.Class, c.Quota)
}

// quotaAt is the quota that the kernel shows for a cgroup; zero if it is unlimited.
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

// NoteQuota records the quota that the kubelet has given a pod in a resize as the original.
func (s *Settings) NoteQuota(pod *workload.Pod, r workload.Resources) {
	o, ok := node.PodObject(pod)
	e, kept := s.Journal.Entry(o.Path, knobs.Quota)
	if !ok || !kept || e.Wrote == nil || r.Quota <= 0 || r.Period == 0 {
		return
	}
	s.Journal.Record(o, knobs.Quota, knobs.MicroQuota(r.Quota, r.Period))
	s.Journal.RecordWrite(o.Path, knobs.Quota, e.Wrote)
}

// NoteWeight records the weight that the kubelet has given a pod as the original. In the
// kernel's files it can't be distinguished from Sluice's when both are equal.
func (s *Settings) NoteWeight(pod *workload.Pod, shares knobs.Shares) {
	o, ok := node.PodObject(pod)
	if _, kept := s.Journal.Original(o.Path, knobs.Weight); ok && kept && shares > 0 {
		s.Journal.Record(o, knobs.Weight, shares)
	}
}

// ExpectRewritten records that the runtime has written a container's CPU time: the quota, which
// changes the burst on some kernels, and the shares, which runc 1.3 and later converts to a
// different weight on v2. If the runtime uses systemd, systemd writes every file that it
// manages of the scope, with the kernel's default where it was given no value
// (cgroup_context_apply in systemd's core/cgroup.c).
func (s *Settings) ExpectRewritten(c *node.Container) {
	s.Reconciler.Expect(c.Path, knobs.Quota, knobs.Burst, knobs.Weight)
	if c.Scoped() {
		s.Reconciler.Expect(c.Path, knobs.BySystemd()...)
	}
}
