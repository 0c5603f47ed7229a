package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// These factors raise and lower a quota, and savePercent decides when a container's token
// bucket fills, as in Koordinator's koordlet/qosmanager/plugins/cpuburst.
const (
	raisePercent = 120
	lowerPercent = 80
	savePercent  = 60 // the bucket fills while usage is below this part of the limit
)

// Burst raises the quotas of throttled LS containers while the CPUs that LS pods share are
// idle, and lowers them again. A static burst (cpu-burst: 100%) is separate: the kernel saves
// unused quota for a moment, and Burst acts only on the throttling that remains.
type Burst struct {
	cfg      BurstConfig
	interval time.Duration

	watch  stopwatch
	share  sharePool
	states perID[burstState]
	quotas []Quota
	advice []Advice
}

type burstState struct {
	quota  workload.MilliCPU // 0 if the container has its limit
	limit  workload.MilliCPU // limit at the previous step; 0 if there was none
	why    string
	statAt time.Time     // time of the previous measurement of throttling
	calm   time.Duration // time without throttling

	// bucket holds seconds × percent of the limit. The flag full is set once it has been filled
	// for the first time.
	bucket float64
	full   bool

	busy busyMean
}

// NewBurst returns the controller of bursts. Step must be called once per interval.
func NewBurst(cfg BurstConfig, interval time.Duration) *Burst {
	return &Burst{cfg: cfg, interval: interval, share: newSharePool(interval)}
}

// Check returns the values that are out of range.
func (c *BurstConfig) Check() []Problem {
	p := checkPercent(nil, "maxPercent", c.MaxPercent, 100, 10000)
	p = checkPercent(p, "overloadPercent", c.OverloadPercent, 1, 100)
	p = checkPercent(p, "coolingPercent", c.CoolingPercent, 1, max(1, c.OverloadPercent))
	return checkTime(p, "calmAfter", c.CalmAfter, time.Second, 24*time.Hour)
}

// Advice lists the containers that burst can't help. The list is valid until the next step.
func (b *Burst) Advice() []Advice { return b.advice }

// Step returns the quotas that are above limits. The list is valid until the next step.
func (b *Burst) Step(v *View) ([]Quota, []Decision) {
	passed := b.watch.lap(v.Now, b.interval)
	load, loadKnown := b.share.step(v, b.interval)
	b.states.begin()
	b.quotas, b.advice = b.quotas[:0], b.advice[:0]
	var decisions []Decision
	for i := range v.Containers {
		c := &v.Containers[i]
		most := b.most(c)
		if most == 0 || v.Pods[c.Pod].Squeezed || v.Pods[c.Pod].Separated { // more would not help below the lower limit of its pod, or on its few CPUs
			continue
		}
		s := b.states.at(c.ID)
		before := max(s.quota, c.Limit)
		want, why := b.next(v, c, s, most, load, loadKnown, passed)
		if want != before {
			action := "raise"
			if want < before {
				action = "lower"
			}
			s.why = why
			from, to := distinctCPUs(before, want)
			decisions = append(decisions, Decision{
				Controller: "burst", Object: c.Ref, Action: action, From: from, To: to, Why: why, Moves: "quota",
				Facts: []Fact{{"limit_cpus", float64(c.Limit) / 1000}, {"share_pool_load", load}, {"throttled_periods", float64(c.CPU.Throttled)}},
			})
		}
		s.quota = 0
		if want > c.Limit {
			s.quota = want
			b.quotas = append(b.quotas, Quota{c.ID, want, s.why})
		}
		if d := b.advise(v, c, s, passed); d != nil {
			decisions = append(decisions, *d)
		}
	}
	b.states.end()
	return b.quotas, decisions
}

// most returns the highest quota that a container may get; 0 if its quota is never raised.
func (b *Burst) most(c *Container) workload.MilliCPU {
	if c.Class != workload.LS || c.Pool < 0 || c.Limit <= 0 || !c.Burst.Auto && !b.cfg.All {
		return 0
	}
	percent := b.cfg.MaxPercent
	if c.Burst.QuotaPercent > 0 {
		percent = c.Burst.QuotaPercent
	}
	return max(c.Limit, perCent(c.Limit, percent))
}

// next returns the quota of a container after this step, and the reason for a change.
func (b *Burst) next(v *View, c *Container, s *burstState, most workload.MilliCPU, load float64, loadKnown bool, passed time.Duration) (workload.MilliCPU, string) {
	resized := s.limit > 0 && s.limit != c.Limit
	if s.limit = c.Limit; resized { // the measurements so far belong to the old limit
		s.calm, s.statAt = 0, c.CPU.StatAt
		return c.Limit, "its limit has changed: it begins there again"
	}
	now := min(max(s.quota, c.Limit), most)
	// Each measurement counts once. A different time makes it a new one, even an earlier time,
	// since the clock may go back.
	throttled := c.CPU.Throttled > 0 && known(v.Now, c.CPU.StatAt, max(b.interval, c.CPU.Interval)) && !c.CPU.StatAt.Equal(s.statAt)
	s.statAt = c.CPU.StatAt
	s.calm += passed
	if throttled {
		s.calm = 0
	}
	credit := s.spend(v, c, most, b.interval, passed)
	lower := max(c.Limit, perCent(now, lowerPercent))
	switch {
	case now < s.quota:
		return now, "its burst has become smaller"
	case loadKnown && load*100 > float64(b.cfg.OverloadPercent):
		if now > c.Limit {
			return lower, fmt.Sprintf("the CPUs that LS shares are %s busy, over %d %%", inPercent(load), b.cfg.OverloadPercent)
		}
	case !credit:
		if now > c.Limit {
			return lower, fmt.Sprintf("it has run above its limit for the %v that it may", c.Burst.QuotaPeriod)
		}
	case throttled:
		if now < most && loadKnown && load*100 <= float64(b.cfg.CoolingPercent) {
			return min(most, max(now+1, perCent(now, raisePercent))),
				fmt.Sprintf("it was throttled in %d of %d periods, and the CPUs that LS shares are only %s busy", c.CPU.Throttled, c.CPU.Periods, inPercent(load))
		}
	case s.calm >= b.cfg.CalmAfter && now > c.Limit:
		return lower, fmt.Sprintf("it was not seen throttled for %v", b.cfg.CalmAfter)
	}
	return now, ""
}

// spend updates the token bucket of a container that may run above its limit for a limited time
// only, and reports whether tokens are left. Usage above the limit takes tokens, and usage
// below 60 % of it adds some. The bucket holds at most the tokens for QuotaPeriod.
func (s *burstState) spend(v *View, c *Container, most workload.MilliCPU, interval, passed time.Duration) bool {
	if c.Burst.QuotaPeriod <= 0 {
		return true
	}
	limit := float64(c.Limit)
	size := c.Burst.QuotaPeriod.Seconds() * (float64(most)/limit - 1) * 100
	if !s.full {
		s.bucket, s.full = size, true
	}
	if uses(v, c, interval) {
		if used := float64(c.CPU.Usage) / limit * 100; used >= 100 || used < savePercent {
			s.bucket += passed.Seconds() * (100 - used)
		}
	}
	s.bucket = min(max(s.bucket, 0), size)
	return s.bucket > 0
}
