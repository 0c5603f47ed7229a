package annotation

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Facts are what a request depends on besides the pod and the rules.
type Facts struct {
	ThreadsPerCore int
	Memory         int64            // the node's memory in bytes; 0 if unknown
	Granted        workload.Granted // the kubelet's record of the container
	Claimed        Claimed          // what the container's resource claims reserve; zero without any
}

// Claimed is what resource claims reserve for a container: CPUs of its own.
type Claimed struct {
	Refs  string // "claim namespace/name", or several
	Class workload.Class
	CPUs  int
}

// Request returns what the container asks for. The error joins one *Invalid for each value that
// can't be applied; the request is then the zero value.
func (r *Rules) Request(facts Facts, pod *workload.Pod, c *workload.Container) (workload.Request, []Warning, error) {
	in := reader{rules: r, facts: facts, pod: pod, container: c}
	in.gather()
	requests := workload.Requested(pod, c, &facts.Granted, facts.Memory)
	in.req.Milli, in.exact, in.req.Memory, in.req.From = requests.CPU, requests.Exact, requests.Memory, requests.From
	in.read()
	if len(in.problems) > 0 {
		return workload.Request{}, in.warnings, errors.Join(in.problems...)
	}
	return in.req, in.warnings, nil
}

// reader computes one container's request.
type reader struct {
	rules     *Rules
	facts     Facts
	pod       *workload.Pod
	container *workload.Container

	inKoordinator, inKatalyst bool // the pod has annotations of this dialect

	candidates []candidate // in order of precedence
	exact      bool        // whether req.Milli is the whole request
	class      candidate   // the candidate that set the class
	req        workload.Request
	warnings   []Warning
	problems   []error
}

func (r *reader) gather() {
	if c := &r.facts.Claimed; c.CPUs > 0 {
		r.add(candidate{key: classKey, value: c.Class.String(), source: c.Refs, origin: claim, single: true})
		r.add(candidate{key: cpusKey, value: strconv.Itoa(c.CPUs), source: c.Refs, origin: claim, single: true})
	}
	if len(r.pod.Annotations) > 0 {
		r.own()
	}
	if r.rules.Dialects.Koordinator {
		r.koordinator()
	}
	if r.rules.Dialects.Katalyst && r.inKatalyst {
		r.katalyst()
	}
	for i := range r.rules.Classify {
		rule := &r.rules.Classify[i]
		if rule.matches(r.pod) {
			r.give(rule.Set, "config classify rule "+strconv.Itoa(i+1))
			break
		}
	}
}

func (r *reader) propose(a candidate) {
	if len(a.value) > maxLength {
		r.refuse(&a, tooLong(len(a.value)))
		return
	}
	r.add(a)
}

func (r *reader) add(a candidate) {
	if r.candidates == nil { // most containers ask for nothing
		r.candidates = make([]candidate, 0, 8)
	}
	r.candidates = append(r.candidates, a)
}

// give adds the candidates of a part of the configuration.
func (r *reader) give(set Set, source string) {
	for _, g := range set {
		r.add(candidate{key: g.key, value: g.Text, parsed: g.parsed, source: source, origin: config})
	}
}

func (r *reader) read() {
	if won := r.resolve(classKey); won != nil {
		r.class = *won
	} else {
		var source string
		r.req.Class, source = r.byDefault()
		r.class = candidate{key: classKey, value: r.req.Class.String(), source: source, origin: config}
		r.record(&r.class)
	}
	settles := r.req.Class == workload.LS || r.req.Class == workload.BE
	if r.req.Class.Pinned() && r.mayShare() {
		r.warn(r.class.source, fmt.Sprintf("is for the pod's containers that request CPUs, and this one requests none (as those of kubectl debug do): it is LS. To have it pinned, request CPUs; to say so for it alone, %s", r.asLS()))
		r.share()
	}
	before := len(r.candidates)
	r.poolAndClass()
	if r.req.Class.Pinned() && !r.pin() {
		r.candidates = r.candidates[:before]
		r.share()
		r.poolAndClass()
	} else {
		if settles {
			r.resolve(numaKey)
		}
		r.passOver()
	}
	r.resolve(memoryNodesKey)
	r.tune()
	if why := r.rules.spared(r.pod, r.container); why != "" && !r.req.Evict.Never {
		r.req.Evict.Never = true
		r.record(&candidate{key: evictKey, value: "never", source: why})
	}
}

// byDefault returns the class of a container for which nothing sets one.
func (r *reader) byDefault() (class workload.Class, source string) {
	class, source = r.rules.Defaults.of(r.pod.QoS())
	if class != workload.BE {
		return class, source
	}
	if why := r.rules.spared(r.pod, r.container); why != "" {
		return workload.LS, source + ", but " + why
	}
	if r.container.HasCDI {
		return workload.LS, source + ", but the container has devices of its own (CDI), which must not stand idle"
	}
	return class, source
}

// poolAndClass reads the pool and adds the candidates of pool and class.
func (r *reader) poolAndClass() {
	if class := r.req.Class; class == workload.LS || class == workload.BE {
		r.resolve(poolKey)
		pool := r.req.Pool
		if pool == "" {
			pool = r.rules.defaultPool(class)
		}
		if set := r.rules.PoolSets[pool]; len(set) > 0 {
			r.give(set, "config pool "+pool)
		}
	}
	if set := r.rules.Classes.Of(r.req.Class); len(set) > 0 {
		r.give(set, "config classes."+r.req.Class.String())
	}
}

// tune reads the keys that do not place the container.
func (r *reader) tune() {
	var before uint32
	for i := range r.candidates {
		before |= 1 << r.candidates[i].key
	}
	for k := placementKeys; int(k) < len(keyNames); k++ {
		if before>>k&1 == 0 || k == batchKey || !k.appliesTo(r.req.Class) {
			continue
		}
		if k == egressKey {
			r.egress()
		} else {
			r.resolve(k)
		}
	}
	if batchKey.appliesTo(r.req.Class) {
		r.batch()
	}
	if r.req.Class == workload.BE && !r.req.Tier.Set && r.facts.Granted.Mid {
		r.req.Tier = workload.Some(workload.TierMid)
		r.record(&candidate{key: tierKey, value: workload.TierMid.String(), source: "the kubelet's record, which grants mid resources"})
	}
}

// passOver warns of keys that have no meaning for the container's class. A classify rule may
// have keys for several classes.
func (r *reader) passOver() {
	for i := range r.candidates {
		a := &r.candidates[i]
		if a.key == tierKey && a.dialect() {
			continue // Koordinator's priority classes are for LS too
		}
		if a.origin != config && !a.key.appliesTo(r.req.Class) {
			r.warn(a.source, "has no effect on class "+r.req.Class.String())
		}
	}
}

// mayShare reports whether a container of a pinned pod may share CPUs. It may if no key sets
// the class of this container alone and it requests no CPU while others of its pod do. An
// ephemeral container can't request any, and its name is not known beforehand.
func (r *reader) mayShare() bool {
	qos := r.pod.QoS()
	return r.class.origin != config && !r.class.single && r.exact && r.req.Milli == 0 &&
		(qos == workload.Guaranteed || qos == workload.Burstable)
}

// share makes a container LS that can't be pinned.
func (r *reader) share() {
	r.req = workload.Request{Class: workload.LS, Milli: r.req.Milli, Memory: r.req.Memory, From: r.req.From}
	r.record(&candidate{key: classKey, value: "LS", source: r.class.source + ", which can't be pinned"})
}

// resolve puts the first valid value of a key into the request and returns its candidate, or nil if
// there is none. Each field of memory-qos is separate, so that later candidates set the fields that
// earlier ones omit.
func (r *reader) resolve(k key) *candidate {
	var won *candidate
	for i := range r.candidates {
		a := &r.candidates[i]
		switch {
		case a.key != k:
		case won == nil || k == memoryQoSKey:
			requested := a.parsed
			var err error
			if requested == nil {
				requested = &workload.Request{}
				err = set(requested, k, a.value)
			}
			if err == nil {
				err = r.allow(requested, a)
			}
			if err != nil {
				r.refuse(a, err.Error())
				continue
			}
			before := r.req.Tuning.Memory
			k.fill(&r.req, requested)
			if k == coreSchedKey && requested.CoreSched != "" {
				r.req.CoreSched = requested.CoreSched
				if a.origin != config {
					r.req.CoreSched = r.ofNamespace(requested.CoreSched)
				}
			}
			if won == nil || r.req.Tuning.Memory != before {
				r.record(a)
			}
			if won == nil {
				won = a
			}
		case a.value != won.value && a.origin != config:
			r.warn(a.source, fmt.Sprintf("asks for %s %s, but %s for %s: the latter counts", k, quote(a.value), won.source, quote(won.value)))
		}
	}
	return won
}

// ofNamespace returns the name of a group that the pod itself named. It includes the namespace,
// so that no pod joins a group of another namespace or of the configuration.
func (r *reader) ofNamespace(group string) string { return r.pod.Namespace + "/" + group }

func (r *reader) record(a *candidate) {
	r.req.Keys = append(r.req.Keys, workload.RequestKey{Key: a.key.String(), Value: a.value, Source: a.source})
}
