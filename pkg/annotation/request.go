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
	Memory         int64 // the node's memory in bytes; 0 unknown
}

// Request is what the container asks for. The error joins one *Invalid for
// each value that can't be honoured; the request is then the zero value.
func (r *Rules) Request(facts Facts, pod *workload.Pod, c *workload.Container) (workload.Request, []Warning, error) {
	var space [8]ask
	in := reader{rules: r, facts: facts, pod: pod, container: c, asks: space[:0]}
	in.gather()
	in.req.Milli, in.exact = workload.CPURequest(pod, c.Resources)
	in.req.Memory, _ = workload.MemoryRequest(pod, c, facts.Memory)
	in.read()
	if len(in.problems) > 0 {
		return workload.Request{}, in.warnings, errors.Join(in.problems...)
	}
	return in.req, in.warnings, nil
}

// reader makes one container's request.
type reader struct {
	rules     *Rules
	facts     Facts
	pod       *workload.Pod
	container *workload.Container

	asks     []ask // in order of precedence
	exact    bool  // req.Milli is the whole request
	class    ask   // what gave the class
	req      workload.Request
	warnings []Warning
	problems []error
}

func (r *reader) gather() {
	if len(r.pod.Annotations) > 0 {
		r.own()
	}
	if r.rules.Dialects.Koordinator {
		r.koordinator()
	}
	if r.rules.Dialects.Katalyst {
		r.katalyst()
	}
	for i := range r.rules.Classify {
		rule := &r.rules.Classify[i]
		if !rule.matches(r.pod) {
			continue
		}
		source := "config classify rule " + strconv.Itoa(i+1)
		for name, value := range rule.Set {
			if k, ok := keyOf(name); ok && k < placementKeys {
				r.ask(ask{key: k, value: value, source: source, origin: config})
			}
		}
		break
	}
}

func (r *reader) ask(a ask) {
	if len(a.value) > maxLength {
		r.refuse(&a, tooLong(len(a.value)))
		return
	}
	r.asks = append(r.asks, a)
}

func (r *reader) read() {
	if won := r.settle(classKey); won != nil {
		r.class = *won
	} else {
		var source string
		r.req.Class, source = r.rules.Defaults.of(r.pod.QoS())
		r.class = ask{key: classKey, value: r.req.Class.String(), source: source, origin: config}
		r.record(&r.class)
	}
	if r.req.Class.Pinned() && !r.pin() {
		r.share()
	} else {
		r.passOver()
	}
	if !r.req.Class.Pinned() && r.req.Class != workload.System {
		r.settle(poolKey)
	}
	r.settle(memoryNodesKey)
}

// passOver warns of keys that mean nothing to the container's class. A classify
// rule may hold keys for several classes.
func (r *reader) passOver() {
	for i := range r.asks {
		if a := &r.asks[i]; a.origin != config && !a.key.appliesTo(r.req.Class) {
			r.warn(a.source, "has no effect on class "+r.req.Class.String())
		}
	}
}

// share makes a container that can't be pinned LS.
func (r *reader) share() {
	r.req = workload.Request{Class: workload.LS, Milli: r.req.Milli, Memory: r.req.Memory}
	r.record(&ask{key: classKey, value: "LS", source: r.class.source + ", which can't be pinned"})
}

// settle puts the first valid value of a key into the request and returns the
// ask that it came from, nil where there is none.
func (r *reader) settle(k key) *ask {
	var won *ask
	for i := range r.asks {
		a := &r.asks[i]
		switch {
		case a.key != k:
		case won == nil:
			next := r.req
			err := set(&next, k, a.value)
			if err == nil {
				err = r.allow(&next, a)
			}
			if err != nil {
				r.refuse(a, err.Error())
				continue
			}
			r.req, won = next, a
			r.record(a)
		case a.value != won.value && a.origin != config:
			r.warn(a.source, fmt.Sprintf("asks for %s %s, but %s for %s: the latter counts", k, quote(a.value), won.source, quote(won.value)))
		}
	}
	return won
}

func (r *reader) record(a *ask) {
	r.req.Settings = append(r.req.Settings, workload.Setting{Key: a.key.String(), Value: a.value, Source: a.source})
}

// allow says why the container may not have what an ask made of its request.
func (r *reader) allow(next *workload.Request, a *ask) error {
	switch a.key {
	case classKey:
		if next.Class == workload.System {
			return r.authorize(SystemClass, a)
		}
	case poolKey:
		return r.rules.knowsPool(next.Pool)
	case cpusetKey:
		if size := next.CPUSet.Size(); next.CPUs > 0 && size != next.CPUs {
			return fmt.Errorf("these are %d CPUs, and %d are asked for; name as many, or leave cpus.sluice.dev out", size, next.CPUs)
		}
		return r.withinGrant(next.CPUSet.Size())
	case cpusKey:
		if size := next.CPUSet.Size(); size > 0 && size != next.CPUs {
			return fmt.Errorf("the CPUs chosen are %s, which is %d; leave this key out, or name as many", next.CPUSet, size)
		}
		return r.withinGrant(next.CPUs)
	case exclusiveKey:
		if next.Exclusive == workload.ExclusiveNode {
			return r.authorize(ExclusiveNUMA, a)
		}
	case memoryNodesKey:
		if a.origin == koordinator && !next.Class.Pinned() {
			return errors.New("binds the memory of LSE and LSR only, whose CPUs are near it")
		}
	}
	return nil
}

// authorize refuses a feature that the pod has no right to; what the config
// itself gives needs none.
func (r *reader) authorize(f Feature, a *ask) error {
	if a.origin == config || r.rules.authorized(r.pod, f) {
		return nil
	}
	return fmt.Errorf("is not allowed in namespace %s; the node's config allows it with an entry for %q under authorize", r.pod.Namespace, f)
}
