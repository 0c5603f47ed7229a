package agent

import (
	"errors"
	"path"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// compare returns the changes that a cgroup lacks by the kernel's own word. What
// it had before is in the book before any of them is made. What the kernel has refused
// waits, unless it is to be tried at once.
func (a *Agent) compare(t *tuned, atOnce bool) []knobs.Change {
	if !a.authority().Cgroups {
		return nil
	}
	var changes []knobs.Change
	_, resizing := a.resizing[t.pod]
	for _, k := range t.knobs {
		if k.withdrawn && resizing {
			continue // it would stand in the way again
		}
		have, err := a.Kernel.Read(t.Path, k.Knob)
		if errors.Is(err, cgroupfs.ErrGone) {
			return nil
		}
		if err != nil {
			a.trouble(k, err.Error())
			continue
		}
		want, ok := a.target(t, k, have)
		if !ok {
			continue
		}
		if next, busy := a.changeAfter(t, k, want); busy {
			changes = append(changes, next...)
			continue
		}
		if a.Kernel.Same(k.Knob, want, have) {
			k.withdrawn = false
			a.trouble(k, "")
			delete(a.refused, reconcile.Key{Path: t.Path, Knob: k.Knob})
			a.book.Wrote(t.Path, k.Knob, want) // by an earlier run, or by the runtime for Sluice
			continue
		}
		if !atOnce && a.held(reconcile.Key{Path: t.Path, Knob: k.Knob}, want) {
			continue
		}
		if t.Level == knobs.ClassLevel && k.Percent > 0 && a.isDrift(t, k, have) {
			// The kubelet writes the weight of its QoS classes each minute.
			a.book.Keep(t.Object, k.Knob, have)
			want, _ = a.target(t, k, have)
		} else if a.isDrift(t, k, have) {
			if !a.repairs(t, k, want, have) {
				continue
			}
			if k.Knob == knobs.Weight && t.Level == knobs.PodLevel {
				a.book.Keep(t.Object, k.Knob, have) // the kubelet's newer one
				want, _ = a.target(t, k, have)
			}
		}
		changes = append(changes, a.changeTo(t, k, have, want))
	}
	return changes
}

// changeAfter is the change of a setting to which a write is under way, none where that
// is the right one. It is not compared with the kernel meanwhile.
func (a *Agent) changeAfter(t *tuned, k *knob, want knobs.Value) (next []knobs.Change, busy bool) {
	coming := a.writer.underWay(reconcile.Key{Path: t.Path, Knob: k.Knob})
	if coming == nil || coming == want {
		return nil, coming != nil
	}
	return []knobs.Change{a.changeTo(t, k, coming, want)}, true
}

// changeTo is the change of a setting, noted as written before it is.
func (a *Agent) changeTo(t *tuned, k *knob, from, to knobs.Value) knobs.Change {
	k.withdrawn = false
	e, _ := a.book.Entry(t.Path, k.Knob)
	k.before = e.Wrote
	a.book.Wrote(t.Path, k.Knob, to)
	return knobs.Change{Object: t.Object, Knob: k.Knob, From: from, To: to, Why: k.Why}
}

// target is the value that a knob is to have; ok is false where it is left to
// somebody else. The value found is kept as the original at first, and a weight
// again where somebody has written a newer one while a resize was under way.
func (a *Agent) target(t *tuned, k *knob, have knobs.Value) (want knobs.Value, ok bool) {
	e, kept := a.book.Entry(t.Path, k.Knob)
	original, carried := a.unadjusted(t, k.Knob)
	switch {
	case !kept:
		if !carried {
			original = a.untouched(t, k.Knob, have)
		}
		if owned(k.Knob, original) {
			a.trouble(k, "left alone: somebody else has set it to "+original.String()+", likely the kubelet's MemoryQoS")
			return nil, false
		}
		a.book.Keep(t.Object, k.Knob, original)
		e.Value = original
	case carried && original != e.Value: // since a resize
		a.book.Keep(t.Object, k.Knob, original)
		e.Value = original
	case k.withdrawn && !carried && k.Knob == knobs.Weight && !a.Kernel.Same(k.Knob, e.Value, have) && (e.Wrote == nil || !a.Kernel.Same(k.Knob, e.Wrote, have)):
		a.book.Keep(t.Object, k.Knob, have)
		e.Value = have
	}
	if k.Knob == knobs.Idle && (!kept || k.withdrawn) {
		a.keepWeight(t.Object)
	}
	if k.Percent == 0 && k.Favour == 0 {
		return k.Value, true
	}
	return a.weighed(k, e.Value, k.Favour), true
}

// minShares is the least of cpu.shares (kernel/sched/sched.h).
const minShares knobs.Shares = 2

// unadjusted is what a container would have of a setting that the runtime has
// carried for Sluice; ok is false where it has carried none.
func (a *Agent) unadjusted(t *tuned, k knobs.Knob) (original knobs.Value, ok bool) {
	if t.Level != knobs.ContainerLevel {
		return nil, false
	}
	if c := a.byPath[t.Path]; c != nil {
		original, ok = c.unadjusted[k]
	}
	return original, ok
}

// untouched is what a cgroup would have without Sluice: what is found, but for
// what it has inherited, when it was made, of Sluice's setting of the pod.
func (a *Agent) untouched(t *tuned, k knobs.Knob, found knobs.Value) knobs.Value {
	switch k {
	case knobs.CPUQoS, knobs.CgroupPriority, knobs.MemoryQoS, knobs.WmarkMinAdj:
		pod, kept := a.book.Entry(path.Dir(t.Path), k)
		if kept && pod.Wrote != nil && a.Kernel.Same(k, pod.Wrote, found) {
			return pod.Value
		}
	}
	return found
}

// owned reports whether a memory protection has another writer: it is not what
// the kernel gives a new cgroup.
func owned(k knobs.Knob, original knobs.Value) bool {
	return qos.Deferred(k) && original != cgroupfs.Describe(k).Default
}

// keepWeight keeps the weight of a cgroup that becomes idle: the kernel resets it
// when idle ends (sched_group_set_idle in kernel/sched/fair.c). Where Sluice had
// given it another, it is the one before; nothing counts as written to it from now on.
func (a *Agent) keepWeight(o knobs.Object) {
	weight, err := a.Kernel.Read(o.Path, knobs.Weight)
	if e, kept := a.book.Entry(o.Path, knobs.Weight); kept && e.Wrote != nil {
		weight, err = e.Value, nil
		a.book.Drop(o.Path, knobs.Weight)
	}
	if err == nil {
		a.book.Keep(o, knobs.Weight, weight)
	}
}

// isDrift reports whether somebody else has changed what Sluice had written: not
// the runtime, which is updating the container for Sluice.
func (a *Agent) isDrift(t *tuned, k *knob, have knobs.Value) bool {
	e, kept := a.book.Entry(t.Path, k.Knob)
	return kept && e.Wrote != nil && !a.updating(t.Path) && !k.withdrawn && k.problem == "" && !a.Kernel.Same(k.Knob, e.Wrote, have)
}

// repairs counts a drift and reports whether it is to be repaired now.
func (a *Agent) repairs(t *tuned, k *knob, want, have knobs.Value) bool {
	now := a.now()
	if k.contest.waits(now) {
		return false
	}
	a.retuned++
	k.drift++
	a.fight(&k.contest)
	k.suspect = a.suspect(t.Object, k.Knob, have)
	a.counters.Drift++
	log := a.Log.WithFields(logrus.Fields{
		"cgroup": t.Name, "setting": k.Knob.String(), "found": have.String(), "want": want.String(), "suspect": k.suspect,
	})
	log.Warn("A setting was changed by somebody else, repaired" + waitText(k.contest.often(now, fights())))
	return true
}

// letGo gives a knob's original back.
func (a *Agent) letGo(o knobs.Object, k knobs.Knob) []knobs.Change {
	at := reconcile.Key{Path: o.Path, Knob: k}
	if a.writer.abandon(at) {
		a.leaving[at] = o // once the kernel has answered
		return nil
	}
	if reconcile.ComesWithIdle(a.book, o.Path, k) {
		delete(a.leaving, at)
		return nil
	}
	if !a.authority().Cgroups {
		if _, kept := a.book.Entry(o.Path, k); kept {
			a.leaving[at] = o
		}
		return nil
	}
	changes, _, err := reconcile.GiveBack(a.Kernel, a.book, o, k)
	if err != nil && !errors.Is(err, cgroupfs.ErrGone) {
		a.leaving[at] = o
		return nil
	}
	reconcile.DropUnchanged(a.book, o.Path, k, changes)
	delete(a.leaving, at)
	if len(changes) == 0 {
		delete(a.refused, at)
	}
	for i := range changes {
		if at := reconcile.KeyOf(&changes[i]); a.knob(at) == nil {
			a.leaving[at] = o
		}
	}
	return changes
}

// resizeTime is how long a resize may take before its pod is set again without
// word of its end.
const resizeTime = 10 * time.Second

// withdraw gives back what would make the kernel refuse a resize of the pod: its
// bursts, since no quota can go below them, and idle, under which no weight can be
// written. The kubelet's new weight of the pod becomes the original. Writing says that
// the runtime is about to write one of its containers.
func (a *Agent) withdraw(pod *workload.Pod, writing bool) {
	if !a.authority().Cgroups {
		return
	}
	var changes []knobs.Change
	for _, t := range a.tuned {
		if t.pod != pod.UID {
			continue
		}
		a.resizing[pod.UID] = a.now().Add(resizeTime)
		for _, k := range t.knobs {
			switch k.Knob {
			case knobs.Burst, knobs.Idle:
				if e, ok := a.book.Entry(t.Path, k.Knob); ok && e.Wrote != nil {
					changes = append(changes, knobs.Change{Object: t.Object, Knob: k.Knob, From: e.Wrote, To: e.Value, Why: "a resize is under way"})
				}
				if weight, ok := a.book.Kept(t.Path, knobs.Weight); ok && k.Knob == knobs.Idle {
					changes = append(changes, knobs.Change{Object: t.Object, Knob: knobs.Weight, To: weight, Why: "a resize is under way"})
				}
				k.withdrawn = true
			case knobs.Weight:
				k.withdrawn = true
			}
		}
	}
	a.change(changes)
	a.unraise(pod, writing) // bursts are away by then: one of the new limit may be above the old
}

// requoted notes the quota that the kubelet has given a pod, for the same reason.
func (a *Agent) requoted(pod *workload.Pod, r workload.Resources) {
	o, ok := podObject(pod)
	e, kept := a.book.Entry(o.Path, knobs.Quota)
	if !ok || !kept || e.Wrote == nil || r.Quota <= 0 || r.Period == 0 {
		return
	}
	a.book.Keep(o, knobs.Quota, knobs.CPUQuota{Quota: time.Duration(r.Quota) * time.Microsecond, Period: time.Duration(r.Period) * time.Microsecond})
	a.book.Wrote(o.Path, knobs.Quota, e.Wrote)
}

// reweighed notes the weight that the kubelet has given a pod, which the kernel's
// files don't tell from Sluice's where they happen to be the same.
func (a *Agent) reweighed(pod *workload.Pod, shares knobs.Shares) {
	o, ok := podObject(pod)
	if _, kept := a.book.Kept(o.Path, knobs.Weight); ok && kept && shares > 0 {
		a.book.Keep(o, knobs.Weight, shares)
	}
}

// resized sets a pod again after a resize.
func (a *Agent) resized(pod *workload.Pod) {
	delete(a.resizing, pod.UID)
	if r, ok := a.loop.resized[pod.UID]; ok {
		a.loop.resized[pod.UID] = podResize{until: r.until}
	}
	a.tune(pod)
	for _, t := range a.tuned {
		for _, k := range t.knobs {
			if t.pod == pod.UID && t.Level == knobs.PodLevel && k.Knob == knobs.Weight {
				k.withdrawn = true // the kubelet writes a pod that shrinks last
			}
		}
	}
}

// unresized sets a pod again of whose resize no end was told: where it failed, the
// kernel still has the old quotas, and bursts have to fit.
func (a *Agent) unresized(uid string) (changes []knobs.Change) {
	var pod *workload.Pod
	for _, c := range a.order {
		if c.pod.UID != uid || !c.started || !a.reaches(c) {
			continue
		}
		pod = c.pod
		if as, _ := a.ledger.Assignment(c.ID); as.Unlimited || a.knob(reconcile.Key{Path: c.path, Knob: knobs.Quota}) != nil {
			continue // the quota is Sluice's
		}
		value, err := a.Kernel.Read(c.path, knobs.Quota)
		if q, _ := value.(knobs.CPUQuota); err == nil && q.Quota > 0 {
			c.Resources.Quota, c.Resources.Period = q.Quota.Microseconds(), uint64(q.Period.Microseconds())
			c.keepQuota()
		}
	}
	if pod == nil {
		return nil
	}
	return a.tunePod(pod)
}

// rewritten notes that the runtime has written a container's CPU time: the quota,
// which changes the burst on some kernels, and the shares, of which runc makes
// another weight on v2 from 1.3 on. Where systemd does it for the runtime, it writes
// every file that it knows of the scope, with the kernel's default for what it was
// not told of (cgroup_context_apply in systemd's core/cgroup.c).
func (a *Agent) rewritten(c *container) {
	t := a.tuned[c.path]
	if t == nil {
		return
	}
	for _, k := range t.knobs {
		switch k.Knob {
		case knobs.Quota, knobs.Burst, knobs.Weight:
			k.withdrawn = true
		case knobs.MemoryMax, knobs.MemoryMin, knobs.MemoryLow, knobs.MemoryHigh, knobs.OOMGroup, knobs.IOWeight, knobs.IOMax:
			k.withdrawn = k.withdrawn || c.scoped()
		}
	}
}

// updating reports whether the cgroup is a container's that the runtime may be
// updating for Sluice right now.
func (a *Agent) updating(path string) bool {
	if a.lane.pending == nil {
		return false
	}
	c, ok := a.containers[a.lane.pending.ContainerID]
	return ok && c.path == path
}

// scoped reports whether the container's cgroup is a scope of systemd's.
func (c *container) scoped() bool { return strings.Contains(c.CgroupsPath, ":") }
