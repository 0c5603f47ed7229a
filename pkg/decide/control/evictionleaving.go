package control

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// Done reports the result of the pod's eviction. It may be called between steps. After
// evictorder.ErrRefused the next pod may go at once; after evictorder.ErrNobody the pod is not
// to blame, and no other is tried for awayWait.
func (e *Eviction) Done(uid string, by EvictBy, err error, now time.Time) {
	i := slices.IndexFunc(e.leaving, func(l leaving) bool { return l.uid == uid && l.by == by && !l.done && !l.failed })
	if i < 0 {
		return
	}
	l := &e.leaving[i]
	switch {
	case err == nil:
		e.awaySince = time.Time{}
		e.ended(l, now)
	case errors.Is(err, evictorder.ErrRefused):
		e.awaySince = time.Time{}
		if !l.stuck {
			e.last[l.resource] = time.Time{}
		}
		l.failed, l.at, l.amount = true, now, 0
		e.counts.Refused++
		e.pending = append(e.pending, Decision{Controller: "eviction", Object: l.ref, Action: "refused",
			Why: fmt.Sprintf("%s; the pod is not tried again for %v, the next one is at once", err, failureWait)})
	case errors.Is(err, evictorder.ErrNobody):
		e.awaySince = now
		e.counts.Failed++
		e.pending = append(e.pending, Decision{Controller: "eviction", Object: l.ref, Action: "failed",
			Why: fmt.Sprintf("%s, so the eviction counts for nothing; the next one is tried in %v", err, awayWait)})
		e.leaving = slices.Delete(e.leaving, i, i+1)
	default:
		e.fail(l, err.Error(), now)
	}
}

func (e *Eviction) ended(l *leaving, now time.Time) {
	l.done, l.at = true, now
	if e.reportOnly {
		e.counts.Reported++
	} else {
		e.counts.Evicted++
	}
	if !l.unbound {
		e.budget.add(now, l.owner)
	}
	if e.cfg.By == EvictReport || l.stuck {
		return // nothing that ran was evicted, so no cool-down begins
	}
	e.evicted, e.why = now, "pod "+l.ref+" was evicted: "+l.why
	e.refused = append(e.refused, RefusedPod{l.uid, now.Add(e.cfg.CoolDown), "the pod was evicted and is paused: " + l.why})
}

func (e *Eviction) fail(l *leaving, why string, now time.Time) {
	l.failed, l.at, l.amount = true, now, 0
	e.counts.Failed++
	e.pending = append(e.pending, Decision{Controller: "eviction", Object: l.ref, Action: "failed",
		Why: fmt.Sprintf("the eviction failed and counts for nothing: %s; the pod is not tried again for %v, others may be", why, failureWait)})
}

// dropEnded removes pods that are gone and evictions whose result never came.
func (e *Eviction) dropEnded(v *View) {
	now, kept := v.Now, e.leaving[:0]
	for i := range e.leaving {
		l := e.leaving[i]
		age, there := now.Sub(l.at), podIsHere(v, l.uid)
		if l.done && !e.reportOnly {
			// The kubelet keeps the pod and creates containers for it again and again, of which
			// none starts. The pod's resources have been freed.
			there = there && holds(v, l.uid, l.resource)
		}
		wait := effectTimeout
		switch {
		case e.reportOnly:
			wait = e.cfg.CoolDown
		case l.by == EvictKubernetes:
			wait += l.grace // the API server answers before the grace period
		}
		switch {
		case l.stuck && (l.done || l.failed):
			if freed(v, &l) {
				continue
			}
		case l.failed && (age >= failureWait || !there):
			continue
		case l.done && !there:
			e.lastResort.helped()
			continue
		case l.done && age >= wait:
			if !e.reportOnly {
				e.decisions = append(e.decisions, Decision{Controller: "eviction", Object: l.ref, Action: "still there",
					Why: fmt.Sprintf("the evictor ended the pod %v ago, and it runs; its use counts again", wait)})
			}
			continue
		case !l.done && !l.failed && age >= answerTimeout+l.grace:
			e.fail(&l, fmt.Sprintf("the evictor gave no answer within %v", answerTimeout+l.grace), now)
			e.decisions = append(e.decisions, e.pending...)
			e.pending = e.pending[:0]
		}
		kept = append(kept, l)
	}
	clear(e.leaving[len(kept):])
	e.leaving = kept
	refused := e.refused[:0]
	for _, r := range e.refused {
		if left := r.Until.Sub(now); left > 0 && left <= e.cfg.CoolDown {
			refused = append(refused, r)
		}
	}
	e.refused = refused
}

// underWay reports whether that evictor is carrying out an eviction for the resource.
func (e *Eviction) underWay(of Resource, by EvictBy) bool {
	for i := range e.leaving {
		if l := &e.leaving[i]; l.resource == of && l.by == by && !l.stuck && !l.done && !l.failed {
			return true
		}
	}
	return false
}

// away reports whether the last eviction found nobody to carry it out, a short time ago.
func (e *Eviction) away(now time.Time) bool { return waiting(e.awaySince, now, awayWait) }

// assumed returns how much the pods that are being evicted and still run will free.
func (e *Eviction) assumed(of Resource) int64 {
	var sum int64
	for i := range e.leaving {
		if l := &e.leaving[i]; l.resource == of {
			sum += l.amount
		}
	}
	return sum
}

func (e *Eviction) isLeaving(uid string) bool {
	for i := range e.leaving {
		if e.leaving[i].uid == uid {
			return true
		}
	}
	return false
}

// isTried reports whether the pod can't be evicted now in this way. An eviction through the
// runtime that failed doesn't stop one by the API server, which in turn never stops the last
// resort.
func (e *Eviction) isTried(uid string, by EvictBy) bool {
	return slices.ContainsFunc(e.leaving, func(l leaving) bool {
		return l.uid == uid && (l.by == by || by == EvictKubernetes && !l.failed)
	})
}

func podIsHere(v *View, uid string) bool {
	for i := range v.Pods {
		if v.Pods[i].UID == uid {
			return true
		}
	}
	return false
}
