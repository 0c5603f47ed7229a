package cpusets

import (
	"errors"
	"maps"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// LiftQuota lifts a pod's quota if all of its containers have CPUs of their own, and restores
// it otherwise.
func (w *Writer) LiftQuota(pod *workload.Pod) {
	if w.Kernel == nil || !w.Authority().Writes {
		return
	}
	object, ok := node.PodObject(pod)
	if !ok {
		return
	}
	some, pinned := false, true
	for _, c := range w.Order {
		if c.Pod.UID == pod.UID {
			h, ok := w.Ledger.Holder(c.ID)
			some, pinned = true, pinned && ok && !h.CPUs.IsEmpty() && !c.Uncontrolled
		}
	}
	if some && pinned && !w.Shares(pod) {
		w.lift(object)
	} else if _, ok := w.lifted[object.Path]; ok {
		w.giveBack(object)
	}
}

// LiftAll lifts the quotas of all pods whose containers all have CPUs of their own, and
// restores those of the others.
func (w *Writer) LiftAll() {
	seen := map[string]bool{}
	for _, c := range w.Order {
		if h, ok := w.Ledger.Holder(c.ID); !ok || h.CPUs.IsEmpty() {
			continue
		}
		if object, ok := node.PodObject(c.Pod); ok && !seen[object.Path] {
			seen[object.Path] = true
			w.LiftQuota(c.Pod)
		}
	}
	for path, object := range w.lifted {
		if !seen[path] {
			w.giveBack(object)
		}
	}
}

// lift makes a pod's quota unlimited. A finite quota that it finds later is a newer one of the
// kubelet's, and becomes the original.
func (w *Writer) lift(pod knobs.Object) {
	value, err := w.Kernel.Read(pod.Path, knobs.Quota)
	if err != nil {
		return // without a cgroup there is no quota to lift
	}
	found := value.(knobs.CPUQuota)
	if found.Unlimited() {
		return
	}
	at := reconcile.Key{Path: pod.Path, Knob: knobs.Quota}
	if w.Reconciler.Waits(at, knobs.UnlimitedQuota()) {
		return
	}
	e, kept := w.Journal.Entry(pod.Path, knobs.Quota)
	if kept && e.Wrote != nil {
		return // a setting that the reconciler gives back first
	}
	underWay := w.Now().Before(w.resizing[pod.Path])
	if kept && e.Value == value && !w.Reconciler.Refused(at) && !underWay {
		w.Counters.Drift++
		w.Log.WithField("pod", pod.Name).WithField("found", found.String()).Warn("The lifted quota of a pod was put back by somebody else, likely the kubelet: lifted again")
	}
	w.Journal.Record(pod, knobs.Quota, found)
	w.lifted[pod.Path] = pod
	w.Reconciler.Write([]knobs.Change{{Object: pod, Knob: knobs.Quota, From: found, To: knobs.UnlimitedQuota(), Why: "all containers of the pod have CPUs of their own"}}) //nolint:errcheck // it logs and is tried again
}

// giveBack restores a pod's quota unless the kubelet has written one since.
func (w *Writer) giveBack(pod knobs.Object) {
	if w.Reconciler.Setting(reconcile.Key{Path: pod.Path, Knob: knobs.Quota}) != nil {
		delete(w.lifted, pod.Path) // it has a quota of Sluice's again, which needs the original
		return
	}
	original, kept := w.Journal.Original(pod.Path, knobs.Quota)
	if kept && w.Reconciler.Waits(reconcile.Key{Path: pod.Path, Knob: knobs.Quota}, original) {
		return
	}
	now, err := w.Kernel.Read(pod.Path, knobs.Quota)
	if err == nil && kept && now.(knobs.CPUQuota).Unlimited() {
		_, err = w.Reconciler.Write([]knobs.Change{{Object: pod, Knob: knobs.Quota, From: knobs.UnlimitedQuota(), To: original, Why: "not all containers of the pod have CPUs of their own"}})
	}
	if err != nil && !errors.Is(err, cgroupfs.ErrGone) || w.Reconciler.Unsaved() {
		return // a later pass tries again; nothing is written while the journal can't be
	}
	delete(w.lifted, pod.Path)
	w.Journal.Drop(pod.Path, knobs.Quota)
}

// AwaitResize records that a pod's resize is under way: the kubelet writes the pod's own quota
// before each attempt. The record expires after patience, since the kubelet may never report an
// end.
func (w *Writer) AwaitResize(pod *workload.Pod, patience time.Duration) {
	now := w.Now()
	maps.DeleteFunc(w.resizing, func(_ string, until time.Time) bool { return now.After(until) })
	if o, ok := node.PodObject(pod); ok {
		w.resizing[o.Path] = now.Add(patience)
	}
}

// Lifted is the number of pods whose quota is lifted.
func (w *Writer) Lifted() int { return len(w.lifted) }
