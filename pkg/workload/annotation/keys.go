package annotation

import (
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// domain is the domain of Sluice's own keys: "class.sluice.dev".
const domain = "sluice.dev"

// Concerns reports whether this package or pkg/workload reads annotations or labels of that
// name: Sluice's own keys, those of the dialects, and the kubelet's keys of a pod.
func Concerns(name string) bool {
	base, _, _ := strings.Cut(name, "/")
	return within(base, domain) || within(base, koordDomain) || base == katalystDomain || base == "kubernetes.io"
}

// maxLength bounds an annotation's value in bytes: a list of all CPUs of the
// largest machine, in every second number, is under 3 KiB.
const maxLength = 4096

type key uint8

// The keys are in this order: Sluice's own, with those that place a container first; those that
// only the configuration may give; and those that only a dialect uses.
const (
	classKey key = iota
	poolKey
	cpusKey
	cpusetKey
	numaKey
	smtKey
	l3Key
	nearKey
	memoryNodesKey
	exclusiveKey
	exclusiveGroupKey

	cpuBurstKey
	cpuIdentityKey
	coreSchedKey
	memoryQoSKey
	rdtClassKey // a dialect's key may also give a share for the pod alone
	ioKey
	requiredKey
	allowKey
	evictKey
	tierKey
	noticeKey
	sloKey
	egressKey // for the whole pod: the smallest of its containers' counts
	grantKey  // is read as batchKey

	weightKey
	oomScoreKey
	netClassKey

	batchKey

	placementKeys = cpuBurstKey // number of keys that place a container
	ownKeys       = weightKey   // number of keys that a pod may use
	givenKeys     = batchKey    // number of keys that the configuration may give
)

var keyNames = [...]string{
	"class", "pool", "cpus", "cpuset", "numa", "smt", "l3", "near", "memory-nodes", "exclusive", "exclusive-group",
	"cpu-burst", "cpu-identity", "core-sched", "memory-qos", "rdt-class", "io", "required", "allow", "evict", "tier", "notice", "slo", "egress", "grant",
	"weight", "oom-score", "net-class",
	"batch-resources",
}

// Keys lists the keys that a pod may use, without their domain.
func Keys() []string { return keyNames[:ownKeys:ownKeys] }

// GivenKeys lists the keys that only the configuration may give.
func GivenKeys() []string { return keyNames[ownKeys:givenKeys:givenKeys] }

func (k key) String() string { return keyNames[k] }

// keyOf returns the key that the configuration may give, by its name without the domain.
func keyOf(name string) (key, bool) {
	for i, known := range keyNames[:givenKeys] {
		if name == known {
			return key(i), true
		}
	}
	return 0, false
}

// appliesTo reports whether a key has a meaning for containers of a class.
func (k key) appliesTo(class workload.Class) bool {
	switch k {
	case poolKey, batchKey:
		return class == workload.LS || class == workload.BE
	case numaKey:
		return class == workload.LS || class == workload.BE || class.Pinned()
	case tierKey, noticeKey, egressKey, grantKey:
		return class == workload.BE
	case sloKey:
		return class == workload.LS || class.Pinned()
	case cpuBurstKey: // LSE and LSR have no quota
		return class == workload.LS
	case cpusKey, cpusetKey, smtKey, l3Key, nearKey, exclusiveKey, exclusiveGroupKey:
		return class.Pinned()
	}
	return true
}

// inPool reports whether a pool may give a key to its containers.
func (k key) inPool() bool {
	switch k {
	case cpuIdentityKey, weightKey, rdtClassKey, ioKey, egressKey, oomScoreKey, netClassKey:
		return true
	}
	return false
}

// origin is the source of a candidate. The origins are in order of precedence.
type origin uint8

const (
	claim origin = iota
	ownAnnotation
	koordinator
	katalyst
	config
)

// candidate is a value for one key of the container from one source.
type candidate struct {
	key     key
	value   string
	parsed  *workload.Request // parsed value, if it was parsed before
	podText string            // the pod's own text, if value is the translation of a dialect's
	source  string            // "annotation cpus.sluice.dev/pod", for messages
	origin  origin
	single  bool // applies to this container only, not to its pod
	soft    bool // a preference: if it can't be met, it is ignored with a warning
}

func (a *candidate) dialect() bool { return a.origin == koordinator || a.origin == katalyst }
