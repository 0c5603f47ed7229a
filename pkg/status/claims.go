package status

import (
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Claims are the CPUs that resource claims of Kubernetes (DRA) have and can have.
type Claims struct {
	Nodes    []ClaimNode `json:"nodes"`              // NUMA nodes with CPUs.
	Reserved []Claim     `json:"reserved,omitempty"` // What claims have reserved, oldest first; absent if there are none.
}

// ClaimNode is a NUMA node as claims see it.
type ClaimNode struct {
	Node           int    `json:"node"`              // Number of the NUMA node.
	CPUs           int    `json:"cpus"`              // CPUs that claims can have there together, with those that they have.
	ThreadsPerCore int    `json:"threadsPerCore"`    // Hardware threads of a core; claims have whole cores.
	L3Bytes        int64  `json:"l3Bytes,omitempty"` // Size of the largest L3 cache of the node in bytes; absent if unknown.
	CoreKind       string `json:"coreKind"`          // Kind of the node's first core: performance or efficient.
}

// Claim is one part of a resource claim.
type Claim struct {
	ID      string         `json:"id"`                // UID of the claim, with the number of the part.
	Ref     string         `json:"ref"`               // Claim as "claim namespace/name".
	Class   workload.Class `json:"class"`             // Class of the containers that use it.
	CPUs    cpuset.Set     `json:"cpus"`              // CPUs that it has.
	Problem string         `json:"problem,omitempty"` // Why it has fewer CPUs than it asked for; absent if it has all.
}
