package status

import (
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Claims are the CPUs that resource claims of Kubernetes (DRA) have and can have.
type Claims struct {
	Devices  []ClaimDevice `json:"devices"`            // Parts of the machine of the kind that --claim-devices names, those that follow each other close together.
	Reserved []Claim       `json:"reserved,omitempty"` // What claims have reserved, oldest first; absent if there are none.
}

// ClaimDevice is a NUMA node, an L3 domain or a core as claims see it.
type ClaimDevice struct {
	Device         claim.Domain `json:"device"`            // Name of the device: numa0 with the number of the NUMA node, l3-0 or core0 with that of a CPU.
	CPUs           int          `json:"cpus"`              // CPUs that claims can have there together, with what those there have asked for; of a core 0 if it is not free, nor a claim's.
	Nodes          cpuset.Set   `json:"nodes"`             // NUMA nodes of its CPUs.
	ThreadsPerCore int          `json:"threadsPerCore"`    // Hardware threads of a core; claims have whole cores.
	Distances      []int        `json:"distances"`         // Distances from its NUMA node to all, in their order, as the firmware states them: 10 is local; empty if it has CPUs of several.
	L3             int          `json:"l3"`                // Lowest CPU of its L3 domain; -1 if it has CPUs of several.
	L3Bytes        int64        `json:"l3Bytes,omitempty"` // Size of its largest L3 cache in bytes; absent if unknown.
	CoreKind       string       `json:"coreKind"`          // Kind of its first core: performance or efficiency.
}

// Claim is one part of a resource claim.
type Claim struct {
	ID      string         `json:"id"`                // UID of the claim, with the number of the part.
	Ref     string         `json:"ref"`               // Claim as "claim namespace/name".
	Device  claim.Domain   `json:"device"`            // Name of the device of whose CPUs the claim has some.
	Class   workload.Class `json:"class"`             // Class of the containers that use it.
	CPUs    cpuset.Set     `json:"cpus"`              // CPUs that it has.
	Problem string         `json:"problem,omitempty"` // Why it has fewer CPUs than it asked for; absent if it has all.
}
