// Package placement decides which container gets which CPUs and memory nodes, and
// keeps the ledger of who holds what. Pure.
package placement

import "github.com/sluice-dev/sluice/topology/cpuset"

// Config is the node's division into pools and sets, from sluice.yaml.
type Config struct {
	Reserved cpuset.Set // CPUs that no container gets
	System   cpuset.Set // CPUs of class SYSTEM; empty: SYSTEM shares with LS
	Mode     Mode
	Pools    []Pool // in order of priority, the highest first; the last is the batch pool
	// Follow: a loop sets the sizes. A pool that is found with another size than its
	// own, as after a restart, keeps it until SetSizes says otherwise.
	Follow bool
}

// Mode says whether batch shares CPUs with the online pools.
type Mode uint8

// The pool modes.
const (
	Overlap   Mode = iota // batch runs on the online pools' CPUs too
	Exclusive             // pools partition the shared CPUs
)

// Pool is a named part of the shared CPUs.
type Pool struct {
	Name string
	Size Size
}

// Size is a pool's static size. The zero value is the rest: all shared CPUs that
// no sized pool took, shared by all pools without a size.
type Size struct {
	Count   int        // CPUs
	Percent int        // of the CPUs that can be allocated, rounded up to whole cores
	Set     cpuset.Set // exactly these, while no pin has them
}

// Default is the shipped division: all LS on everything, batch overlapping.
func Default() Config {
	return Config{Pools: []Pool{{Name: "critical"}, {Name: "online"}, {Name: "batch"}}}
}

// DefaultPool is the pool of LS containers that name none: "online" where the
// config has it, else the last online pool.
func (c *Config) DefaultPool() string {
	for _, p := range c.Pools {
		if p.Name == "online" {
			return p.Name
		}
	}
	return c.Pools[max(0, len(c.Pools)-2)].Name
}

// BatchPool is the pool of BE containers.
func (c *Config) BatchPool() string { return c.Pools[len(c.Pools)-1].Name }
