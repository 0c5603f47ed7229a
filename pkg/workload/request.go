package workload

import "github.com/sluice-dev/sluice/topology/cpuset"

// Request is what one container asks for, after defaults, dialects and authorization have been
// applied. The zero value of a field means its default.
type Request struct {
	Class Class
	Pool  string // for LS and BE; "" is the class's default pool

	Milli  MilliCPU      // CPU that the container requested from the kubelet
	Memory int64         // memory in bytes that it requested from the kubelet; 0 if unknown or none
	From   RequestSource // source of the requests that Grant returns

	NUMA NUMAPolicy // of the CPUs of its own, and for LS and BE of those of the pool

	// The following fields are for LSE and LSR only.
	CPUs           int        // number of CPUs to pin, at most Milli rounded up
	CPUSet         cpuset.Set // CPUs that a scheduler chose; if empty, Sluice chooses
	SMT            SMTPolicy
	L3             L3Policy
	Near           Near
	Exclusive      ExclusiveLevel
	ExclusiveGroup string // "namespace/name" if Sluice's own annotation named it, otherwise "name"

	// Claims are the IDs of the resource claims whose CPUs the container runs on, for LSE and LSR only.
	Claims []string

	MemoryNodes MemoryNodes

	Tuning

	Keys []RequestKey // source of each key, for explain
}

// Grant returns the CPU and the memory in bytes that the container may count on: what it
// requested from the kubelet and, for BE, its grant of the node's batch resources. The latter
// protects no memory, since it is what others leave.
func (r *Request) Grant() (MilliCPU, int64) {
	if r.Class != BE {
		return r.Milli, r.Memory
	}
	return max(r.Milli, r.Batch.CPURequest.Value), max(r.Memory, r.Batch.MemoryRequest.Value)
}

// BatchTier returns the tier that the request names, or the default; nil for other classes than BE.
func (r *Request) BatchTier() *Tier {
	if r.Class != BE {
		return nil
	}
	return new(r.Tier.Value)
}

// RequestKey is one key that influenced the request.
type RequestKey struct {
	Key    string `json:"key"`    // Key, for example "class".
	Value  string `json:"value"`  // Value as it was written.
	Source string `json:"source"` // Where the value comes from, for example "annotation cpus.sluice.dev/pod" or "config defaults.burstable".
}

// NUMAPolicy says how a container's CPUs lie on NUMA nodes.
type NUMAPolicy uint8

// The NUMA policies. NUMADefault is prefer for LSE and LSR, and no policy for others.
const (
	NUMADefault NUMAPolicy = iota
	NUMAPrefer             // on as few nodes as possible; for LS and BE on one, if it has room
	NUMASingle             // on one node, or not at all
	NUMASpread             // evenly on all nodes; for LSE and LSR only
)

// SMTPolicy says how a pin's CPUs lie on cores.
type SMTPolicy uint8

// These are the SMT policies. SMTDefault is full-core for LSE and any for LSR.
const (
	SMTDefault SMTPolicy = iota
	SMTAny
	SMTFullCore
	SMTOnePerCore // no other pin gets the sibling
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
	PCI        string     // PCI address; "" for none
	OwnDevices bool       // the devices that the container was given
	CPUs       cpuset.Set // CPUs local to OwnDevices, once they are known
}

// ExclusiveLevel is the domain that a pin shares with no other pin of its group.
type ExclusiveLevel uint8

// These are the levels of exclusive.sluice.dev.
const (
	NotExclusive ExclusiveLevel = iota
	ExclusiveCore
	ExclusiveNode
)

// MemoryNodes says from which NUMA nodes the container's memory may come.
type MemoryNodes struct {
	Policy MemoryPolicy
	Nodes  cpuset.Set // for MemoryListed only
}

// MemoryPolicy chooses memory nodes.
type MemoryPolicy uint8

// These are the memory policies. MemoryDefault is local for LSE and LSR and with NUMASingle, and any for others.
const (
	MemoryDefault MemoryPolicy = iota
	MemoryLocal
	MemoryAny
	MemoryListed
)
