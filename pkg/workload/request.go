package workload

import "github.com/sluice-dev/sluice/topology/cpuset"

// Request is what one container asks for, after defaults, dialects and
// authorization. The zero value of a field means its default.
type Request struct {
	Class Class
	Pool  string // LS and BE; "" is the class's default pool

	Milli  MilliCPU      // the CPU that the container requested of the kubelet
	Memory int64         // the memory that it requested there, in bytes; 0 unknown, or none
	From   RequestSource // where what Grant returns is known from

	// LSE and LSR only.
	CPUs           int        // number of CPUs to pin, at most Milli rounded up
	CPUSet         cpuset.Set // CPUs that a scheduler chose; empty: Sluice chooses
	NUMA           NUMAPolicy
	SMT            SMTPolicy
	L3             L3Policy
	Near           Near
	Exclusive      ExclusiveLevel
	ExclusiveGroup string // "namespace/name" where the own annotation gave it, else "name"

	MemoryNodes MemoryNodes

	Tuning

	Keys []RequestKey // where each key came from, for explain
}

// Grant is the CPU and the memory in bytes that the container may count on: what it
// requested of the kubelet and, for BE, what it was granted of the node's batch
// resources. The latter protects no memory: it is what others leave.
func (r *Request) Grant() (MilliCPU, int64) {
	if r.Class != BE {
		return r.Milli, r.Memory
	}
	return max(r.Milli, r.Batch.CPURequest.Value), max(r.Memory, r.Batch.MemoryRequest.Value)
}

// RequestKey is one key that shaped the request.
type RequestKey struct {
	Key    string `json:"key"`    // Key, for example "class".
	Value  string `json:"value"`  // Value as it was written.
	Source string `json:"source"` // Where the value comes from, for example "annotation cpus.sluice.dev/pod" or "config defaults.burstable".
}

// NUMAPolicy says how a pin's CPUs lie on NUMA nodes.
type NUMAPolicy uint8

// The NUMA policies.
const (
	NUMAPrefer NUMAPolicy = iota // fewest nodes
	NUMASingle                   // one node, or fail
	NUMASpread                   // evenly over all nodes
)

// SMTPolicy says how a pin's CPUs lie on cores.
type SMTPolicy uint8

// The SMT policies; SMTDefault is full-core for LSE, any for LSR.
const (
	SMTDefault SMTPolicy = iota
	SMTAny
	SMTFullCore
	SMTOnePerCore // the sibling stays empty of other pins
)

// L3Policy says how a pin's CPUs lie on L3 domains.
type L3Policy uint8

// The L3 policies.
const (
	L3Pack L3Policy = iota
	L3Spread
)

// Near asks for CPUs close to a device.
type Near struct {
	PCI        string     // a PCI address; "" none
	OwnDevices bool       // the devices the container was given
	CPUs       cpuset.Set // the CPUs local to OwnDevices, once they are looked up
}

// ExclusiveLevel is the domain that a pin shares with no other pin of its group.
type ExclusiveLevel uint8

// The levels of exclusive.sluice.dev.
const (
	NotExclusive ExclusiveLevel = iota
	ExclusiveCore
	ExclusiveNode
)

// MemoryNodes says which NUMA nodes the container's memory may come from.
type MemoryNodes struct {
	Policy MemoryPolicy
	Nodes  cpuset.Set // MemoryListed only
}

// MemoryPolicy chooses memory nodes.
type MemoryPolicy uint8

// The memory policies; MemoryDefault is local for LSE and LSR, any for others.
const (
	MemoryDefault MemoryPolicy = iota
	MemoryLocal
	MemoryAny
	MemoryListed
)
