package control

import (
	"cmp"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// NoticeKind is what batch work has to expect.
type NoticeKind string

// The kinds.
const (
	NoticeSqueeze NoticeKind = "squeeze" // less CPU, perhaps its floor alone
	NoticeEvict   NoticeKind = "evict"   // pods are evicted
)

// NoticeCause is why batch work has to expect it.
type NoticeCause string

// The causes.
const (
	NoticeByForecast NoticeCause = "forecast"
	NoticeByWindow   NoticeCause = "window"
	NoticeBySwitch   NoticeCause = "switch"
)

// Notice is what batch work learns beforehand of a squeeze or an eviction. The zero value is no notice.
type Notice struct {
	Kind     NoticeKind  `json:"kind"`            // What batch work has to expect: "squeeze", which is less CPU, perhaps its floor alone, or "evict".
	Cause    NoticeCause `json:"cause"`           // Why: "forecast", "window" or "switch".
	BeginsAt time.Time   `json:"beginsAt"`        // Time of its beginning, which may have passed.
	EndsAt   time.Time   `json:"endsAt,omitzero"` // Time until which the notice holds unless it is renewed or withdrawn before.
	Why      string      `json:"why"`             // Reason in one sentence.
}

// NoticeCounts count notices by forecasts since the process started.
type NoticeCounts struct {
	Given int `json:"given"` // Number of notices that were given.
	Kept  int `json:"kept"`  // Number of notices whose squeeze came while they held.
	False int `json:"false"` // Number of notices that were withdrawn although no squeeze had come.
}

const (
	noticeAfter   = 30 * time.Second // a forecast must say so for so long before a notice is given
	withdrawAfter = 5 * time.Minute  // a squeeze must be neither here nor expected for so long before a notice is withdrawn
	// calmPart is the part of the node's CPUs, and of its memory, that must be left beside what
	// batch work always has before a squeeze counts as over.
	calmPart = 20
)

// Notices warns batch work before it loses more than it can spare:
//
//   - by a forecast: all others are expected to need so much within NoticeConfig.Within that batch
//     work will have no more than its floor, or that less memory is left than batch work holds
//   - by a window, or by the switch
//
// A notice by a forecast also closes the node for new batch work. It neither squeezes nor evicts:
// what is expected may not come.
type Notices struct {
	within       time.Duration
	batch        BatchConfig
	evictPercent int // of the memory in use, above which batch work is evicted
	law          []PoolConfig
	exclusive    bool
	interval     time.Duration
	watch        stopwatch

	present  demandMean // what the present demand leaves; see outlook
	forecast forecastNotice
	active   Notice
	counts   NoticeCounts

	pools     []workload.MilliCPU // reused at each step
	decisions []Decision
}

// forecastNotice is a notice by a forecast, or the time before it.
type forecastNotice struct {
	Notice
	short   time.Duration // for which the forecast has said so
	calm    time.Duration // for which a squeeze was neither here nor expected
	came    bool          // the squeeze was here
	outlook outlook       // by the forecast, at the last step
}

// NewNotices returns the controller for pools that are exclusive or not.
func NewNotices(cfg *Config, law []PoolConfig, exclusive bool) *Notices {
	return &Notices{
		within: cfg.Notices.Within, batch: cfg.Batch, evictPercent: cfg.Memory.EvictPercent,
		law: law, exclusive: exclusive, interval: cfg.Interval,
	}
}

// Check returns the values that are out of range.
func (c *NoticesConfig) Check() []Problem {
	var l limits
	if c.Within != 0 {
		l.time("within", c.Within, time.Minute, time.Hour)
	}
	return l
}

// Within returns how long beforehand notices are given; 0 for never.
func (n *Notices) Within() time.Duration { return n.within }

// WhyClosed returns the forecast that closes the node for new batch work; "" if none does.
func (n *Notices) WhyClosed() string { return n.forecast.Why }

// Counts returns what became of the notices by forecasts.
func (n *Notices) Counts() NoticeCounts { return n.counts }

// NoticeInputs are what notices depend on besides the view.
type NoticeInputs struct {
	Planned  Notice     // by a window or the switch; see Windows.Coming
	Forecast Forecaster // nil if nothing counts with forecasts
	Demand   Amount     // present demand of all but batch work
	Measured bool       // whether it is known
	Evicts   bool       // whether batch work is evicted where memory is short
}

// Forecaster knows which peaks to expect, as Prediction does. A peak that is not trusted is 0.
type Forecaster interface {
	peak(now time.Time, key predict.Key, horizon time.Duration) float64
	demand(now time.Time, horizon time.Duration) Amount
}

// Step returns the notice that holds now. If the node is to be closed for new batch work, WhyClosed
// says why.
func (n *Notices) Step(v *View, in NoticeInputs) (active Notice, decisions []Decision) {
	passed := n.watch.lap(v.Now, n.interval)
	n.decisions = n.decisions[:0]
	if n.within == 0 {
		return Notice{}, nil
	}
	if in.Measured {
		n.followForecast(v, &in, passed)
	}
	active = n.plan(v.Now, in.Planned)
	if active.Kind == "" || active.Kind != NoticeEvict && n.forecast.Kind == NoticeEvict {
		active = n.forecast.Notice
	}
	n.report(&active)
	n.active = active
	if len(n.decisions) == 0 {
		return active, nil
	}
	return active, n.decisions
}

// plan returns the notice of what is planned. What goes on keeps its beginning, and without an end
// it holds for some time and is renewed.
func (n *Notices) plan(now time.Time, planned Notice) Notice {
	if planned.Kind == "" {
		return Notice{}
	}
	goesOn := planned.Kind == n.active.Kind && planned.Cause == n.active.Cause
	if goesOn && planned.Cause == NoticeBySwitch && n.active.BeginsAt.Before(now) {
		planned.BeginsAt = n.active.BeginsAt
	}
	if planned.EndsAt.IsZero() {
		if goesOn {
			planned.EndsAt = n.active.EndsAt
		}
		n.renew(now, &planned)
	}
	return planned
}

// renew moves the end of a notice that is about to end, or that a jump of the clock has moved away.
func (n *Notices) renew(now time.Time, active *Notice) {
	if active.BeginsAt.Sub(now) > n.within {
		active.BeginsAt = now.Add(n.within)
	}
	if left := active.EndsAt.Sub(now); left < n.within/2 || left > 2*n.within {
		if active.EndsAt = now.Add(n.within); active.BeginsAt.After(now) {
			active.EndsAt = active.BeginsAt.Add(n.within)
		}
	}
}

// followForecast gives and withdraws the notice by a forecast.
func (n *Notices) followForecast(v *View, in *NoticeInputs, passed time.Duration) {
	n.present.enter(n.outlook(v, n.used(v), in.Demand).left, passed)
	f, now := &n.forecast, n.present.amount()
	f.outlook = n.expect(v, in.Forecast, n.within)
	if f.Kind == "" {
		if f.short += passed; !f.outlook.left.isShort() {
			f.short = 0
		}
		if f.short >= noticeAfter {
			f.Notice, f.calm, f.came = n.give(v, in, &f.outlook), 0, false
			n.counts.Given++
		}
		return
	}
	if now.isShort() && !f.came {
		f.came = true
		n.counts.Kept++
	}
	least := Amount{min(now.CPU, f.outlook.left.CPU), min(now.MemoryBytes, f.outlook.left.MemoryBytes)}
	if f.calm += passed; least.CPU < v.Capacity/calmPart || least.MemoryBytes < v.MemoryTotal/calmPart {
		f.calm = 0
	}
	switch {
	case f.calm < withdrawAfter:
		n.renew(v.Now, &f.Notice)
		return
	case !f.came:
		n.counts.False++
	}
	f.Notice, f.short = Notice{}, 0
}

// give returns the notice by a forecast.
func (n *Notices) give(v *View, in *NoticeInputs, o *outlook) Notice {
	active := Notice{Kind: NoticeSqueeze, Cause: NoticeByForecast, BeginsAt: v.Now, Why: n.why(v, o)}
	if o.left.MemoryBytes < 0 && in.Evicts {
		active.Kind = NoticeEvict
	}
	if now := n.present.amount(); !now.isShort() {
		begins := time.Minute
		for begins < n.within && !n.expect(v, in.Forecast, begins).left.isShort() {
			begins += time.Minute
		}
		active.BeginsAt = v.Now.Add(min(begins, n.within))
	}
	active.EndsAt = active.BeginsAt.Add(n.within)
	return active
}

// report makes the decision of a step that gives another notice than before, or none any more.
func (n *Notices) report(active *Notice) {
	before, o := &n.active, &n.forecast.outlook
	if active.Kind == before.Kind && active.Cause == before.Cause {
		return
	}
	d := Decision{Controller: "notices", Object: "node", Action: "give", From: string(before.Kind), To: string(active.Kind), Cause: string(active.Cause), Why: active.Why}
	if active.Kind == "" {
		d.Action, d.Cause, d.Why = "withdraw", string(before.Cause), "no window and no switch takes anything from batch work any more"
		if before.Cause == NoticeByForecast {
			d.Why = "it did not come: " + o.text()
			if n.forecast.came {
				d.Why = "it came and is over: " + o.text()
			}
		}
	}
	if cmp.Or(active.Cause, before.Cause) == NoticeByForecast {
		now := n.present.amount()
		d.Facts = []Fact{
			cpuFact("needed_cpus", o.needed.CPU), {"needed_memory_bytes", float64(o.needed.MemoryBytes)},
			cpuFact("left_cpus", o.left.CPU), {"left_memory_bytes", float64(o.left.MemoryBytes)},
			cpuFact("left_now_cpus", now.CPU), {"left_now_memory_bytes", float64(now.MemoryBytes)},
		}
	}
	n.decisions = append(n.decisions, d)
}
