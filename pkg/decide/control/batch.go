package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	// isolatedThreshold is the threshold in percent where batch work yields at once. CPU
	// priority protects services there, and a quota that keeps CPUs idle would only cost batch
	// work CPU.
	isolatedThreshold = 100
	sharingThreshold  = 65
	leastBudget       = 200             // milli-CPU: 20 ms of quota in 100 ms
	leftOut           = 100             // changes of the budget below 1/leftOut of the node are not made
	settleTime        = 2 * time.Second // CPU must have been free for so long before the budget rises
	systemTime        = time.Second
)

// Batch decides how much CPU batch work may use on CPUs that it shares with the online pools
// (overlap mode):
//
//	budget = room × threshold − usage of everything but batch work
//
// Room is the node without pinned CPUs, and the system counts for at least its reserve. The
// budget falls at once. It rises step by step to the CPU that has been free for settleTime, so
// that online load which comes and goes squeezes batch work only once.
//
// The usage of pods is exact where the cgroup that holds all of them is measured. The system's
// usage is then a mean: the node's own figure comes in ticks of 10 ms on each CPU, so that the
// highest figure of 2 s is often half a CPU too high.
//
// Where batch work yields at once, the budget needs no room for load that is still to come: it
// is based on the most CPU that was free in settleTime. The quota bounds what batch work may
// use over time, and the scheduler decides who runs now.
type Batch struct {
	cfg       BatchConfig
	limited   bool
	now       workload.MilliCPU // budget; meaningful only if limited is set
	used      window            // usage of everything but batch work
	free      window            // CPU that this usage leaves on the node
	system    float64           // usage outside of pods in milli-CPU, a mean over systemTime
	stale     time.Duration     // age from which a measurement is not used
	began     time.Time
	last      time.Time // time of the previous step
	everKnown bool      // whether the node's usage has ever been known
	lost      bool      // whether the node's usage was unknown at the last step
	outage    outage    // loss of the node's usage as it is reported
}

// Budget is the CPU that all batch work together may use.
type Budget struct {
	Hold      bool              // nothing has been measured yet: the current limit stays
	Unlimited bool              // batch work may use all shared CPUs
	Amount    workload.MilliCPU // all CPUs that batch work may run on if Unlimited is set
	CPUs      int               // size of a cpuset for Amount, in whole cores
}

// NewBatch returns the controller of the budget. Its first budget applies at once, however far
// it is above what batch work had. The interval is the longest time between two measurements.
func NewBatch(cfg BatchConfig, interval time.Duration) *Batch {
	return &Batch{cfg: cfg, used: newWindow(settleTime), free: newWindow(settleTime), stale: staleAfter * interval}
}

// Step returns the budget for the view, with the decision if the budget changed.
func (b *Batch) Step(v *View) (Budget, []Decision) {
	since := v.Now.Sub(b.last)
	if b.last.IsZero() {
		b.began = v.Now
	} else if since < 0 || since > b.stale {
		since = b.stale
		b.used.reset()
		b.free.reset()
	}
	b.last = v.Now
	known := recent(v.Now, v.Node.CPU.At, b.stale)
	if b.everKnown = b.everKnown || known; !b.everKnown && v.Now.Sub(b.began) <= b.stale {
		return Budget{Hold: true}, nil
	}
	use := b.measure(v, known, since)
	use.others += v.Demoted
	b.used.add(v.Now, use.others)
	b.free.add(v.Now, v.Capacity-use.others)

	had, wasLimited := b.now, b.limited
	mayGrow := known && b.used.full(v.Now)
	others, peak := use.others, b.used.max()
	if known && b.cfg.yields(v) {
		others = v.Capacity - b.free.max()
		peak = others
	}
	b.set(v, b.wants(v, others), b.wants(v, peak), mayGrow)
	b.lost = !known
	if changed := b.outage.observe(v.Now, b.lost); b.now == had && b.limited == wasLimited && !changed {
		return b.budget(v), nil
	}
	return b.budget(v), b.decision(v, &use, had, wasLimited)
}

// batchUse is the node's CPU usage, divided by user.
type batchUse struct {
	node, batch, pinned workload.MilliCPU // batch without host applications
	hosts               workload.MilliCPU // usage of host applications
	online              workload.MilliCPU // usage of all other containers, or their requests where the usage is unknown
	others              workload.MilliCPU // everything but batch work and pins, with the system and the CPU that demotion keeps from services
}

func (b *Batch) measure(v *View, known bool, since time.Duration) batchUse {
	use := batchUse{node: v.Node.CPU.Usage}
	for i := range v.Containers {
		c := &v.Containers[i]
		switch measured := known && recent(v.Now, c.CPU.At, max(b.stale, staleAfter*c.CPU.Interval)); {
		case c.Class == workload.BE:
			if measured {
				use.batch += c.CPU.Usage
			}
		case c.Class.Pinned() && c.Pool < 0: // the container has CPUs of its own
			if measured {
				use.pinned += c.CPU.Usage
			}
		case measured:
			use.online += c.CPU.Usage
		default:
			use.online += max(c.Request, c.CPU.Usage)
		}
	}
	for i := range v.HostApplications {
		if cpu := v.HostApplications[i].CPU; known && recent(v.Now, cpu.At, b.stale) {
			use.hosts += cpu.Usage
		}
	}
	exact := known && recent(v.Now, v.BatchUse.At, b.stale)
	if exact {
		use.batch = v.BatchUse.Usage
	}
	if exact = exact && recent(v.Now, v.PodsUse.At, b.stale); exact {
		use.online = max(0, v.PodsUse.Usage-use.batch-use.pinned)
	}
	use.others = use.online + workload.MilliCPU(b.cfg.Reserved)
	switch {
	case exact:
		use.others = use.online + max(b.outside(use.node-v.PodsUse.Usage-use.hosts, since), workload.MilliCPU(b.cfg.Reserved))
	case known: // online + max(system, reserved), by the node's own figure, which is the newest
		use.others = max(use.others, use.node-use.batch-use.hosts-use.pinned)
	}
	return use
}

// outside returns the mean usage outside of pods, after adding the newest figure to it.
func (b *Batch) outside(now workload.MilliCPU, since time.Duration) workload.MilliCPU {
	b.system += (float64(now) - b.system) * min(1, float64(since)/float64(systemTime))
	return max(0, workload.MilliCPU(b.system))
}

// wants returns the budget that remains if everything else uses others.
func (b *Batch) wants(v *View, others workload.MilliCPU) workload.MilliCPU {
	budget := perCent(v.room(), b.cfg.threshold(v)) - others
	if v.Batch.Squeeze {
		budget = perCent(budget, v.Batch.Percent)
	}
	return min(max(v.Share.of(budget), b.cfg.Floor(v)), v.usable())
}

// Floor returns the CPU that batch work always has.
func (c *BatchConfig) Floor(v *View) workload.MilliCPU {
	return max(min(perCent(v.Capacity, c.FloorPercent), v.usable()), leastBudget)
}

// leaves returns the CPU that a demand leaves to batch work, which may be less than nothing. The
// demand is that of all others, with the CPUs on which batch work never runs.
func (c *BatchConfig) leaves(v *View, demand workload.MilliCPU) workload.MilliCPU {
	return perCent(v.room(), c.threshold(v)) - max(0, demand-apart(v))
}

// usable returns the CPUs that batch work may run on: the shared CPUs and the lent ones.
func (v *View) usable() workload.MilliCPU { return v.Shared + v.Lent }

// room returns the node's CPU without the pins that are not lent.
func (v *View) room() workload.MilliCPU { return v.Capacity - (v.Allocatable - v.usable()) }

// yields reports whether batch work yields its CPUs at once and the configuration sets no
// threshold.
func (c *BatchConfig) yields(v *View) bool { return v.Isolated && c.ThresholdPercent == 0 }

func (c *BatchConfig) threshold(v *View) int {
	percent, _ := c.Threshold(v)
	return percent
}

// Threshold returns the percentage of the node that all pods together may use, and why it is
// not isolatedThreshold. The reason is empty if there is none.
func (c *BatchConfig) Threshold(v *View) (percent int, why string) {
	switch {
	case c.ThresholdPercent > 0:
		return c.ThresholdPercent, ""
	case c.yields(v):
		return isolatedThreshold, ""
	case v.Stays == "":
		return sharingThreshold, ""
	}
	return sharingThreshold, fmt.Sprintf("not %d%%, since %s", isolatedThreshold, v.Stays)
}

// set lowers the budget to low or raises it toward high. High must not be above low.
func (b *Batch) set(v *View, low, high workload.MilliCPU, mayGrow bool) {
	small := func(change workload.MilliCPU) bool { return change*leftOut < v.Capacity }
	switch {
	case !b.limited:
		b.now, b.limited = low, low < v.usable()
	case low < b.now && (!small(b.now-low) || v.Batch.Squeeze || v.Share.limits() || b.now > v.usable()):
		b.now = low
	case mayGrow && high > b.now && (!small(high-b.now) || high == v.usable()):
		b.now = min(high, b.now+perCent(v.Capacity, b.cfg.GrowPercent))
		b.limited = b.now < v.usable()
	}
}

func (b *Batch) budget(v *View) Budget {
	shared := int(v.Shared / 1000)
	if !b.limited {
		return Budget{Unlimited: true, Amount: v.usable(), CPUs: shared}
	}
	n := roundUp(max(ceil(b.now-v.Lent), b.cfg.FloorCPUs), max(v.ThreadsPerCore, 1))
	return Budget{Amount: b.now, CPUs: min(n, shared)}
}

func (b *Batch) decision(v *View, use *batchUse, had workload.MilliCPU, wasLimited bool) []Decision {
	d := Decision{Controller: "batch", Object: "node"}
	d.From, d.To = distinctCPUs(had, b.now)
	if !wasLimited {
		d.From = "unlimited"
	}
	if !b.limited {
		d.To = "unlimited"
	}
	if had = min(had, v.usable()); !wasLimited {
		had = v.usable()
	}
	now := b.now
	if !b.limited {
		now = v.usable()
	}
	switch {
	case now < had:
		d.Action, d.Moves = "squeeze", "budget"
	case now > had || b.limited != wasLimited:
		d.Action, d.Moves = "grow", "budget"
	case b.outage.on:
		d.Action = "stale"
	default:
		d.Action = "fresh"
	}
	d.Why = fmt.Sprintf("online work and the system use %s CPUs of %s, and all together may use %d%%", cpus(use.others), cpus(v.room()), b.cfg.threshold(v))
	switch {
	case v.Batch.Squeeze:
		d.Why = fmt.Sprintf("%s; batch has %d%% of what it would have, or its floor", v.Batch.Why, v.Batch.Percent)
	case b.lost:
		d.Why = fmt.Sprintf("the node's usage is not known: online work counts with its requests, %s CPUs of %s", cpus(use.others), cpus(v.room()))
	case v.Share.limits():
		d.Why = fmt.Sprintf("%s: batch has %d%% of what it would have, or its floor", v.Share.Why, v.Share.Percent)
	case b.now == b.cfg.Floor(v):
		d.Why += "; this is its floor"
	}
	if _, why := b.cfg.Threshold(v); why != "" && !v.Batch.Squeeze && !b.lost {
		d.Why += "; " + why
	}
	d.Facts = []Fact{
		cpuFact("capacity_cpus", v.Capacity), cpuFact("room_cpus", v.room()), {"threshold_percent", float64(b.cfg.threshold(v))},
		cpuFact("others_cpus", use.others), cpuFact("online_cpus", use.online), cpuFact("pinned_cpus", use.pinned), cpuFact("batch_cpus", use.batch+use.hosts),
		cpuFact("node_cpus", use.node), cpuFact("floor_cpus", b.cfg.Floor(v)),
	}
	return []Decision{d}
}
