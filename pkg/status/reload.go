package status

import (
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// ConfigDiff is what another configuration would change on this node now.
type ConfigDiff struct {
	Problem    string            `json:"problem,omitempty"`    // Why the configuration would be refused; absent if it would be accepted, else all other fields are.
	Keys       []KeyChange       `json:"keys,omitempty"`       // Keys that would have another value.
	Restart    []string          `json:"restart,omitempty"`    // Changed keys that take effect only after a restart of the plugin.
	Pools      []PoolChange      `json:"pools,omitempty"`      // Pools that would have other CPUs.
	Containers []ContainerChange `json:"containers,omitempty"` // Containers that would get something else.
	Warnings   []string          `json:"warnings,omitempty"`   // Warnings about the configuration.
}

// KeyChange is a key of the configuration with another value; "" where it has none.
type KeyChange struct {
	Key  string `json:"key"`  // Key of the configuration.
	From string `json:"from"` // Value now; empty if it has none.
	To   string `json:"to"`   // Value that it would have; empty if it would have none.
}

// PoolChange is a pool with other CPUs.
type PoolChange struct {
	Name string     `json:"name"` // Name of the pool.
	From cpuset.Set `json:"from"` // CPUs now; empty if the pool does not exist.
	To   cpuset.Set `json:"to"`   // CPUs that it would have; empty if the pool would not exist.
}

// ContainerChange is a container that would get something else.
type ContainerChange struct {
	Ref     string      `json:"ref"`               // Container as "namespace/pod/container".
	From    Place       `json:"from"`              // Where the container runs now.
	To      Place       `json:"to"`                // Where the container would run.
	Keys    []KeyChange `json:"keys,omitempty"`    // Keys of the container's request that would change.
	Problem string      `json:"problem,omitempty"` // Why the container would not get what it asks for; absent if it would.
}

// Place is where a container runs.
type Place struct {
	Class workload.Class `json:"class"`          // Class of the container.
	Pool  string         `json:"pool,omitempty"` // Pool of the container; absent if it has exclusive CPUs.
	CPUs  cpuset.Set     `json:"cpus"`           // CPUs that the container may use; empty means all.
	Mems  cpuset.Set     `json:"mems"`           // NUMA nodes that the container may get memory from; empty means all.
}
