package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Eviction decides who has to go when nothing milder helped: one pod at a time, with a
// wait after each, and another, longer, in which the node takes no new BE.
//
// It is asked by others (EvictRequest), by windows and the switch (View.Batch), and
// asks itself where BE is so short of CPU for so long that fewer pods would get more
// done. What a pod that was asked to go will give back counts as given until it is
// seen; one that could not be evicted counts for nothing.
type Eviction struct {
	cfg      EvictionConfig
	told     bool // nobody is really evicted: by report, or in preview
	pace     pace
	last     [resources]time.Time // eviction for each resource
	leaving  []leaving
	refused  []RefusedPod
	evicted  time.Time // the last pod
	why      string
	lowSince time.Time // BE's satisfaction
	nobody   bool      // could be evicted, and it was said
	pending  []Decision
	counts   EvictionCounts

	requests  []EvictRequest
	victim    Victim
	decisions []Decision
	refusing  []RefusedPod
}

// Resource is what there is too little of.
type Resource uint8

// The resources: the largest user of it goes first.
const (
	ResourceCPU    Resource = iota
	ResourceMemory          // by anonymous memory
	ResourceIO              // by bytes a second
	resources
)

// EvictRequest asks for evictions, at each step for as long as there is need.
type EvictRequest struct {
	Resource Resource
	Why      string                 // a sentence without its point
	Cause    string                 // the same in a word of few: "node-memory"
	Pool     workload.Optional[int] // of View.Pools: pods with a container in it; not set: any
	BEOnly   bool                   // not even pods that permit it
	Need     int64                  // bytes, thousandths of a CPU, bytes a second that would do; 0: not known
	Grace    time.Duration          // for the pod to end by itself
	All      bool                   // also pods that hold next to nothing of the resource: all batch work has to go
	Pause    time.Duration          // since the last for this resource; 0: as configured, negative: none
}

// Victim is the pod that has to go.
type Victim struct {
	UID, Ref string
	Why      string
	Grace    time.Duration
}

// EvictionDesired is what Eviction wants. Its slices and Evict are lent until the next
// step.
type EvictionDesired struct {
	Evict  *Victim // begin it now, and call Done when it has ended; nil: nobody
	Refuse Refusal
}

// Refusal is who may not start.
type Refusal struct {
	Until time.Time // no new BE; zero: any may
	Why   string
	Pods  []RefusedPod // not even a new container of these: the kubelet would start them again
}

// RefusedPod is a pod that was evicted, or is being evicted.
type RefusedPod struct {
	UID   string
	Until time.Time
	Why   string // "the pod was evicted and is paused: node memory is short"
}

// EvictionCounts are since the start.
type EvictionCounts struct {
	Evicted int // that the evictor ended
	Failed  int
	Told    int // that were told of and not done: by report, or in preview
}

// leaving is a pod that was asked to go.
type leaving struct {
	uid, ref string
	why      string
	resource Resource
	amount   int64 // that it will give back
	at       time.Time
	grace    time.Duration
	done     bool // the evictor has ended it, as far as it knows
	failed   bool // and is asked again not before a while
}

const (
	answerTimeout = 2 * time.Minute // for the evictor, over the grace
	effectTimeout = time.Minute     // for the pod to be gone, once the evictor has ended it
	failureWait   = time.Minute     // before the same pod is tried again
)

// NewEviction returns the controller. mode is the one in force.
func NewEviction(cfg EvictionConfig, mode Mode, interval time.Duration) *Eviction {
	return &Eviction{cfg: cfg, told: cfg.By == EvictReport || mode != On, pace: pace{interval: interval}}
}

// Counts returns what became of evictions.
func (e *Eviction) Counts() EvictionCounts { return e.counts }

// Step decides. granted is the CPU that batch work may have now, 0 where that isn't
// known. The requests are in order: the first that can be met is.
func (e *Eviction) Step(v *View, granted workload.MilliCPU, requests []EvictRequest) (EvictionDesired, []Decision) {
	e.decisions = append(e.decisions[:0], e.pending...)
	e.pending = e.pending[:0]
	_, steady := e.pace.next(v.Now)
	e.settle(v)
	e.requests = e.requests[:0]
	if v.Batch.Evict {
		e.requests = append(e.requests, EvictRequest{Resource: ResourceCPU, Why: v.Batch.Why, Cause: "window", BEOnly: true, All: true, Pause: -1})
	}
	e.requests = append(e.requests, requests...)
	e.satisfaction(v, granted, steady)

	desired := EvictionDesired{}
	if steady {
		desired.Evict = e.choose(v)
	}
	if len(e.requests) == 0 {
		e.nobody = false
	}
	desired.Refuse = e.refusal(v.Now)
	if len(e.decisions) == 0 {
		return desired, nil
	}
	return desired, e.decisions
}

// Done tells what became of the eviction of the pod. It may be called between steps.
func (e *Eviction) Done(uid string, err error, now time.Time) {
	for i := range e.leaving {
		l := &e.leaving[i]
		if l.uid != uid || l.done || l.failed {
			continue
		}
		if err != nil {
			e.fail(l, err.Error(), now)
			return
		}
		e.ended(l, now)
		return
	}
}

func (e *Eviction) ended(l *leaving, now time.Time) {
	l.done, l.at = true, now
	if e.told {
		e.counts.Told++
	} else {
		e.counts.Evicted++
	}
	if e.cfg.By == EvictReport {
		return // nothing has happened that a cool-down would be for
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

// settle drops pods that are gone and evictions that nobody answers for.
func (e *Eviction) settle(v *View) {
	now, kept := v.Now, e.leaving[:0]
	for i := range e.leaving {
		l := e.leaving[i]
		age, there := now.Sub(l.at), podIsHere(v, l.uid)
		if l.done && !e.told {
			// The kubelet keeps the pod and makes containers for it again and again, none
			// of which starts. What such a pod held has been given back.
			there = there && holds(v, l.uid, l.resource)
		}
		wait := effectTimeout
		if e.told {
			wait = e.cfg.CoolDown
		}
		switch {
		case l.failed && (age >= failureWait || !there):
			continue
		case l.done && !there:
			continue
		case l.done && age >= wait:
			if !e.told {
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

// underWay reports whether an eviction for the resource is being carried out.
func (e *Eviction) underWay(of Resource) bool {
	for i := range e.leaving {
		if l := &e.leaving[i]; l.resource == of && !l.done && !l.failed {
			return true
		}
	}
	return false
}

// assumed is what pods that were asked to go, and are still seen, will give back.
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

func podIsHere(v *View, uid string) bool {
	for i := range v.Pods {
		if v.Pods[i].UID == uid {
			return true
		}
	}
	return false
}

func (e *Eviction) pause(r *EvictRequest) time.Duration {
	if r.Pause != 0 {
		return max(r.Pause, 0)
	}
	if r.Resource == ResourceMemory {
		return e.cfg.MemoryPause
	}
	return e.cfg.CPUPause
}

func (e *Eviction) refusal(now time.Time) Refusal {
	r := Refusal{Pods: e.refused}
	if e.cfg.By != EvictReport {
		r.Pods = e.refusedAndLeaving()
	}
	if waiting(e.evicted, now, e.cfg.CoolDown) {
		r.Until, r.Why = e.evicted.Add(e.cfg.CoolDown), e.why
		return r
	}
	if e.cfg.By == EvictReport {
		return r
	}
	for i := range e.leaving {
		if l := &e.leaving[i]; !l.done && !l.failed {
			r.Until, r.Why = l.at.Add(e.cfg.CoolDown), "pod "+l.ref+" is being evicted: "+l.why
		}
	}
	return r
}

// refusedAndLeaving are the pods that were evicted and those that are being evicted: the
// kubelet starts a container again as soon as it has ended, while others of the pod may
// still have their grace.
func (e *Eviction) refusedAndLeaving() []RefusedPod {
	e.refusing = append(e.refusing[:0], e.refused...)
	for i := range e.leaving {
		if l := &e.leaving[i]; !l.done && !l.failed {
			e.refusing = append(e.refusing, RefusedPod{l.uid, l.at.Add(l.grace + e.cfg.CoolDown), "the pod is being evicted: " + l.why})
		}
	}
	return e.refusing
}

// satisfaction asks for an eviction where BE has less than the bound of what it
// requested, for a whole window, and uses over 90 % of that. Pods that are leaving
// request nothing.
func (e *Eviction) satisfaction(v *View, granted workload.MilliCPU, steady bool) {
	var requested, used workload.MilliCPU
	known := e.cfg.SatisfactionPercent > 0 && granted > 0 && steady
	for i := range v.Containers {
		c := &v.Containers[i]
		if !known || c.Class != workload.BE || c.Unseen || e.isLeaving(v.Pods[c.Pod].UID) {
			continue
		}
		known = uses(v, c, e.pace.interval)
		requested += c.Request
		used += c.CPU.Usage
	}
	if !known || granted*100 >= requested*workload.MilliCPU(e.cfg.SatisfactionPercent) || used*10 <= granted*9 {
		e.lowSince = time.Time{}
		return
	}
	if e.lowSince.IsZero() {
		e.lowSince = v.Now
	}
	if v.Now.Sub(e.lowSince) < e.cfg.SatisfactionWindow {
		return
	}
	e.requests = append(e.requests, EvictRequest{Resource: ResourceCPU, BEOnly: true, Cause: "satisfaction",
		Why: fmt.Sprintf("BE has %s CPUs of the %s that it requested, under %d%%, for %v, and uses %s of them",
			granted, requested, e.cfg.SatisfactionPercent, v.Now.Sub(e.lowSince), used)})
}
