// Package annotation reads what a pod says about its containers (its own keys,
// and the dialects of Koordinator and Katalyst) and turns it, with the node's
// rules, into a workload.Request, or into an error that tells a person what to
// change. An annotation shapes what the scheduler granted and never takes more.
//
// For each key the first valid value of this order counts:
//
//  1. the pod's own annotations: KEY/container.NAME, else KEY/pod, else KEY
//  2. Koordinator's labels and annotations
//  3. Katalyst's annotations
//  4. the first classify rule that matches the pod
//  5. what its pool gives
//  6. what its class gives; for the class, the default of the pod's Kubernetes
//     QoS class
//
// What the config gives (4 to 6) needs no authorization, and where a container
// can't carry it, the container is served without it and a warning says so.
// It bounds egress: the pod's own value counts only where it is smaller.
package annotation

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Rules are the node's rules for what pods say.
type Rules struct {
	OnInvalid OnInvalid        `yaml:"onInvalid"` // What a bad value does: reject fails the container; ignore drops the value with a warning.
	RoundUp   bool             `yaml:"roundUp"`   // Pin whole CPUs for requests of a fraction, if the pod has the feature roundUp.
	Defaults  Defaults         `yaml:"defaults"`
	Classify  []Classification `yaml:"classify"`
	Authorize []Authorization  `yaml:"authorize"`
	Dialects  Dialects         `yaml:"dialects"`
	Classes   Classes          `yaml:"classes"`

	Pools           []string       `yaml:"-"` // the names that the pool key may take, the last the batch pool's
	DefaultPool     string         `yaml:"-"` // of LS containers that name none
	PoolSets        map[string]Set `yaml:"-"` // what pools give, by name
	NeverEvict      []string       `yaml:"-"` // globs of namespaces whose pods are never evicted
	LeastSLOPercent int            `yaml:"-"` // lowest bound of slo on waiting for CPUs that needs no authorization
	RDTClasses      []string       `yaml:"-"` // the names that the rdt-class key may take
	RDTPerPod       bool           `yaml:"-"` // pods may have a share of the cache of their own
}

// defaultPool is the pool of containers that name none; "" where it is not known.
func (r *Rules) defaultPool(class workload.Class) string {
	if class == workload.BE && len(r.Pools) > 0 {
		return r.Pools[len(r.Pools)-1]
	}
	return r.DefaultPool
}

// DefaultRules are the rules as shipped: everything is LS unless it says
// otherwise, and only kube-system may be SYSTEM.
func DefaultRules() Rules {
	return Rules{
		OnInvalid: Reject,
		Defaults:  Defaults{Guaranteed: workload.LS, Burstable: workload.LS, BestEffort: workload.LS},
		Authorize: []Authorization{{Features: []Feature{SystemClass}, Namespaces: []string{"kube-system"}}},
		Dialects:  Dialects{Koordinator: true, Katalyst: true},
		Classes:   defaultClasses(),
	}
}

// defaultClasses are the classes' knobs as shipped. LS has none, so that nothing
// changes for pods that ask for nothing.
func defaultClasses() Classes {
	set := func(keysAndValues ...string) Set {
		s := Set{}
		for i := 0; i < len(keysAndValues); i += 2 {
			g, err := Give(keysAndValues[i], keysAndValues[i+1])
			if err != nil {
				panic("annotation: " + keysAndValues[i] + ": " + err.Error())
			}
			s[keysAndValues[i]] = g
		}
		return s
	}
	own := func() Set {
		return set("cpu-identity", "2", "memory-qos", "{minPercent: 100, wmarkMinAdj: -25}")
	}
	return Classes{
		LSE: own(), LSR: own(), LS: set(),
		BE:     set("cpu-identity", "-1", "memory-qos", "{wmarkRatio: 95, wmarkScale: 20, wmarkMinAdj: 50}"),
		System: set(),
	}
}

// OnInvalid says what becomes of a container with a value that can't be
// honoured.
type OnInvalid string

// The answers to an invalid value. The empty one is Reject.
const (
	Reject OnInvalid = "reject" // the container fails
	Ignore OnInvalid = "ignore" // the key is ignored, with a warning
)

// UnmarshalText reads "reject" or "ignore".
func (o *OnInvalid) UnmarshalText(text []byte) error {
	switch v := OnInvalid(text); v {
	case Reject, Ignore:
		*o = v
		return nil
	}
	return errors.New("must be reject or ignore")
}

// Defaults are the classes of pods that no annotation and no classify rule
// classifies, by the pod's Kubernetes QoS class. Unclassified is LS, as is a pod
// outside of the kubelet's tree.
type Defaults struct {
	Guaranteed workload.Class `yaml:"guaranteed"` // Class of Guaranteed pods that nothing else classifies.
	Burstable  workload.Class `yaml:"burstable"`  // Class of Burstable pods that nothing else classifies.
	BestEffort workload.Class `yaml:"besteffort"` // Class of BestEffort pods that nothing else classifies, except pods that are never evicted.
}

// spared says why a container's pod is never evicted, and not batch work by default; ""
// where it may be. The node, or the cluster, goes on by such pods, and the kubelet doesn't
// evict them either.
func (r *Rules) spared(pod *workload.Pod, c *workload.Container) string {
	switch {
	case pod.Static():
		return "the pod is static"
	case workload.NodeCritical(pod, c):
		return "the pod has priority class system-node-critical"
	case anyGlob(r.NeverEvict, pod.Namespace):
		return "config control.eviction.never has namespace " + pod.Namespace
	}
	return ""
}

func (d *Defaults) of(qos workload.QoS) (class workload.Class, source string) {
	switch qos {
	case workload.Guaranteed:
		class, source = d.Guaranteed, "config defaults.guaranteed"
	case workload.Burstable:
		class, source = d.Burstable, "config defaults.burstable"
	case workload.BestEffort:
		class, source = d.BestEffort, "config defaults.besteffort"
	}
	if class == workload.Unclassified {
		return workload.LS, "default"
	}
	return class, source
}

// Match selects pods. Each list or map that is not empty must match; patterns
// are globs (*, ?, [a-z]).
type Match struct {
	Namespaces      []string          `yaml:"namespaces"`      // Patterns of namespaces. A rule applies to the pods that match all that it names.
	Labels          map[string]string `yaml:"labels"`          // Labels with patterns of their values.
	RuntimeHandlers []string          `yaml:"runtimeHandlers"` // Patterns of runtime handlers.
}

func (m *Match) matches(pod *workload.Pod) bool {
	if len(m.Namespaces) > 0 && !anyGlob(m.Namespaces, pod.Namespace) {
		return false
	}
	if len(m.RuntimeHandlers) > 0 && !anyGlob(m.RuntimeHandlers, pod.RuntimeHandler) {
		return false
	}
	for label, pattern := range m.Labels {
		value, ok := pod.Labels[label]
		if !ok || !glob(pattern, value) {
			return false
		}
	}
	return true
}

// Classification gives keys to the pods that it matches, as if they had
// annotated them, for what neither they nor a dialect say themselves.
type Classification struct {
	Match `yaml:",inline"`
	Set   Set `yaml:"set"` // Annotation keys without .sluice.dev, and the keys of classes.
}

// Feature is something beyond the grant, for which a pod needs authorization.
type Feature string

// The features.
const (
	SystemClass   Feature = "system"        // class SYSTEM
	RoundUpCPUs   Feature = "roundUp"       // LSE and LSR with a request that is not a whole number, where roundUp is on
	ExclusiveNUMA Feature = "exclusiveNode" // exclusive: node, Katalyst's numa_exclusive, Koordinator's NUMANodeLevel
	OtherPool     Feature = "pool"          // a pool that gives keys to its containers, where it is not the class's default
	HighIdentity  Feature = "identity"      // cpu-identity above what the config gives
	OtherRDT      Feature = "rdt"           // another share of cache and bandwidth than the RDT class that the config gives
	IOWeight      Feature = "ioWeight"      // io weight above 100, or io beyond what the config gives
	HighTier      Feature = "tier"          // tier mid, where the pod was granted no mid resources and the config gives it none
	TightSLO      Feature = "slo"           // a latency objective, or a bound on waiting for CPUs below control.slo.leastPercent, that the config does not give
	OOMScore      Feature = "oomScore"      // to be killed, or its memory taken, later than the kubelet and the config give
)

// Features lists the features.
func Features() []string {
	return []string{string(SystemClass), string(RoundUpCPUs), string(ExclusiveNUMA), string(OtherPool), string(HighIdentity), string(OtherRDT), string(IOWeight), string(HighTier), string(TightSLO), string(OOMScore)}
}

// UnmarshalText reads a feature's name.
func (f *Feature) UnmarshalText(text []byte) error {
	names := Features()
	if !slices.Contains(names, string(text)) {
		return errors.New("must be " + strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1])
	}
	*f = Feature(text)
	return nil
}

// Authorization allows features to pods by namespace and labels. Labels alone
// are only as good as the control over who may set them.
type Authorization struct {
	Features   []Feature         `yaml:"features"`   // Features that matching pods may use. Default: system for kube-system.
	Namespaces []string          `yaml:"namespaces"` // Patterns of namespaces; "*" is all pods.
	Labels     map[string]string `yaml:"labels"`     // Labels with patterns of their values; safe only if you control who sets them.
}

// authorized reports whether some rule allows feature to the pod. A rule without
// namespaces and labels allows nothing: everywhere is written "*".
func (r *Rules) authorized(pod *workload.Pod, feature Feature) bool {
	for i := range r.Authorize {
		a := &r.Authorize[i]
		match := Match{Namespaces: a.Namespaces, Labels: a.Labels}
		if len(a.Namespaces)+len(a.Labels) == 0 || !match.matches(pod) {
			continue
		}
		if slices.Contains(a.Features, feature) {
			return true
		}
	}
	return false
}

// Dialects switches on the annotations of other systems.
type Dialects struct {
	Koordinator bool `yaml:"koordinator"` // Read Koordinator's labels and annotations.
	Katalyst    bool `yaml:"katalyst"`    // Read Katalyst's annotations.
}

func anyGlob(patterns []string, text string) bool {
	for _, pattern := range patterns {
		if glob(pattern, text) {
			return true
		}
	}
	return false
}

// glob reports whether pattern matches all of text; a malformed pattern, which
// the config refuses, matches nothing.
func glob(pattern, text string) bool {
	ok, err := path.Match(pattern, text)
	return ok && err == nil
}
