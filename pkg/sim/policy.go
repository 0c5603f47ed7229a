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

// Policy is a way to manage the node.
type Policy string

// These are the policies.
const (
	Unmanaged   Policy = "unmanaged"   // Kubernetes alone, with weights and quotas
	Static      Policy = "static"      // exclusive pools of fixed sizes
	Suppression Policy = "suppression" // pools overlap, batch has its budget
	Koordinator Policy = "koordinator" // pools overlap, batch has the CPUs that Koordinator's formula leaves it
	LAR         Policy = "lar"         // exclusive pools by the rules of Meituan's Load Auto-Regulator
	Pools       Policy = "pools"       // exclusive pools with the whole loop
	Forecast    Policy = "forecast"    // Pools that also count with forecasts, learned in the weeks before, see history
)

// Policies lists them in the order of the output.
func Policies() []Policy {
	return []Policy{Unmanaged, Static, Suppression, Koordinator, LAR, Pools, Forecast}
}

// PolicyNames lists their names.
func PolicyNames() []string {
	var names []string
	for _, p := range Policies() {
		names = append(names, string(p))
	}
	return names
}

// UnmarshalText parses the name of a policy.
func (p *Policy) UnmarshalText(text []byte) error { return choose(p, text, Policies()...) }

// ParsePolicies parses names of policies; no names stand for all policies.
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

// configure returns the scenario's configuration under the policy. tight says how full the node
// may be; 1 is the usual setting. It multiplies the fill of fixed pools, the batch budget's
// threshold (Koordinator's own, too), and the online pools' bands.
func (p Policy) configure(s *Scenario, m *topology.Machine, all []*instance, tight float64) (*config.Config, error) {
	c := *s.Config
	c.Pools.List = slices.Clone(c.Pools.List)
	c.Mode = config.On
	c.RecordUpdates.Enabled = false
	c.Control.Mode, c.Control.Prediction.Mode = control.Off, control.Off
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
	case Koordinator:
		c.Pools.Mode = config.Overlap
	case LAR:
		c.Pools.Mode = config.Exclusive
		dropUnused(&c, s, all)
		sizeByRequest(&c, m, all)
		tighten(&c, tight)
	case Pools, Forecast:
		if p == Forecast {
			c.Control.Prediction.Mode = control.On
		}
		c.Pools.Mode = config.Auto
		c.Control.Mode = control.On
		if tighten(&c, tight); tight != 1 {
			c.Control.Batch.ThresholdPercent = scale(usualThreshold, tight) // counts where the machine is too small for pools
		}
		if _, err := c.Fit(m); err != nil {
			return nil, err
		}
	case Unmanaged:
	}
	return &c, nil
}

// tighten multiplies the bands of all pools but the last.
func tighten(c *config.Config, tight float64) {
	law := c.PoolLaw()
	for i := range len(law) - 1 {
		if tight != 1 {
			c.Pools.List[i].Band = config.Band{Low: scale(law[i].Low, tight), High: scale(law[i].High, tight)}
		}
	}
}

// usualThreshold is the batch budget's usual threshold, in percent of the node.
const usualThreshold = 65

// scale multiplies a percentage, within the range that a configuration allows.
func scale(percent int, by float64) int {
	return min(max(int(math.Round(float64(percent)*by)), 1), 99)
}

// filled is how full a fixed pool is at the peak of its load: the upper edge of the online pools'
// band.
const filled = 0.6

// sizePools gives each pool except the last the CPUs that the peak of its load takes, which it
// knows beforehand: these are the best fixed sizes that a person could choose. Without batch work,
// the last of these pools shares the remaining CPUs. Unused pools get none.
func sizePools(c *config.Config, s *Scenario, m *topology.Machine, all []*instance, filled float64) {
	core := m.ThreadsPerCore()
	dropUnused(c, s, all)
	batch := slices.ContainsFunc(all, func(in *instance) bool { return in.class == workload.BE })
	perCPU := filled // work that a CPU does at that fill
	if core > 1 {    // its sibling is busy part of the time, see siblings
		perCPU *= 1 - (1-float64(s.Hardware.SMT))*max(0, 2*filled-1)/filled
	}
	sized := len(c.Pools.List) - 1
	if !batch {
		sized--
	}
	left := m.Online.Size() - core*(len(c.Pools.List)-sized)
	for i := range max(0, sized) {
		pool := &c.Pools.List[i]
		n := max(core, min(roundUp(peak(s, all, pool.Name)/perCPU, core), left))
		left -= n
		pool.CPUs = config.PoolSize(placement.Size{Count: n})
	}
}

// dropUnused removes pools that no container uses and that need not be there.
func dropUnused(c *config.Config, s *Scenario, all []*instance) {
	usual := s.Config.Policy()
	c.Pools.List = slices.DeleteFunc(c.Pools.List, func(p config.Pool) bool {
		used := slices.ContainsFunc(all, func(in *instance) bool { return in.pool == p.Name })
		return !used && p.Name != usual.DefaultPool() && p.Name != usual.BatchPool()
	})
}

// sizeByRequest gives each pool except the last what its first containers request, in whole cores,
// and leaves a core to each pool below it.
func sizeByRequest(c *config.Config, m *topology.Machine, all []*instance) {
	core, left := m.ThreadsPerCore(), unpinned(m, all)
	for i := range len(c.Pools.List) - 1 {
		pool, sum := &c.Pools.List[i], 0.0
		for _, in := range all {
			if in.pool == pool.Name && !in.class.Pinned() && in.start == 0 {
				sum += float64(in.Requests.CPU)
			}
		}
		below := core * (len(c.Pools.List) - 1 - i)
		n := max(core, min(roundUp(sum, core), (left-below)/core*core))
		left -= n
		pool.CPUs = config.PoolSize(placement.Size{Count: n})
	}
}

// unpinned returns the CPUs that are left if all pins run.
func unpinned(m *topology.Machine, all []*instance) int {
	n := m.Online.Size()
	for _, in := range all {
		if in.class.Pinned() {
			n -= roundUp(float64(in.Requests.CPU), m.ThreadsPerCore())
		}
	}
	return n
}

// peak returns the most CPUs that a pool's containers want together, without noise.
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

// clock returns the time since the midnight before the Monday of the week in which the scenario
// starts.
func (s *Scenario) clock(now time.Duration) time.Duration {
	start := time.Time(s.Start)
	days := (int(start.Weekday()) + 6) % 7
	return time.Duration(days)*day + time.Duration(start.Hour())*time.Hour + time.Duration(start.Minute())*time.Minute + time.Duration(start.Second())*time.Second + now
}
