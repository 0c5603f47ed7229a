package colocation

import (
	"cmp"
	"reflect"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Controllers are the loop's controllers; see pkg/decide/control. They step in the order of the
// fields.
type Controllers struct {
	Windows      *control.Windows
	Notices      *control.Notices
	Pools        *control.Pools
	Batch        *control.Batch
	Interference *control.Interference
	Cache        *control.Cache
	Burst        *control.Burst
	Demotion     *control.Demotion
	Culprit      *control.Culprit
	Bounds       *control.Bounds
	Egress       *control.Egress
	Memory       *control.Memory
	Rules        *control.Rules
	PreviewRules *control.Rules // the rules whose own mode is preview
	Eviction     *control.Eviction
	Lend         *control.Lend
	Noisy        *control.Noisy
	Separation   *control.Separation
	OverAsk      *control.OverAsk
	Outgrown     *control.Outgrown
	Benefit      *control.Benefit
	Offering     *control.Offering
	Prediction   *control.Prediction
}

// Settings are the parts of the configuration in force that the controllers need.
type Settings struct {
	*control.Config
	Authority

	PoolLaw        []control.PoolConfig
	ExclusivePools bool
	Zone           *time.Location // time zone of the time windows
}

// Learned is what the controllers have learned and save for a restart.
type Learned struct {
	Benefit control.BenefitCounts
	Peaks   control.Peaks
	Usage   *predict.Set // nil for nothing
}

// Learned returns what the controllers keep over a restart.
func (c *Controllers) Learned() Learned {
	return Learned{c.Benefit.Counts(), c.Offering.Peaks(), c.Prediction.Set()}
}

// NewControllers returns the controllers. The configuration must have been checked.
func NewControllers(s *Settings, kept Learned) (c Controllers, err error) {
	cfg := s.Config
	names := make([]string, len(s.PoolLaw))
	for i := range s.PoolLaw {
		names[i] = s.PoolLaw[i].Name
	}
	if c.Windows, err = control.NewWindows(cfg.Windows, names, s.Zone, cfg.Interval); err != nil {
		return c, err
	}
	if c.Rules, err = control.NewRules(cfg.Rules, control.On, cfg.Mode, s.PoolLaw, cfg.Interval); err != nil {
		return c, err
	}
	if c.PreviewRules, err = control.NewRules(cfg.Rules, control.Preview, cfg.Mode, s.PoolLaw, cfg.Interval); err != nil {
		return c, err
	}
	c.Notices = control.NewNotices(cfg, s.PoolLaw, s.ExclusivePools)
	c.Pools = control.NewPools(cfg.Pools, s.PoolLaw, cfg.Interval)
	c.Batch = control.NewBatch(cfg.Batch, cfg.Interval)
	c.Lend = control.NewLend(cfg.FastInterval)
	c.Interference = control.NewInterference(cfg.Interval)
	c.Cache = control.NewCache(cfg.Cache, cfg.Interval)
	c.Burst = control.NewBurst(cfg.Burst, cfg.Interval)
	c.Demotion = control.NewDemotion(cfg.Demotion, cfg.Interval)
	c.Culprit = control.NewCulprit(cfg.Batch, cfg.Interval)
	c.Bounds = control.NewBounds(cfg.Interval)
	c.Egress = control.NewEgress(cfg.Egress)
	c.Memory = control.NewMemory(cfg.Memory, s.PoolLaw, cfg.Interval)
	c.Eviction = control.NewEviction(cfg.Eviction, cmp.Or(cfg.Eviction.Mode, cfg.Mode), cfg.Interval)
	c.Noisy = control.NewNoisy(cfg.Interval)
	c.Separation = control.NewSeparation(cfg.Interval)
	c.OverAsk = control.NewOverAsk(cfg.Interval)
	c.Outgrown = control.NewOutgrown(cfg.Interval)
	c.Benefit = control.NewBenefit(cfg.Interval, kept.Benefit)
	c.Offering = control.NewOffering(cfg.Offer, control.Amount{CPU: workload.MilliCPU(cfg.Batch.Reserved), MemoryBytes: int64(cfg.Memory.Reserve)}, cfg.Interval, kept.Peaks)
	c.Prediction = control.NewPrediction(cfg.Prediction, cfg.Interval, kept.Usage)
	return c, nil
}

// Renew returns the controllers for another configuration. A controller keeps its state if its
// part of the configuration and its mode in force are the same; the others start again. sameRDT
// says that the configuration of RDT is the same.
func (c *Controllers) Renew(was, now *Settings, sameRDT bool) (Controllers, error) {
	next, err := NewControllers(now, c.Learned())
	if err != nil {
		return next, err
	}
	law := reflect.DeepEqual(was.PoolLaw, now.PoolLaw) && was.ExclusivePools == now.ExclusivePools
	same := func(own, other control.Mode, x, y any) bool {
		return was.Of(own) == now.Of(other) && reflect.DeepEqual(x, y)
	}
	next.Interference, next.Noisy, next.OverAsk, next.Outgrown, next.Benefit = c.Interference, c.Noisy, c.OverAsk, c.Outgrown, c.Benefit
	if law && reflect.DeepEqual(was.Windows, now.Windows) {
		next.Windows = c.Windows
	}
	if same("", "", was.Offer, now.Offer) && was.Batch.Reserved == now.Batch.Reserved && was.Memory.Reserve == now.Memory.Reserve {
		next.Offering = c.Offering
	}
	if was.Prediction == now.Prediction {
		next.Prediction = c.Prediction
	}
	if same(was.Cache.Mode, now.Cache.Mode, was.Cache, now.Cache) && sameRDT {
		next.Cache = c.Cache
	}
	if same(was.Burst.Mode, now.Burst.Mode, was.Burst, now.Burst) {
		next.Burst = c.Burst
	}
	if same(was.Culprit.Mode, now.Culprit.Mode, was.Batch.FloorPercent, now.Batch.FloorPercent) {
		next.Culprit = c.Culprit
	}
	if same(was.Noisy.Mode, now.Noisy.Mode, nil, nil) {
		next.Separation = c.Separation
	}
	if same(was.SLO.Mode, now.SLO.Mode, nil, nil) {
		next.Bounds = c.Bounds
	}
	if reflect.DeepEqual(was.Egress, now.Egress) {
		next.Egress = c.Egress
	}
	if same(was.Eviction.Mode, now.Eviction.Mode, was.Eviction, now.Eviction) {
		next.Eviction = c.Eviction
	}
	if !law {
		return next, nil
	}
	if same("", "", was.Notices, now.Notices) && reflect.DeepEqual(was.Batch, now.Batch) && was.Memory.EvictPercent == now.Memory.EvictPercent && was.Interval == now.Interval {
		next.Notices = c.Notices
	}
	if same("", "", was.Rules, now.Rules) {
		next.Rules, next.PreviewRules = c.Rules, c.PreviewRules
	}
	if same(was.Pools.Mode, now.Pools.Mode, was.Pools, now.Pools) {
		next.Pools = c.Pools
	}
	if same(was.Batch.Mode, now.Batch.Mode, was.Batch, now.Batch) {
		next.Batch, next.Lend = c.Batch, c.Lend
	}
	if same(was.Demotion.Mode, now.Demotion.Mode, was.Demotion, now.Demotion) {
		next.Demotion = c.Demotion
	}
	if same(was.Memory.Mode, now.Memory.Mode, was.Memory, now.Memory) {
		next.Memory = c.Memory
	}
	return next, nil
}
