package control

import (
	"fmt"
	"time"
)

// Slice is how much of what its RDT class is configured to have batch work has now, in
// percent of it. The zero value leaves the class alone.
type Slice struct {
	Cache     int // of the ways
	Bandwidth int // of the memory bandwidth
}

// Marks of the node's memory bandwidth, in percent of what it can do, and what there
// is to wait for between two steps: the mean that excess is has to follow.
const (
	bandwidthNear = 90
	bandwidthCalm = 80
	narrowPause   = 2 * excessTime
)

// Cache narrows the cache and the memory bandwidth of batch work while LS shows
// contention, and widens them when it was calm.
type Cache struct {
	cfg      CacheConfig
	interval time.Duration
	watch    stopwatch
	ways     narrowed
	flow     narrowed
	counted  bool // bandwidth was, once
}

// narrowed is one of the two.
type narrowed struct {
	percent int
	calm    time.Duration
	waited  time.Duration // since the last step
	patience
}

// contention is what a step sees: no news leaves things as they are.
type contention int

const (
	noNews contention = iota
	isCalm
	isHigh
)

// NewCache is the control of batch work's cache, stepped each interval.
func NewCache(cfg CacheConfig, interval time.Duration) *Cache {
	all := narrowed{percent: 100, waited: narrowPause}
	return &Cache{cfg: cfg, interval: interval, ways: all, flow: all}
}

// Check finds what is out of range.
func (c *CacheConfig) Check() []Problem {
	p := checkPercent(nil, "pressurePercent", c.PressurePercent, 1, 100)
	p = checkPercent(p, "minPercent", c.MinPercent, 1, 100)
	p = checkPercent(p, "stepPercent", c.StepPercent, 1, 100)
	p = checkCount(p, "maxMBps", c.MaxMBps, 0, 1<<30)
	return checkTime(p, "calmAfter", c.CalmAfter, time.Second, 24*time.Hour)
}

// Step answers with batch work's slice, for the pods that Interference found disturbed in
// this view.
func (a *Cache) Step(v *View, disturbed []Disturbance) (Slice, []Decision) {
	if a.cfg.Class == "" {
		return Slice{}, nil
	}
	passed := a.watch.lap(v.Now, a.interval)
	worst, excess := -1, 0.0
	for i := range disturbed {
		if e := max(disturbed[i].Excess.Memory, disturbed[i].Excess.RunDelay); worst < 0 || e > excess {
			worst, excess = i, e
		}
	}
	suffering := noNews
	switch mark := float64(a.cfg.PressurePercent) / 100; {
	case excess > mark:
		suffering = isHigh
	case excess < mark/2:
		suffering = isCalm
	}
	used, measured := bandwidthOf(v, a.interval)
	flow := suffering
	if a.cfg.MaxMBps > 0 {
		a.counted = a.counted || measured
		switch percent := used / float64(a.cfg.MaxMBps) * 100; {
		case measured && percent >= bandwidthNear:
			flow = isHigh
		case flow == isCalm && a.counted && (!measured || percent >= bandwidthCalm):
			flow = noNews
		}
	}
	ways, wide := a.ways.next(&a.cfg, suffering, passed), a.flow.next(&a.cfg, flow, passed)
	if ways == a.ways.percent && wide == a.flow.percent {
		return Slice{ways, wide}, nil
	}
	why := fmt.Sprintf("containers use %.0f of the %d MB/s that the node's memory can do", used, a.cfg.MaxMBps)
	if suffering == isHigh {
		why = fmt.Sprintf("%s waits %s longer for memory or a CPU than when BE is away, over %d %%", disturbed[worst].Ref, inPercent(excess), a.cfg.PressurePercent)
	}
	facts := []Fact{{"excess", excess}, {"bandwidth_mbps", used}}
	decisions := a.decide(nil, "cache", a.ways.percent, ways, why, facts)
	decisions = a.decide(decisions, "bandwidth", a.flow.percent, wide, why, facts)
	a.ways.percent, a.flow.percent = ways, wide
	return Slice{ways, wide}, decisions
}

func (a *Cache) decide(decisions []Decision, what string, from, to int, why string, facts []Fact) []Decision {
	action := "narrow "
	switch {
	case from == to:
		return decisions
	case from < to:
		action, why = "widen ", "LS has shown no contention for long enough"
	}
	return append(decisions, Decision{
		Controller: "cache", Object: "class " + a.cfg.Class, Action: action + what,
		From: fmt.Sprintf("%d %% of its share", from), To: fmt.Sprintf("%d %% of its share", to), Why: why, Facts: facts, Moves: what,
	})
}

// next is the percentage after this step.
func (n *narrowed) next(cfg *CacheConfig, seen contention, passed time.Duration) int {
	n.waited = min(n.waited+passed, narrowPause)
	switch seen {
	case isHigh:
		n.calm = 0
		n.trouble()
		if n.waited >= narrowPause && n.percent > cfg.MinPercent {
			n.waited = 0
			return max(cfg.MinPercent, n.percent-cfg.StepPercent)
		}
	case isCalm:
		n.calm += passed
		switch {
		case n.percent == 100 && n.calm >= cfg.CalmAfter<<mostDoubled:
			n.patience = patience{}
		case n.percent < 100 && n.calm >= cfg.CalmAfter*time.Duration(n.factor()):
			n.calm, n.tried = 0, true
			return min(100, n.percent+cfg.StepPercent)
		}
	}
	return n.percent
}

// bandwidthOf is what all containers use of the memory's bandwidth, in MB/s.
func bandwidthOf(v *View, interval time.Duration) (used float64, measured bool) {
	for i := range v.Containers {
		c := &v.Containers[i]
		if known(v.Now, c.Cache.At, max(interval, c.CPU.Interval)) {
			used += c.Cache.Bandwidth / 1e6
			measured = true
		}
	}
	return used, measured
}
