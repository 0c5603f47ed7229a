package annotation

import (
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// domain is the domain of the own keys: "class.sluice.dev".
const domain = "sluice.dev"

// Concerns reports whether an annotation or label may say something that this package,
// or pkg/workload, reads: its own keys, the dialects', and the kubelet's of a pod.
func Concerns(name string) bool {
	base, _, _ := strings.Cut(name, "/")
	return within(base, domain) || within(base, koordDomain) || base == katalystDomain || base == "kubernetes.io"
}

// maxLength bounds an annotation's value in bytes: a list of all CPUs of the
// largest machine, in every second number, is under 3 KiB.
const maxLength = 4096

type key uint8

// The keys: the own ones, of which those that place a container come first; those
// that only the config may give; and what only a dialect says.
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
	rdtClassKey // a dialect's also gives a share of the pod's own
	ioKey
	requiredKey
	allowKey
	evictKey
	grantKey // is read as batchKey

	weightKey
	oomScoreKey
	netClassKey

	batchKey
	priorityClassKey

	placementKeys = cpuBurstKey // how many keys place a container
	ownKeys       = weightKey   // how many keys a pod may say
	givenKeys     = batchKey    // how many keys the config may give
)

var keyNames = [...]string{
	"class", "pool", "cpus", "cpuset", "numa", "smt", "l3", "near", "memory-nodes", "exclusive", "exclusive-group",
	"cpu-burst", "cpu-identity", "core-sched", "memory-qos", "rdt-class", "io", "required", "allow", "evict", "grant",
	"weight", "oom-score", "net-class",
	"batch-resources", "priority-class",
}

// Keys lists the keys that a pod may say, without their domain.
func Keys() []string { return keyNames[:ownKeys:ownKeys] }

// GivenKeys lists the keys that only the config may give.
func GivenKeys() []string { return keyNames[ownKeys:givenKeys:givenKeys] }

func (k key) String() string { return keyNames[k] }

// keyOf finds a key that the config may give by its name without the domain.
func keyOf(name string) (key, bool) {
	for i, known := range keyNames[:givenKeys] {
		if name == known {
			return key(i), true
		}
	}
	return 0, false
}

// appliesTo reports whether a key means something to containers of a class.
func (k key) appliesTo(class workload.Class) bool {
	switch k {
	case poolKey, batchKey:
		return class == workload.LS || class == workload.BE
	case grantKey:
		return class == workload.BE
	case cpuBurstKey: // LSE and LSR have no quota
		return class == workload.LS
	case cpusKey, cpusetKey, numaKey, smtKey, l3Key, nearKey, exclusiveKey, exclusiveGroupKey:
		return class.Pinned()
	}
	return true
}

// inPool reports whether a pool may give a key to its containers.
func (k key) inPool() bool {
	switch k {
	case cpuIdentityKey, weightKey, rdtClassKey, ioKey, oomScoreKey, netClassKey:
		return true
	}
	return false
}

// origin is where an ask comes from, in order of precedence.
type origin uint8

const (
	ownAnnotation origin = iota
	koordinator
	katalyst
	config
)

// ask is one key that somebody wants for the container.
type ask struct {
	key    key
	value  string
	parsed *workload.Request // the value's meaning, where it was read before
	said   string            // the pod's own words, where value translates a dialect's
	source string            // for people: "annotation cpus.sluice.dev/pod"
	origin origin
	single bool // said of this container alone, not of its pod
	soft   bool // a preference: where it can't be honoured, it is ignored with a warning
}

func (a *ask) dialect() bool { return a.origin == koordinator || a.origin == katalyst }
