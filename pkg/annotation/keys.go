package annotation

import "github.com/sluice-dev/sluice/pkg/workload"

// domain is the domain of the own keys: "class.sluice.dev".
const domain = "sluice.dev"

// maxLength bounds an annotation's value in bytes: a list of all CPUs of the
// largest machine, in every second number, is under 3 KiB.
const maxLength = 4096

type key uint8

// The own keys, those that place a container first.
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

	placementKeys // how many keys place a container; those from here on have no effect yet
)

var keyNames = [...]string{
	"class", "pool", "cpus", "cpuset", "numa", "smt", "l3", "near", "memory-nodes", "exclusive", "exclusive-group",

	"cpu-burst", "cpu-identity", "core-sched", "memory-qos", "rdt-class", "io", "priority", "required", "allow", "evict",
}

func (k key) String() string { return keyNames[k] }

// keyOf finds a key by its name without the domain.
func keyOf(name string) (key, bool) {
	for i, known := range keyNames {
		if name == known {
			return key(i), true
		}
	}
	return 0, false
}

// appliesTo reports whether a key means something to containers of a class.
func (k key) appliesTo(class workload.Class) bool {
	switch k {
	case classKey, memoryNodesKey:
		return true
	case poolKey:
		return class == workload.LS || class == workload.BE
	}
	return class.Pinned()
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
	said   string // the pod's own words, where value translates a dialect's
	source string // for people: "annotation cpus.sluice.dev/pod"
	origin origin
	soft   bool // a preference: where it can't be honoured, it is ignored with a warning
}

func (a *ask) dialect() bool { return a.origin == koordinator || a.origin == katalyst }
