package control

import (
	"slices"
	"time"
)

// lastResortAfter is how long memory may be critical, without an effect of evictions by the API
// server, before a pod is ended through the runtime: the kernel would kill next. With a grace
// period of one second a pod is normally gone within two.
const lastResortAfter = 3 * time.Second

// lastResort measures for how long evictions by the API server have not helped.
type lastResort struct {
	since time.Time // when a request became urgent or, if that was later, an eviction had an effect; zero while none is urgent
	ended time.Time // the last eviction through the runtime
}

func (l *lastResort) observe(now time.Time, requests []EvictRequest) {
	switch urgent := slices.ContainsFunc(requests, func(r EvictRequest) bool { return r.Urgent }); {
	case !urgent:
		l.since = time.Time{}
	case l.since.IsZero() || l.since.After(now): // the second case: the clock went back
		l.since = now
	}
}

// helped records that an evicted pod is gone.
func (l *lastResort) helped() { l.since = time.Time{} }

// useLastResort returns the pod to end through the runtime, where memory is critical and the API
// server does not help: nobody carries orders out, nothing has had an effect for
// lastResortAfter, or every pod was refused. Disruption budgets do not count then. A pod that
// the API server is evicting already goes first. It returns nil if there is no such need.
func (e *Eviction) useLastResort(v *View, r *EvictRequest) *Victim {
	l := &e.lastResort
	if !r.Urgent || !v.HasCRI || e.cfg.By != EvictKubernetes || e.reportOnly || e.underWay(r.Resource, EvictCRI) || waiting(l.ended, v.Now, e.pause(r)) {
		return nil
	}
	if !e.away(v.Now) && v.Now.Sub(l.since) < lastResortAfter && !e.allRefused(v, r) {
		return nil
	}
	pod, others := e.first(v, r, EvictCRI)
	if pod < 0 {
		return nil
	}
	l.ended = v.Now
	return e.evict(v, r, EvictCRI, pod, others)
}

// allRefused reports whether no pod is left that the API server could be asked to evict, and
// none is being evicted.
func (e *Eviction) allRefused(v *View, r *EvictRequest) bool {
	if e.underWay(r.Resource, EvictKubernetes) {
		return false
	}
	for i := range e.leaving {
		if l := &e.leaving[i]; l.resource == r.Resource && l.done {
			return false
		}
	}
	pod, _ := e.first(v, r, EvictKubernetes)
	return pod < 0
}
