package placement

import "github.com/sluice-dev/sluice/topology/cpuset"

// Config is the division of the node into pools and sets, from sluice.yaml.
type Config struct {
	Reserved cpuset.Set // CPUs that no container gets
	System   cpuset.Set // CPUs of class SYSTEM; if empty, SYSTEM shares CPUs with LS
	Mode     Mode
	Pools    []Pool // in descending priority; the last is the batch pool
	// Follow is set if the control loop sets the sizes. A pool that is found with another size
	// than the configured one, as after a restart, keeps it until SetSizes changes it.
	Follow bool
}

// Mode says whether batch work shares CPUs with the online pools.
type Mode uint8

// These are the modes of the pools.
const (
	Overlap   Mode = iota // batch work runs on the online pools' CPUs too
	Exclusive             // the pools partition the shared CPUs
)

// Pool is a named part of the shared CPUs.
type Pool struct {
	Name string
	Size Size
}

// Size is a pool's static size. The zero value stands for all shared CPUs that no pool with a
// size has; all pools without a size share them.
type Size struct {
	Count   int        // number of CPUs
	Percent int        // percentage of the allocatable CPUs, rounded up to whole cores
	Set     cpuset.Set // exactly these CPUs, without those that pins have
}

// Default returns the default division: all LS pods share all CPUs, and batch work overlaps
// them.
func Default() Config {
	return Config{Pools: []Pool{{Name: "critical"}, {Name: "online"}, {Name: "batch"}}}
}

// DefaultPool returns the pool of LS containers that name none: "online" if it is configured,
// and otherwise the last online pool.
func (c *Config) DefaultPool() string {
	for _, p := range c.Pools {
		if p.Name == "online" {
			return p.Name
		}
	}
	return c.Pools[max(0, len(c.Pools)-2)].Name
}

// BatchPool returns the name of the pool of BE containers.
func (c *Config) BatchPool() string { return c.Pools[len(c.Pools)-1].Name }
