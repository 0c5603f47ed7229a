package agent

import (
	"errors"

	"github.com/sluice-dev/sluice/pkg/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/plan"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// unlimited throttles nothing.
var unlimited = plan.CPUQuota{Quota: -1}

// podQuotas are the CFS quotas of pods' own cgroups that Sluice has lifted, or is
// about to, by pod UID.
type podQuotas map[string]*podQuota

type podQuota struct {
	Path     string        `json:"path"`
	Original plan.CPUQuota `json:"original"`
	saved    bool          // the original is on disk
}

// liftQuota lifts a pod's quota when all its containers have CPUs of their own,
// and gives it back when that no longer holds. An original is on disk before its
// file is written.
func (a *Agent) liftQuota(uid string) {
	if a.Kernel == nil || !a.writes() {
		return
	}
	var pod *workload.Pod
	pinned := true
	for _, c := range a.order {
		if c.pod.UID != uid {
			continue
		}
		h, ok := a.ledger.Holder(c.ID)
		pinned = pinned && ok && !h.CPUs.IsEmpty() && !c.uncontrolled
		pod = c.pod
	}
	switch q := a.pods[uid]; {
	case pod != nil && pinned:
		if a.lift(uid, pod.CgroupParent) {
			a.save(func() { a.liftQuota(uid) })
		}
	case q != nil:
		a.giveBack(uid, q)
	}
}

// liftAll does the same for every pod that has, or had, a pin.
func (a *Agent) liftAll() {
	uids := map[string]bool{}
	for _, h := range a.ledger.Holders() {
		if !h.CPUs.IsEmpty() {
			uids[h.Pod] = true
		}
	}
	for uid := range a.pods {
		uids[uid] = true
	}
	for uid := range uids {
		a.liftQuota(uid)
	}
}

// lift makes a pod's quota unlimited, once the value found is saved. A finite
// value found later is the kubelet's newer one, and becomes the original.
func (a *Agent) lift(uid, parent string) (unsaved bool) {
	path, err := cgroupfs.PodPath(parent)
	if err != nil {
		return false
	}
	value, err := a.Kernel.Read(path, plan.Quota)
	if err != nil {
		return false // no such cgroup: nothing throttles
	}
	found := value.(plan.CPUQuota)
	if found.Quota < 0 {
		return false
	}
	q := a.pods[uid]
	if q == nil || q.Original != found {
		q = &podQuota{Path: path, Original: found}
		a.pods[uid] = q
	}
	if !q.saved {
		return true
	}
	a.write(uid, q, found, unlimited, "all containers of the pod have CPUs of their own") //nolint:errcheck // it logs and is tried again
	return false
}

// giveBack puts a pod's quota back, unless the kubelet has written one since.
func (a *Agent) giveBack(uid string, q *podQuota) {
	now, err := a.Kernel.Read(q.Path, plan.Quota)
	if err == nil && now.(plan.CPUQuota).Unlimited() {
		err = a.write(uid, q, unlimited, q.Original, "not all containers of the pod have CPUs of their own")
	}
	if err != nil && !errors.Is(err, cgroupfs.ErrGone) {
		return
	}
	delete(a.pods, uid)
	a.save(nil)
}

// write sets a pod's quota; what failed is in the log, and the next pass tries
// again.
func (a *Agent) write(uid string, q *podQuota, from, to plan.CPUQuota, why string) error {
	object := plan.Object{Path: q.Path, Name: "pod " + uid, Level: plan.PodLevel}
	_, err := a.apply([]plan.Change{{Object: object, Knob: plan.Quota, From: from, To: to, Why: why}})
	return err
}
