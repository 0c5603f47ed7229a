package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Eviction decides which pod is evicted when nothing milder helped. It evicts one pod at a time
// and waits after each. During a second, longer wait the node starts no new BE pods.
//
// Other controllers ask for evictions (EvictRequest), and so do windows and the switch
// (View.Batch). Eviction itself adds a request where BE pods have been so short of CPU for so
// long that fewer pods would get more done. What an evicted pod will free counts as free until
// the measurements show it. A pod whose eviction failed counts for nothing.
type Eviction struct {
	cfg            EvictionConfig
	reportOnly     bool // evictions are reported and not carried out
	pace           pace
	last           [resources]time.Time // last eviction for each resource
	leaving        []leaving
	refused        []RefusedPod
	budget         evictionBudget
	lastResort     lastResort
	awaySince      time.Time // nobody was there to carry out an eviction at this time; zero if somebody was
	lastStuck      time.Time // last eviction of a pod that could not start
	heldBack       []string  // UIDs of pods that cannot start, of which it has been reported that a bound keeps them
	evicted        time.Time // time of the last eviction
	why            string
	lowSince       time.Time // start of the time in which BE pods got too little CPU
	nobodyReported bool      // no pod could be evicted, and that has been reported
	pending        []Decision
	counts         EvictionCounts

	requests  []EvictRequest
	victim    Victim
	decisions []Decision
	refusing  []RefusedPod
}

// Resource is what the node is short of.
type Resource uint8

// The comment of each resource says which pod is evicted first.
const (
	ResourceCPU    Resource = iota
	ResourceMemory          // by anonymous memory
	ResourceIO              // by bytes a second
	resources
)

// EvictRequest asks for evictions. It is repeated at each step while the need lasts.
type EvictRequest struct {
	Resource Resource
	Why      string                 // a sentence without its full stop
	Cause    string                 // the reason in few distinct values, for counting: "node-memory"
	Pool     workload.Optional[int] // index in View.Pools: only pods with a container in this pool; unset for any pool
	BEOnly   bool                   // evicts no other pods, even if they permit it
	Need     int64                  // amount that would be enough, in bytes, thousandths of a CPU or bytes a second; 0 if unknown
	Grace    time.Duration          // time for the pod to end by itself
	Urgent   bool                   // without an eviction the kernel is about to kill a process
	All      bool                   // the operator wants all batch work to end: no bound on evictions counts, and pods go that use next to nothing of the resource
	Pause    time.Duration          // least time since the last eviction for this resource; 0 as configured, negative for none
}

// Victim is the pod to evict.
type Victim struct {
	UID, Ref string
	Why      string
	Grace    time.Duration
	By       EvictBy   // who carries it out
	CoolDown time.Time // no new BE pods start until then; zero if the eviction begins no cool-down
}

// EvictionDesired is what Eviction wants. Its slices and Evict are valid until the next step.
type EvictionDesired struct {
	Evict  *Victim // eviction to begin now, whose end must be reported to Done; nil if there is none
	Refuse Refusal
}

// Refusal says which pods may not start.
type Refusal struct {
	Until time.Time // no new BE pods start until then; zero if they may
	Why   string
	Pods  []RefusedPod // pods of which no container may start, since the kubelet would start them again
}

// RefusedPod is a pod that was evicted or is being evicted.
type RefusedPod struct {
	UID   string
	Until time.Time
	Why   string // "the pod was evicted and is paused: node memory is short"
}

// EvictionCounts count evictions since the process started.
type EvictionCounts struct {
	Evicted  int // pods that the evictor ended
	Failed   int
	Refused  int // evictions that the cluster forbade for the moment
	Reported int // evictions that were only reported, by configuration or in preview
}

// leaving is a pod whose eviction has begun. A pod that is evicted as the last resort has two
// entries: by the API server and by the runtime.
type leaving struct {
	uid, ref string
	why      string
	owner    string // "" if unknown
	by       EvictBy
	resource Resource
	amount   int64 // amount of the resource that its end will free
	at       time.Time
	grace    time.Duration
	stuck    bool // the pod could not start, so that its eviction frees nothing and begins no cool-down
	unbound  bool // the eviction does not count towards the bounds per hour
	done     bool // the evictor has reported its end
	failed   bool // the eviction failed, and is not tried again before failureWait has passed
}

const (
	answerTimeout = 2 * time.Minute  // for the evictor to answer after the grace period
	effectTimeout = time.Minute      // for the pod to disappear after the evictor has ended it
	failureWait   = time.Minute      // before a failed eviction is tried again
	awayWait      = 10 * time.Second // before the next eviction is tried while nobody can carry one out
)

// NewEviction returns the controller. The mode is the one in force.
func NewEviction(cfg EvictionConfig, mode Mode, interval time.Duration) *Eviction {
	return &Eviction{cfg: cfg, reportOnly: cfg.By == EvictReport || mode != On, pace: pace{interval: interval}}
}

// Counts returns the results of the evictions so far.
func (e *Eviction) Counts() EvictionCounts { return e.counts }

// Step decides whether a pod is evicted. The CPU that batch work may have now is granted, or 0
// if it is unknown. The first of the requests that can be met is met.
func (e *Eviction) Step(v *View, granted workload.MilliCPU, requests []EvictRequest) (EvictionDesired, []Decision) {
	e.decisions = append(e.decisions[:0], e.pending...)
	e.pending = e.pending[:0]
	_, steady := e.pace.next(v.Now)
	e.dropEnded(v)
	e.requests = e.requests[:0]
	if v.Batch.Evict {
		e.requests = append(e.requests, EvictRequest{Resource: ResourceCPU, Why: v.Batch.Why, Cause: "window", BEOnly: true, All: true, Pause: -1})
	}
	e.requests = append(e.requests, requests...)
	e.satisfaction(v, granted, steady)
	e.budget.prune(v.Now)
	e.lastResort.observe(v.Now, e.requests)

	desired := EvictionDesired{}
	if steady {
		if desired.Evict = e.choose(v); desired.Evict == nil {
			desired.Evict = e.freeStuck(v)
		}
	}
	if len(e.requests) == 0 {
		e.nobodyReported = false
	}
	desired.Refuse = e.refusal(v.Now)
	if len(e.decisions) == 0 {
		return desired, nil
	}
	return desired, e.decisions
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
		if l := &e.leaving[i]; !l.done && !l.failed && !l.stuck {
			r.Until, r.Why = l.at.Add(e.cfg.CoolDown), "pod "+l.ref+" is being evicted: "+l.why
		}
	}
	return r
}

// refusedAndLeaving returns the pods that were evicted or are being evicted. The kubelet
// restarts a container as soon as it has ended, while other containers of the pod may still be
// in their grace period.
func (e *Eviction) refusedAndLeaving() []RefusedPod {
	e.refusing = append(e.refusing[:0], e.refused...)
	for i := range e.leaving {
		if l := &e.leaving[i]; !l.done && !l.failed && !l.stuck {
			e.refusing = append(e.refusing, RefusedPod{l.uid, l.at.Add(l.grace + e.cfg.CoolDown), "the pod is being evicted: " + l.why})
		}
	}
	return e.refusing
}

// satisfaction requests an eviction if BE pods have been granted less than the configured share
// of their requests for a whole window and use over 90 % of it. The requests of pods that are
// being evicted do not count.
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
