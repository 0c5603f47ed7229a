package control

import (
	"fmt"
	"time"
)

// CacheShare is how much of what its RDT class is configured to have batch work has now, in
// percent of it. The zero value leaves the class alone.
type CacheShare struct {
	Cache     int // of the ways
	Bandwidth int // of the memory bandwidth
}

// Marks of the node's memory bandwidth, in percent of what it can do, and the pause between
// two steps, in which the means come to show what the step before did.
const (
	bandwidthNear = 90
	bandwidthCalm = 80
	batchPart     = 10 // of the bandwidth in use, below which batch work isn't what fills it
	narrowPause   = 2 * excessTime
)

// Cache narrows the cache of batch work while it has taken a service's, and its memory
// bandwidth while the node's nears its end, and widens them after a calm. It decides by
// what resctrl counts alone: where that counts nothing, it leaves things as they are.
type Cache struct {
	cfg      CacheConfig
	interval time.Duration
	watch    stopwatch
	llc      llc
	ways     narrowed
	flow     narrowed
	blind    string
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
	return &Cache{cfg: cfg, interval: interval, llc: llc{interval: interval}, ways: all, flow: all}
}

// Check finds what is out of range.
func (c *CacheConfig) Check() []Problem {
	p := checkPercent(nil, "trafficPercent", c.TrafficPercent, 1, 100)
	p = checkPercent(p, "minPercent", c.MinPercent, 1, 100)
	p = checkPercent(p, "stepPercent", c.StepPercent, 1, 100)
	p = checkCount(p, "maxMBps", c.MaxMBps, 0, 1<<30)
	return checkTime(p, "calmAfter", c.CalmAfter, time.Second, 24*time.Hour)
}

// Step answers with batch work's slice.
func (a *Cache) Step(v *View) (CacheShare, []Decision) {
	if a.cfg.Class == "" {
		return CacheShare{}, nil
	}
	mark := float64(a.cfg.TrafficPercent) / 100
	passed := a.watch.lap(v.Now, a.interval)
	seen := a.llc.look(v, passed, mark)
	a.blind = seen.blind(a.cfg.MaxMBps > 0)
	taken, flow := noNews, noNews
	switch {
	case seen.rise > mark:
		taken = isHigh
	case seen.counted && seen.rise < mark/2:
		taken = isCalm
	}
	if a.cfg.MaxMBps > 0 && seen.measured {
		switch percent := seen.all / float64(a.cfg.MaxMBps) * 100; {
		case percent >= bandwidthNear && seen.batch*100 >= seen.all*batchPart:
			flow = isHigh
		case percent < bandwidthCalm:
			flow = isCalm
		}
	}
	ways, wide := a.ways.next(&a.cfg, taken, passed), a.flow.next(&a.cfg, flow, passed)
	var decisions []Decision
	if ways != a.ways.percent {
		decisions = a.decide(decisions, "cache", a.ways.percent, ways, &seen,
			fmt.Sprintf("%s holds less of the cache than when BE is away, BE holds what it lost, and it fetches %s more from memory for each second that it runs, over %d %%", seen.ref, inPercent(seen.rise), a.cfg.TrafficPercent))
	}
	if wide != a.flow.percent {
		decisions = a.decide(decisions, "bandwidth", a.flow.percent, wide, &seen,
			fmt.Sprintf("containers use %.0f of the %d MB/s that the node's memory can do, BE %.0f of them", seen.all, a.cfg.MaxMBps, seen.batch))
	}
	a.ways.percent, a.flow.percent = ways, wide
	return CacheShare{ways, wide}, decisions
}

// Blind is why it can't tell contention; "" where it can.
func (a *Cache) Blind() string { return a.blind }

func (s *llcSeen) blind(bandwidth bool) string {
	switch {
	case !s.measured:
		return "can't tell contention: no container's cache and memory traffic are counted (rdt.monitor is off, or this machine doesn't count them)"
	case !s.counted:
		return "can't tell contention for the cache: no service runs whose cache is counted"
	case !s.learned && !bandwidth:
		return "can't tell contention for the cache: no service was seen for 30s while BE was away"
	}
	return ""
}

func (a *Cache) decide(decisions []Decision, what string, from, to int, seen *llcSeen, why string) []Decision {
	action := "narrow "
	if from < to {
		action, why = "widen ", "LS has shown no contention for long enough"
	}
	return append(decisions, Decision{
		Controller: "cache", Object: "class " + a.cfg.Class, Action: action + what,
		From: fmt.Sprintf("%d %% of its share", from), To: fmt.Sprintf("%d %% of its share", to), Why: why, Moves: what,
		Facts: []Fact{{"rise", seen.rise}, {"bandwidth_mbps", seen.all}, {"be_bandwidth_mbps", seen.batch}},
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
