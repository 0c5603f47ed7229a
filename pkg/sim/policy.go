package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// Policy is a way to run the node.
type Policy string

// The policies.
const (
	Unmanaged   Policy = "unmanaged"   // Kubernetes alone: weights and quotas
	Static      Policy = "static"      // pools apart, of fixed sizes
	Suppression Policy = "suppression" // pools overlap, batch has its budget
	Pools       Policy = "pools"       // pools apart, the whole loop
)

// Policies lists them in the order in which they are told.
func Policies() []Policy { return []Policy{Unmanaged, Static, Suppression, Pools} }

// PolicyNames are the words for them.
func PolicyNames() []string {
	var names []string
	for _, p := range Policies() {
		names = append(names, string(p))
	}
	return names
}

// UnmarshalText reads the name of a policy.
func (p *Policy) UnmarshalText(text []byte) error { return choose(p, text, Policies()...) }

// ParsePolicies reads names of policies; none are all policies.
func ParsePolicies(names []string) ([]Policy, error) {
	if len(names) == 0 {
		return Policies(), nil
	}
	policies := make([]Policy, len(names))
	for i, name := range names {
		if err := policies[i].UnmarshalText([]byte(name)); err != nil {
			return nil, fmt.Errorf("policy %.40q: %w", name, err)
		}
	}
	return policies, nil
}

// configure is the scenario's configuration under the policy. tight, of 1 as usual,
// is how full it lets the node be: it multiplies the fill of fixed pools, the batch
// budget's threshold, the online pools' bands.
func (p Policy) configure(s *Scenario, m *topology.Machine, all []*instance, tight float64) *config.Config {
	c := *s.Config
	c.Pools.List = slices.Clone(c.Pools.List)
	c.Mode = config.On
	c.RecordUpdates.Enabled = false
	c.Control.Mode = control.Off
	switch p {
	case Static:
		c.Pools.Mode = config.Exclusive
		sizePools(&c, s, m, all, filled*tight)
	case Suppression:
		c.Pools.Mode = config.Overlap
		c.Control.Batch.Mode = control.On
		if tight != 1 {
			c.Control.Batch.ThresholdPercent = scale(usualThreshold, tight)
		}
	case Pools:
		c.Pools.Mode = config.Exclusive
		c.Control.Mode = control.On
		law := c.PoolLaw()
		for i := range len(law) - 1 {
			if tight != 1 {
				c.Pools.List[i].Band = config.Band{Low: scale(law[i].Low, tight), High: scale(law[i].High, tight)}
			}
		}
	case Unmanaged:
	}
	return &c
}

// usualThreshold is the batch budget's, in percent of the node.
const usualThreshold = 65

// scale multiplies a percentage, within what a configuration may say.
func scale(percent int, by float64) int {
	return min(max(int(math.Round(float64(percent)*by)), 1), 99)
}

// filled is how full a fixed pool is at the peak of its load: the upper edge of the
// online pools' band.
const filled = 0.6

// sizePools gives each pool before the last what the peak of its load takes, known
// beforehand: the best fixed sizes that a person could choose. Without batch work the
// last of them shares the rest. Pools that nobody uses have none.
func sizePools(c *config.Config, s *Scenario, m *topology.Machine, all []*instance, filled float64) {
	core := m.ThreadsPerCore()
	usual := s.Config.Policy()
	c.Pools.List = slices.DeleteFunc(c.Pools.List, func(p config.Pool) bool {
		used := slices.ContainsFunc(all, func(in *instance) bool { return in.pool == p.Name })
		return !used && p.Name != usual.DefaultPool() && p.Name != usual.BatchPool()
	})
	batch := slices.ContainsFunc(all, func(in *instance) bool { return in.class == workload.BE })
	perCPU := filled // work that a CPU does then
	if core > 1 {    // whose sibling is busy a part of its time, see siblings
		perCPU *= 1 - (1-float64(s.Hardware.SMT))*max(0, 2*filled-1)/filled
	}
	sized := len(c.Pools.List) - 1
	if !batch {
		sized--
	}
	left := m.Online.Size() - core*(len(c.Pools.List)-sized)
	for i := range max(0, sized) {
		pool := &c.Pools.List[i]
		n := int(math.Ceil(peak(s, all, pool.Name) / perCPU))
		n = max(core, min((n+core-1)/core*core, left))
		left -= n
		pool.CPUs = config.PoolSize(placement.Size{Count: n})
	}
}

// peak is the most CPUs that a pool's containers want together, noise left out.
func peak(s *Scenario, all []*instance, pool string) float64 {
	var sources []*source
	var of []*instance
	for _, in := range all {
		if in.pool == pool && !in.class.Pinned() {
			quiet := in.Load
			quiet.Noise = 0
			sources, of = append(sources, newSource(quiet, s.Seed, in.name)), append(of, in)
		}
	}
	most := 0.0
	step := max(time.Second, s.Duration/2000)
	for now := time.Duration(0); now < s.Duration; now += step {
		sum := 0.0
		for i, in := range of {
			if now >= in.start && now < in.end {
				sum += in.scale * sources[i].at(now-in.start, s.clock(now)-in.late, step)
			}
		}
		most = max(most, sum)
	}
	return most
}

// clock is the time of day.
func (s *Scenario) clock(now time.Duration) time.Duration {
	start := time.Time(s.Start)
	return time.Duration(start.Hour())*time.Hour + time.Duration(start.Minute())*time.Minute + time.Duration(start.Second())*time.Second + now
}
