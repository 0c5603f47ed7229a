package config

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Pools divide the shared CPUs.
type Pools struct {
	Mode PoolMode `yaml:"mode"`
	List []Pool   `yaml:"list"` // in order of priority, the highest first; the last is the batch pool
}

// PoolMode says whether the batch pool shares CPUs with the others.
type PoolMode string

// These pool modes are supported.
const (
	Overlap   PoolMode = "overlap"
	Exclusive PoolMode = "exclusive"
)

// UnmarshalText reads "overlap" or "exclusive".
func (m *PoolMode) UnmarshalText(text []byte) error { return choose(m, text, Overlap, Exclusive) }

// Pool is one pool. Without CPUs it is the rest, together with all others
// without.
type Pool struct {
	Name string         `yaml:"name"`
	CPUs PoolSize       `yaml:"cpus"`
	Set  annotation.Set `yaml:"set"` // what it gives to its containers

	Band   Band          `yaml:"band"`   // its load, in percent of its CPUs, that the loop holds
	RCF    Band          `yaml:"rcf"`    // its CPUs, in percent of what its containers request
	Min    int           `yaml:"min"`    // CPUs that it always has
	Memory control.Bytes `yaml:"memory"` // limit of all its containers together
}

// PoolSize is a pool's size: a count ("4"), a share of the CPUs that can be
// allocated ("25%"), or a list ("0-3,8"; of one CPU: "4-4").
type PoolSize placement.Size

// UnmarshalText reads a size.
func (s *PoolSize) UnmarshalText(text []byte) error {
	value := strings.TrimSpace(string(text))
	if percent, ok := strings.CutSuffix(value, "%"); ok {
		n, err := strconv.ParseUint(percent, 10, 8)
		if err != nil || n < 1 || n > 100 {
			return errors.New("a share must be 1% to 100%")
		}
		*s = PoolSize{Percent: int(n)}
		return nil
	}
	if n, err := strconv.ParseUint(value, 10, 16); err == nil {
		if n < 1 || n > cpuset.Max {
			return errors.New("a count of CPUs must be 1 or more; for a list of one CPU write 4-4")
		}
		*s = PoolSize{Count: int(n)}
		return nil
	}
	set, err := cpuset.Parse(value)
	if err != nil || set.IsEmpty() {
		return errors.New(`must be a count of CPUs (4), a share ("25%") or a CPU list ("0-3,8")`)
	}
	*s = PoolSize{Set: set}
	return nil
}

func (s PoolSize) isRest() bool { return s == PoolSize{} }

// Names lists the pools' names.
func (p *Pools) Names() []string {
	names := make([]string, len(p.List))
	for i := range p.List {
		names[i] = p.List[i].Name
	}
	return names
}

// Policy returns the part of the configuration that the placement policy uses.
func (c *Config) Policy() placement.Config {
	out := placement.Config{Reserved: c.Reserved, System: c.System}
	sizes := c.Control.Batch.Mode
	if c.Pools.Mode == Exclusive {
		out.Mode, sizes = placement.Exclusive, c.Control.Pools.Mode
	}
	out.Follow = c.Mode == On && cmp.Or(sizes, c.Control.Mode) == control.On
	for _, p := range c.Pools.List {
		out.Pools = append(out.Pools, placement.Pool{Name: p.Name, Size: placement.Size(p.CPUs)})
	}
	return out
}
