package status

import (
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// ConfigDiff is what another configuration would change on this node now.
type ConfigDiff struct {
	Problem    string            `json:"problem,omitempty"` // why it would be refused; the rest is left out then
	Keys       []KeyChange       `json:"keys,omitempty"`
	Restart    []string          `json:"restart,omitempty"` // keys of these that take a restart of the plugin
	Pools      []PoolChange      `json:"pools,omitempty"`
	Containers []ContainerChange `json:"containers,omitempty"`
	Warnings   []string          `json:"warnings,omitempty"`
}

// KeyChange is a key of the configuration with another value; "" where it has none.
type KeyChange struct {
	Key  string `json:"key"`
	From string `json:"from"`
	To   string `json:"to"`
}

// PoolChange is a pool with other CPUs.
type PoolChange struct {
	Name string     `json:"name"`
	From cpuset.Set `json:"from"` // empty: there was none
	To   cpuset.Set `json:"to"`   // empty: there would be none
}

// ContainerChange is a container that would get something else.
type ContainerChange struct {
	Ref      string      `json:"ref"`
	From     Place       `json:"from"`
	To       Place       `json:"to"`
	Settings []KeyChange `json:"settings,omitempty"` // of what it asks for
	Problem  string      `json:"problem,omitempty"`  // why it would not get what it asks for
}

// Place is where a container runs.
type Place struct {
	Class workload.Class `json:"class"`
	Pool  string         `json:"pool,omitempty"`
	CPUs  cpuset.Set     `json:"cpus"` // empty: all
	Mems  cpuset.Set     `json:"mems"` // empty: all
}
