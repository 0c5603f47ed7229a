package agent

import (
	"errors"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// liftQuota lifts a pod's quota when all its containers have CPUs of their own,
// and gives it back when that no longer holds.
func (a *Agent) liftQuota(pod *workload.Pod) {
	if a.Kernel == nil || !a.Authority().Writes {
		return
	}
	object, ok := node.PodObject(pod)
	if !ok {
		return
	}
	some, pinned := false, true
	for _, c := range a.Order {
		if c.Pod.UID == pod.UID {
			h, ok := a.Ledger.Holder(c.ID)
			some, pinned = true, pinned && ok && !h.CPUs.IsEmpty() && !c.Uncontrolled
		}
	}
	if some && pinned && !a.Shares(pod) {
		a.lift(object)
	} else if _, ok := a.lifted[object.Path]; ok {
		a.giveBack(object)
	}
}

// liftAll does the same for every pod that has, or had, a pin.
func (a *Agent) liftAll() {
	seen := map[string]bool{}
	for _, h := range a.Ledger.Holders() {
		c := a.Containers[h.ID]
		if c == nil || h.CPUs.IsEmpty() {
			continue
		}
		if object, ok := node.PodObject(c.Pod); ok && !seen[object.Path] {
			seen[object.Path] = true
			a.liftQuota(c.Pod)
		}
	}
	for path, object := range a.lifted {
		if !seen[path] {
			a.giveBack(object)
		}
	}
}

// lift makes a pod's quota unlimited. A finite value found later is the kubelet's
// newer one, and becomes the original.
func (a *Agent) lift(pod knobs.Object) {
	value, err := a.Kernel.Read(pod.Path, knobs.Quota)
	if err != nil {
		return // no such cgroup: nothing throttles
	}
	found := value.(knobs.CPUQuota)
	if found.Unlimited() {
		return
	}
	at := reconcile.Key{Path: pod.Path, Knob: knobs.Quota}
	if a.Reconciler.Waits(at, node.Unlimited) {
		return
	}
	resizing := a.Now().Before(a.awaited[pod.Path])
	if original, kept := a.Journal.Kept(pod.Path, knobs.Quota); kept && original == value && !a.Reconciler.Refused(at) && !resizing {
		a.Counters.Drift++
		a.Log.WithField("pod", pod.Name).WithField("found", found.String()).Warn("The lifted quota of a pod was put back by somebody else, likely the kubelet: lifted again")
	}
	a.Journal.Keep(pod, knobs.Quota, found)
	a.lifted[pod.Path] = pod
	a.Reconciler.Write([]knobs.Change{{Object: pod, Knob: knobs.Quota, From: found, To: node.Unlimited, Why: "all containers of the pod have CPUs of their own"}}) //nolint:errcheck // it logs and is tried again
}

// giveBack puts a pod's quota back, unless the kubelet has written one since.
func (a *Agent) giveBack(pod knobs.Object) {
	original, kept := a.Journal.Kept(pod.Path, knobs.Quota)
	if kept && a.Reconciler.Waits(reconcile.Key{Path: pod.Path, Knob: knobs.Quota}, original) {
		return
	}
	now, err := a.Kernel.Read(pod.Path, knobs.Quota)
	if err == nil && kept && now.(knobs.CPUQuota).Unlimited() {
		_, err = a.Reconciler.Write([]knobs.Change{{Object: pod, Knob: knobs.Quota, From: node.Unlimited, To: original, Why: "not all containers of the pod have CPUs of their own"}})
	}
	if err != nil && !errors.Is(err, cgroupfs.ErrGone) {
		return
	}
	delete(a.lifted, pod.Path)
	a.Journal.Drop(pod.Path, knobs.Quota)
}
