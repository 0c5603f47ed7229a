package control

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// StuckPod is a pod of which the node refuses to start a container.
type StuckPod struct {
	UID, Ref    string
	Pinned      bool      // it asks for CPUs of its own
	Never       bool      // it must not be evicted
	Since, Last time.Time // of the first and the last refusal
	Why         string    // reason of the last refusal
}

// A pod that cannot start here is evicted so that the scheduler can place it elsewhere.
const (
	stuckBatch = 30 * time.Second // for batch work
	stuckPin   = time.Minute      // for pods with CPUs of their own, which are often freed within a minute
	stuckFresh = 2 * time.Minute  // the kubelet tries at least once in this time
	stuckPause = 10 * time.Second // between two such evictions
)

// freeStuck returns a pod that cannot start on this node, to be evicted by the API server; nil
// if there is none. Such evictions count towards the bounds per hour, since a successor may be
// placed on this node again.
func (e *Eviction) freeStuck(v *View) *Victim {
	if e.cfg.By != EvictKubernetes || e.reportOnly || e.away(v.Now) || waiting(e.lastStuck, v.Now, stuckPause) {
		return nil
	}
	e.heldBack = slices.DeleteFunc(e.heldBack, func(uid string) bool { return stuckIndex(v.Stuck, uid) < 0 })
	request := EvictRequest{Cause: "stuck"}
	for i := range v.Stuck {
		p := &v.Stuck[i]
		owner := v.APIPods[p.UID].Owner
		if !p.isStuck(v.Now) || !e.canStartElsewhere(v, p) || e.isTried(p.UID, EvictKubernetes) {
			continue
		}
		if over := cmp.Or(e.overBudget(&request), e.ownerOverBudget(owner, &request)); over != "" {
			e.holdBack(p, over)
			continue
		}
		e.lastStuck = v.Now
		why := fmt.Sprintf("the node has refused to start it for %v: %s", v.Now.Sub(p.Since).Round(time.Second), p.Why)
		e.leaving = append(e.leaving, leaving{uid: p.UID, ref: p.Ref, why: why, owner: owner, by: EvictKubernetes, resource: ResourceCPU, at: v.Now, stuck: true})
		e.victim = Victim{UID: p.UID, Ref: p.Ref, Why: why, By: EvictKubernetes}
		e.decisions = append(e.decisions, Decision{Controller: "eviction", Object: p.Ref, Action: "evict", To: p.UID, Cause: request.Cause, Why: why})
		return &e.victim
	}
	return nil
}

// holdBack says once why a pod that cannot start stays here: a bound per hour forbids its eviction.
func (e *Eviction) holdBack(p *StuckPod, over string) {
	if slices.Contains(e.heldBack, p.UID) {
		return
	}
	e.heldBack = append(e.heldBack, p.UID)
	e.decisions = append(e.decisions, Decision{Controller: "eviction", Object: p.Ref, Action: "stays",
		Why: fmt.Sprintf("the pod could start elsewhere, but is not evicted yet: %s; the node refuses to start it: %s", over, p.Why)})
}

// canStartElsewhere reports whether the pod may be evicted, so that its successor starts on
// another node. No pod goes of which a container runs, none that a DaemonSet would start on this
// node again, and none of which the API has told nothing: a DaemonSet may own it.
func (e *Eviction) canStartElsewhere(v *View, p *StuckPod) bool {
	api, known := v.APIPods[p.UID]
	return known && !api.IsOfDaemonSet() && !p.Never && !e.isCritical(v, p.UID) && !podIsHere(v, p.UID)
}

// isStuck reports whether the node has refused the pod for so long that it should be evicted. One
// refusal says little, as the kubelet's next try may succeed: the refusals must have gone on for
// half of the wait.
func (p *StuckPod) isStuck(now time.Time) bool {
	wait := stuckBatch
	if p.Pinned {
		wait = stuckPin
	}
	return now.Sub(p.Since) >= wait && p.Last.Sub(p.Since) >= wait/2 && recent(now, p.Last, stuckFresh)
}

// freed reports whether the eviction of a pod that could not start can be forgotten: the kubelet
// has stopped trying to start the pod, or it is time to evict the pod again.
func freed(v *View, l *leaving) bool {
	i := stuckIndex(v.Stuck, l.uid)
	switch {
	case i < 0:
		return true
	case l.failed:
		return v.Now.Sub(l.at) >= failureWait
	}
	return v.Stuck[i].Last.Sub(l.at) >= effectTimeout
}

// stuckIndex returns the index of the pod with that UID; -1 if it is not among the pods.
func stuckIndex(pods []StuckPod, uid string) int {
	return slices.IndexFunc(pods, func(p StuckPod) bool { return p.UID == uid })
}
