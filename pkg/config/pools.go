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
	Mode PoolMode `yaml:"mode"` // With overlap, the batch pool covers all others; with exclusive, all but one pool need a size, or control.pools must be on; auto is exclusive on machines with two cores for each pool, and overlap on smaller ones.
	List []Pool   `yaml:"list"` // in order of priority, the highest first; the last is the batch pool
}

// PoolMode says whether the batch pool shares CPUs with the others.
type PoolMode string

// These pool modes are supported.
const (
	Overlap   PoolMode = "overlap"
	Exclusive PoolMode = "exclusive"
	Auto      PoolMode = "auto" // exclusive where the machine has enough cores; see Config.Fit
)

// UnmarshalText reads "overlap", "exclusive" or "auto".
func (m *PoolMode) UnmarshalText(text []byte) error { return choose(m, text, Overlap, Exclusive, Auto) }

// Pool is one pool. Without CPUs it is the rest, together with all others
// without.
type Pool struct {
	Name string         `yaml:"name"` // Name of the pool. Pools are listed by descending priority; the last is the batch pool. Default: critical, online and batch.
	CPUs PoolSize       `yaml:"cpus"` // Size in whole cores: a count (4), a share (25%) or a list (8-15). Pools without a size share the rest.
	Set  annotation.Set `yaml:"set"`  // Annotation keys for its containers: cpu-identity, weight, rdt-class, io, egress, oom-score, net-class. Pods that name the pool then need authorization.

	Band   Band          `yaml:"band"`   // Load, in percent of its CPUs, within which the pool keeps its size in mode exclusive. Default: 30-50% for critical, 50-80% for the last pool, 45-60% for others.
	RCF    Band          `yaml:"rcf"`    // RCF (requested-CPU fraction) in mode exclusive: its least and most CPUs, in percent of what its containers request, for example 50-100%. Default: no bounds.
	Min    int           `yaml:"min"`    // Its least CPUs in mode exclusive. Default: 1.
	Memory control.Bytes `yaml:"memory"` // Most memory of its containers together: those that allow it give page cache back from 95 % of it, and are evicted from 98 %; for the last pool, it limits batch work.
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
