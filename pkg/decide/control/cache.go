package control

import (
	"fmt"
	"time"
)

// CacheShare is the share of its RDT class's configured cache and bandwidth that batch work has
// now, in percent. The zero value leaves the class unchanged.
type CacheShare struct {
	Cache     int // percent of the ways
	Bandwidth int // percent of the memory bandwidth
}

// The marks are percentages of the node's memory bandwidth. The pause between two steps lets
// the means show the effect of the first.
const (
	bandwidthNear = 90
	bandwidthCalm = 80
	batchPart     = 10 // percent of the bandwidth in use, below which batch work is not what fills it
	narrowPause   = 2 * excessTime
)

// Cache narrows batch work's cache while batch work displaces a service's data, and its memory
// bandwidth while the node's bandwidth is nearly used up. It widens both again after a calm. It
// decides only by what resctrl counts, and changes nothing where resctrl counts nothing.
type Cache struct {
	cfg      CacheConfig
	interval time.Duration
	watch    stopwatch
	llc      llc
	ways     narrowed
	flow     narrowed
	blind    string
}

// narrowed is the state of one limit, either of the cache or of the bandwidth.
type narrowed struct {
	percent int
	calm    time.Duration
	waited  time.Duration // since the last step
	patience
}

// contention is what one step concludes from the measurements. noNews leaves the limit
// unchanged.
type contention int

const (
	noNews contention = iota
	isCalm
	isHigh
)

// NewCache returns the controller of batch work's cache. Step must be called once per interval.
func NewCache(cfg CacheConfig, interval time.Duration) *Cache {
	all := narrowed{percent: 100, waited: narrowPause}
	return &Cache{cfg: cfg, interval: interval, llc: llc{interval: interval}, ways: all, flow: all}
}

// Check returns the values that are out of range.
func (c *CacheConfig) Check() []Problem {
	p := checkPercent(nil, "trafficPercent", c.TrafficPercent, 1, 100)
	p = checkPercent(p, "minPercent", c.MinPercent, 1, 100)
	p = checkPercent(p, "stepPercent", c.StepPercent, 1, 100)
	p = checkCount(p, "maxMBps", c.MaxMBps, 0, 1<<30)
	return checkTime(p, "calmAfter", c.CalmAfter, time.Second, 24*time.Hour)
}

// Step returns the share of batch work.
func (a *Cache) Step(v *View) (CacheShare, []Decision) {
	mark := float64(a.cfg.TrafficPercent) / 100
	passed := a.watch.lap(v.Now, a.interval)
	if a.cfg.Class == "" && !counted(v) {
		a.llc = llc{interval: a.interval}
		return CacheShare{}, nil
	}
	reading := a.llc.measure(v, passed, mark)
	if a.cfg.Class == "" {
		return CacheShare{}, nil
	}
	a.blind = reading.blind(a.cfg.MaxMBps > 0)
	taken, flow := noNews, noNews
	switch {
	case reading.rise > mark:
		taken = isHigh
	case !reading.unknown && reading.rise < mark/2:
		taken = isCalm
	}
	if a.cfg.MaxMBps > 0 && reading.measured {
		switch percent := reading.all / float64(a.cfg.MaxMBps) * 100; {
		case percent >= bandwidthNear && reading.batch*100 >= reading.all*batchPart:
			flow = isHigh
		case percent < bandwidthCalm:
			flow = isCalm
		}
	}
	ways, wide := a.ways.next(&a.cfg, taken, passed), a.flow.next(&a.cfg, flow, passed)
	var decisions []Decision
	if ways != a.ways.percent {
		decisions = a.decide(decisions, "cache", a.ways.percent, ways, &reading,
			fmt.Sprintf("%s holds less of the cache than when BE is away, BE holds what it lost, and it fetches %s more from memory for each second that it runs, over %d %%", reading.ref, inPercent(reading.rise), a.cfg.TrafficPercent))
	}
	if wide != a.flow.percent {
		decisions = a.decide(decisions, "bandwidth", a.flow.percent, wide, &reading,
			fmt.Sprintf("containers use %.0f of the %d MB/s that the node's memory can do, BE %.0f of them", reading.all, a.cfg.MaxMBps, reading.batch))
	}
	a.ways.percent, a.flow.percent = ways, wide
	return CacheShare{ways, wide}, decisions
}

// Tell enters which services have lost cache to batch work, by the latest step. It needs no RDT class of batch work.
func (a *Cache) Tell(v *View, disturbed []Disturbance) {
	a.llc.tell(v.Now, float64(a.cfg.TrafficPercent)/100, disturbed)
}

// Blind returns why contention can't be measured; it is empty if it can be.
func (a *Cache) Blind() string { return a.blind }

func (s *llcReading) blind(bandwidth bool) string {
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

func (a *Cache) decide(decisions []Decision, what string, from, to int, reading *llcReading, why string) []Decision {
	action := "narrow "
	if from < to {
		action, why = "widen ", "LS has shown no contention for long enough"
	}
	return append(decisions, Decision{
		Controller: "cache", Object: "class " + a.cfg.Class, Action: action + what,
		From: fmt.Sprintf("%d %% of its share", from), To: fmt.Sprintf("%d %% of its share", to), Why: why, Moves: what,
		Facts: []Fact{{"rise", reading.rise}, {"bandwidth_mbps", reading.all}, {"be_bandwidth_mbps", reading.batch}},
	})
}

// next returns the percentage after this step.
func (n *narrowed) next(cfg *CacheConfig, reading contention, passed time.Duration) int {
	n.waited = min(n.waited+passed, narrowPause)
	switch reading {
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
