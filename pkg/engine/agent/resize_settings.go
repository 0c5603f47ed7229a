package agent

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// resizeTime is how long a resize may take before its pod is set again without
// word of its end.
const resizeTime = 10 * time.Second

// suspendSettings gives back what would make the kernel refuse a resize of the pod. Writing says
// that the runtime is about to write one of its containers.
func (a *Agent) suspendSettings(pod *workload.Pod, writing bool) {
	if !a.Authority().Cgroups {
		return
	}
	a.Reconciler.Suspend(pod.UID, a.Now().Add(resizeTime))
	a.suspendQuotas(pod, writing) // bursts are away by then: one of the new limit may be above the old
}

// noteQuota notes the quota that the kubelet has given a pod in a resize: it is the original
// from now on.
func (a *Agent) noteQuota(pod *workload.Pod, r workload.Resources) {
	o, ok := node.PodObject(pod)
	e, kept := a.Journal.Entry(o.Path, knobs.Quota)
	if !ok || !kept || e.Wrote == nil || r.Quota <= 0 || r.Period == 0 {
		return
	}
	a.Journal.Keep(o, knobs.Quota, knobs.MicroQuota(r.Quota, r.Period))
	a.Journal.Wrote(o.Path, knobs.Quota, e.Wrote)
}

// noteWeight notes the weight that the kubelet has given a pod, which the kernel's
// files don't tell from Sluice's where they happen to be the same.
func (a *Agent) noteWeight(pod *workload.Pod, shares knobs.Shares) {
	o, ok := node.PodObject(pod)
	if _, kept := a.Journal.Kept(o.Path, knobs.Weight); ok && kept && shares > 0 {
		a.Journal.Keep(o, knobs.Weight, shares)
	}
}

// resumeSettings sets a pod again after a resize.
func (a *Agent) resumeSettings(pod *workload.Pod) {
	a.Reconciler.Resume(pod.UID)
	if r, ok := a.loop.resized[pod.UID]; ok {
		a.loop.resized[pod.UID] = podResize{until: r.until}
	}
	a.reconcilePod(pod)
	if o, ok := node.PodObject(pod); ok {
		a.Reconciler.Expect(o.Path, knobs.Weight) // the kubelet writes a pod that shrinks last
	}
}

// resumeOverdue sets a pod again of whose resize no end was told: where it failed, the
// kernel still has the old quotas, and bursts have to fit.
func (a *Agent) resumeOverdue(uid string) {
	var pod *workload.Pod
	for _, c := range a.Order {
		if c.Pod.UID != uid || !c.Started || !a.Reaches(c) {
			continue
		}
		pod = c.Pod
		if as, _ := a.Ledger.Assignment(c.ID); as.Unlimited || a.Reconciler.Setting(reconcile.Key{Path: c.Path, Knob: knobs.Quota}) != nil {
			continue // the quota is Sluice's
		}
		value, err := a.Kernel.Read(c.Path, knobs.Quota)
		if q, _ := value.(knobs.CPUQuota); err == nil && q.Quota > 0 {
			c.Resources.Quota, c.Resources.Period = q.Quota.Microseconds(), uint64(q.Period.Microseconds())
			c.KeepQuota()
		}
	}
	if pod != nil {
		a.declarePod(pod)
		a.Reconciler.Apply()
	}
}

// expectRewritten notes that the runtime has written a container's CPU time: the quota,
// which changes the burst on some kernels, and the shares, of which runc makes
// another weight on v2 from 1.3 on. Where systemd does it for the runtime, it writes
// every file that it knows of the scope, with the kernel's default for what it was
// not told of (cgroup_context_apply in systemd's core/cgroup.c).
func (a *Agent) expectRewritten(c *node.Container) {
	a.Reconciler.Expect(c.Path, knobs.Quota, knobs.Burst, knobs.Weight)
	if c.Scoped() {
		a.Reconciler.Expect(c.Path, knobs.BySystemd()...)
	}
}

// updating reports whether the cgroup is a container's that the runtime may be
// updating for Sluice right now.
func (a *Agent) updating(path string) bool {
	if a.lane.pending == nil {
		return false
	}
	c, ok := a.Containers[a.lane.pending.ContainerID]
	return ok && c.Path == path
}
