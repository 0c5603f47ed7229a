package control

import (
	"fmt"
	"slices"
	"time"
)

// StuckPod is a pod of which the node refuses to start a container.
type StuckPod struct {
	UID, Ref    string
	Pinned      bool // it asks for CPUs of its own
	Never       bool // it must not be evicted
	Since, Last time.Time
	Why         string // reason of the last refusal
}

// A pod that cannot start here is evicted so that the scheduler can place it elsewhere.
const (
	stuckBatch = 30 * time.Second // for batch work
	stuckPin   = time.Minute      // for pods with CPUs of their own, which are often freed within a minute
	stuckFresh = 2 * time.Minute  // the kubelet tries at least once in this time
	stuckPause = 10 * time.Second // between two such evictions
)

// freeStuck returns a pod that cannot start on this node, to be evicted by the API server; nil
// if there is none.
func (e *Eviction) freeStuck(v *View) *Victim {
	if e.cfg.By != EvictKubernetes || e.reportOnly || e.away(v.Now) || waiting(e.lastStuck, v.Now, stuckPause) {
		return nil
	}
	for i := range v.Stuck {
		p := &v.Stuck[i]
		wait := stuckBatch
		if p.Pinned {
			wait = stuckPin
		}
		if p.Never || e.isCritical(v, p.UID) || v.Now.Sub(p.Since) < wait || !recent(v.Now, p.Last, stuckFresh) ||
			p.Pinned && podIsHere(v, p.UID) || e.isTried(p.UID, EvictKubernetes) {
			continue
		}
		e.lastStuck = v.Now
		why := fmt.Sprintf("the node has refused to start it for %v: %s", v.Now.Sub(p.Since).Round(time.Second), p.Why)
		e.leaving = append(e.leaving, leaving{uid: p.UID, ref: p.Ref, why: why, by: EvictKubernetes, resource: ResourceCPU, at: v.Now, stuck: true})
		e.victim = Victim{UID: p.UID, Ref: p.Ref, Why: why, By: EvictKubernetes}
		e.decisions = append(e.decisions, Decision{Controller: "eviction", Object: p.Ref, Action: "evict", To: p.UID, Cause: "stuck", Why: why})
		return &e.victim
	}
	return nil
}

// freed reports whether the eviction of a pod that could not start can be forgotten: the kubelet
// has stopped trying to start the pod, or it is time to evict the pod again.
func freed(v *View, l *leaving) bool {
	i := slices.IndexFunc(v.Stuck, func(p StuckPod) bool { return p.UID == l.uid })
	switch {
	case i < 0:
		return true
	case l.failed:
		return v.Now.Sub(l.at) >= failureWait
	}
	return v.Stuck[i].Last.Sub(l.at) >= effectTimeout
}
