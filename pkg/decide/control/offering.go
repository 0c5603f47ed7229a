package control

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Amount is CPU and memory.
type Amount struct {
	CPU         workload.MilliCPU `json:"milliCPU"`    // CPU in thousandths of a CPU.
	MemoryBytes int64             `json:"memoryBytes"` // Memory in bytes.
}

// Offer is the resources that the node could offer to batch work in total, including
// what batch work uses already.
type Offer struct {
	Known     bool   `json:"known"`     // Whether the offer is known; false if the node was not measured for too long.
	ShortTerm Amount `json:"shortTerm"` // Short-term offer: capacity less margins and what others use now.
	// Long-term offer: capacity less margins and the most that others used in PeakHours
	// hours of the last 24, or less what they requested if less than an hour was measured.
	// Where decisions count with forecasts (control.prediction), what others request above the
	// forecast peak of their next day, at most the short-term offer.
	LongTerm  Amount `json:"longTerm"`
	PeakHours int    `json:"peakHours"`     // Hours of the last 24 that counted as peaks.
	FreeCPUs  []int  `json:"freeCPUs"`      // Largest number of CPUs that one new LSR container would get, by NUMA node.
	Why       string `json:"why,omitempty"` // Why the offer is not known; absent if it is.

	All Amount `json:"-"` // short-term offer to batch work in pods and outside of them
}

// An offer is reported again after five minutes, or when a figure has changed by a tenth and by
// at least the smallest amount that is displayed.
const (
	offerChange = 0.10
	offerCPU    = 100      // thousandths of a CPU
	offerMemory = 64 << 20 // bytes
	offerTime   = 5 * time.Minute

	demandTime  = time.Minute      // time constant of the mean of other users' usage
	demandFirst = 10 * time.Second // measured time before the first offer
	demandGap   = 10 * time.Second // longest time for which a measurement counts after a gap
	youngTime   = time.Minute      // age below which a container may use less than it will
	oneHour     = time.Hour
)

// Offering computes what the node can offer to batch work (Koordinator's batch resources): capacity
// × (1 − margin) − what others use − the larger of the system's usage and its reserve. CPUs on
// which batch work never runs (pins) count as used even while they are idle. Those of an idle
// pin that are lent to batch work count as free in the short-term offer. LSE containers and
// containers without measurements count with their request. A new container counts at least
// with its request, since it uses little before it begins its work. What host applications may use,
// or use already, is not offered to pods.
type Offering struct {
	cfg        OfferConfig
	reserved   Amount
	interval   time.Duration
	watch      stopwatch
	demand     demandMean
	peaks      Peaks
	offer      Offer
	reported   bool
	age        time.Duration // age of the offer
	unmeasured time.Duration // time since the node's usage was last known
}

// demandMean is the mean of other users' demand, including the system's. Until the measurements cover demandTime, each
// counts for its time, so that a short peak at the start, such as that of an installation, does not count for more. From
// then on the mean is exponential.
type demandMean struct {
	cpu, memory float64
	over        time.Duration // measured time in the mean, at most demandTime
}

// NewOffering returns the controller of the offer, which is computed once per interval. The system
// keeps reserved even if it uses less. The peaks are those of an earlier run, or the zero
// value.
func NewOffering(cfg OfferConfig, reserved Amount, interval time.Duration, peaks Peaks) *Offering {
	return &Offering{cfg: cfg, reserved: reserved, interval: interval, peaks: peaks}
}

// Check returns the values that are out of range.
func (c *OfferConfig) Check() []Problem {
	p := checkPercent(nil, "cpuMarginPercent", c.CPUMarginPercent, 0, 100)
	return checkPercent(p, "memoryMarginPercent", c.MemoryMarginPercent, 0, 100)
}

// Peaks returns the peaks to save for a restart.
func (s *Offering) Peaks() Peaks { return s.peaks }

// Step returns the offer. It copies free into it: the most CPUs that one new pin would get, by
// NUMA node.
func (s *Offering) Step(v *View, free []int) (Offer, []Decision) {
	passed := s.watch.lap(v.Now, s.interval)
	s.age += passed
	s.unmeasured += passed
	now, measured := s.Demand(v)
	s.offer.FreeCPUs = free
	if measured {
		s.demand.enter(now, min(s.unmeasured, demandGap))
		s.unmeasured = 0
		if s.demand.over == demandTime {
			s.peaks.enter(v.Now, s.demand.amount(), passed)
		}
	} else if s.reported && s.unmeasured < offerTime {
		return s.offer, nil
	}
	next := s.compute(v, measured)
	if s.reported && next.Known == s.offer.Known && next.Why == s.offer.Why && !offersDiffer(&next, &s.offer) && s.age < offerTime {
		return s.offer, nil
	}
	before, first := s.offer, !s.reported
	next.FreeCPUs = free
	s.offer, s.reported, s.age = next, true, 0
	if !first && next.ShortTerm == before.ShortTerm && next.LongTerm == before.LongTerm && next.Why == before.Why {
		return s.offer, nil
	}
	why := next.Why
	if why == "" {
		why = fmt.Sprintf("of %s CPUs and %s, %d %% and %d %% are kept back, and others and the system use %s CPUs and %s",
			inCPUs(capacityOf(v)), inGiB(float64(v.MemoryTotal)), s.cfg.CPUMarginPercent, s.cfg.MemoryMarginPercent,
			inCPUs(s.demand.amount().CPU), inGiB(s.demand.memory))
		if hosts := next.All.less(next.ShortTerm); hosts != (Amount{}) {
			why += fmt.Sprintf("; host applications have %s CPUs and %s of the short-lived", inCPUs(hosts.CPU), inGiB(float64(hosts.MemoryBytes)))
		}
	}
	d := Decision{
		Controller: "offer", Object: "node", Action: "offer", To: next.text(), Why: why, Moves: "offer",
		Facts: []Fact{
			{"short_cpus", float64(next.ShortTerm.CPU) / 1000}, {"short_memory_bytes", float64(next.ShortTerm.MemoryBytes)},
			{"long_cpus", float64(next.LongTerm.CPU) / 1000}, {"long_memory_bytes", float64(next.LongTerm.MemoryBytes)}, {"peak_hours", float64(next.PeakHours)},
		},
	}
	if !first {
		d.From = before.text()
	}
	return s.offer, []Decision{d}
}

// compute returns the offer from the present measurements.
func (s *Offering) compute(v *View, measured bool) Offer {
	switch {
	case measured && v.Batch.Closed:
		return Offer{Known: true, Why: "the node takes no batch work: " + v.Batch.Why}
	case s.demand.over < demandFirst:
		return Offer{Why: fmt.Sprintf("the node's usage has been known for less than %v: nothing is offered yet", demandFirst)}
	case !measured:
		return Offer{Why: "the node's usage is not known: nothing is offered"}
	}
	o := Offer{Known: true}
	room := Amount{
		CPU:         perCent(capacityOf(v), 100-s.cfg.CPUMarginPercent),
		MemoryBytes: v.MemoryTotal / 100 * int64(100-s.cfg.MemoryMarginPercent),
	}
	now := s.demand.amount().most(v.Forecasts.Soon)
	now.CPU -= v.Lent // only while the pins are idle
	o.ShortTerm = room.less(now)
	peak, hours := s.peaks.most(v.Now)
	if hours == 0 {
		peak = s.requested(v)
	}
	o.LongTerm, o.PeakHours = room.less(peak.most(s.demand.amount())), hours
	requested, forecast := s.requested(v), v.Forecasts.Long
	if forecast.CPU > 0 {
		o.LongTerm.CPU = min(predict.Reclaimable(requested.CPU, forecast.CPU), o.ShortTerm.CPU)
	}
	if forecast.MemoryBytes > 0 {
		o.LongTerm.MemoryBytes = min(predict.Reclaimable(requested.MemoryBytes, forecast.MemoryBytes), o.ShortTerm.MemoryBytes)
	}
	o.All = o.ShortTerm
	long := o.LongTerm
	for i := range v.HostApplications {
		a := &v.HostApplications[i]
		use := a.use(v, s.interval)
		o.ShortTerm = o.ShortTerm.less(a.PartOf(o.All).most(use))
		o.LongTerm = o.LongTerm.less(a.PartOf(long).most(use))
	}
	return o
}

// Demand returns the present demand of the system and of all pods but BE, with the CPU that services would
// use without the lower limits that they have for others; ok is false if it is
// not known.
func (s *Offering) Demand(v *View) (now Amount, ok bool) {
	if !known(v.Now, v.Node.CPU.At, s.interval) || !known(v.Now, v.Node.Memory.At, s.interval) || v.MemoryTotal <= 0 {
		return Amount{}, false
	}
	system := Amount{v.Node.CPU.Usage, v.Node.Memory.Total - v.Node.Memory.Available}
	now.CPU = apart(v) + v.Demoted
	for i := range v.HostApplications {
		use := v.HostApplications[i].use(v, s.interval)
		system.CPU, system.MemoryBytes = system.CPU-use.CPU, system.MemoryBytes-use.MemoryBytes
	}
	for i := range v.Containers {
		c := &v.Containers[i]
		m := &c.Container.Memory
		hasCPU, hasMemory := uses(v, c, s.interval), knownSlowly(v.Now, m.At, s.interval)
		if hasCPU {
			system.CPU -= c.CPU.Usage
		}
		if hasMemory { // page cache is part of the available memory
			system.MemoryBytes -= m.Anon
		}
		if c.Class == workload.BE {
			continue
		}
		use := Amount{c.Request, c.Memory}
		if hasCPU && c.Class != workload.LSE {
			use.CPU = c.CPU.Usage
		}
		if hasMemory && s.cfg.MemoryBy != OfferMemoryByRequest && c.Class != workload.LSE {
			use.MemoryBytes = m.WorkingSet
		}
		if v.Now.Sub(c.Created) < youngTime {
			use = use.most(Amount{c.Request, c.Memory})
		}
		if c.Apart {
			use.CPU = 0 // all of its CPUs count as used
		}
		now = now.plus(use)
	}
	return now.plus(system.most(s.reserve(v))), true
}

// requested returns the requests of all pods but BE, with the system's reserve.
func (s *Offering) requested(v *View) Amount {
	all := s.reserve(v).plus(Amount{CPU: apart(v)})
	for i := range v.Containers {
		c := &v.Containers[i]
		switch {
		case c.Class == workload.BE:
		case c.Apart:
			all.MemoryBytes += c.Memory
		default:
			all = all.plus(Amount{c.Request, c.Memory})
		}
	}
	return all
}

// apart returns the CPUs on which batch work never runs, without those that no container gets.
func apart(v *View) workload.MilliCPU { return max(0, v.Allocatable-v.Shared) }

// reserve returns what the system keeps: the configured reserve, and the CPUs that no container
// gets.
func (s *Offering) reserve(v *View) Amount {
	return Amount{max(s.reserved.CPU, capacityOf(v)-v.Allocatable), s.reserved.MemoryBytes}
}

func (d *demandMean) enter(now Amount, passed time.Duration) {
	share := 1.0
	if d.over > 0 {
		d.over = min(d.over+passed, demandTime)
		share = passed.Seconds() / d.over.Seconds()
	} else {
		d.over = passed
	}
	d.cpu += (float64(now.CPU) - d.cpu) * share
	d.memory += (float64(now.MemoryBytes) - d.memory) * share
}

func (d *demandMean) amount() Amount {
	return Amount{workload.MilliCPU(math.Round(d.cpu)), int64(math.Round(d.memory))}
}

func (a Amount) plus(b Amount) Amount { return Amount{a.CPU + b.CPU, a.MemoryBytes + b.MemoryBytes} }

func (a Amount) most(b Amount) Amount {
	return Amount{max(a.CPU, b.CPU), max(a.MemoryBytes, b.MemoryBytes)}
}

// less returns a minus b, but never less than 0.
func (a Amount) less(b Amount) Amount {
	return Amount{max(0, a.CPU-b.CPU), max(0, a.MemoryBytes-b.MemoryBytes)}
}

func (o *Offer) text() string {
	return fmt.Sprintf("%s CPUs and %s short-lived, %s CPUs and %s long-lived",
		inCPUs(o.ShortTerm.CPU), inGiB(float64(o.ShortTerm.MemoryBytes)), inCPUs(o.LongTerm.CPU), inGiB(float64(o.LongTerm.MemoryBytes)))
}

// offersDiffer reports whether a figure has changed by a tenth.
func offersDiffer(a, b *Offer) bool {
	return differs(int64(a.All.CPU), int64(b.All.CPU), offerCPU) || differs(a.All.MemoryBytes, b.All.MemoryBytes, offerMemory) ||
		differs(int64(a.ShortTerm.CPU), int64(b.ShortTerm.CPU), offerCPU) || differs(a.ShortTerm.MemoryBytes, b.ShortTerm.MemoryBytes, offerMemory) ||
		differs(int64(a.LongTerm.CPU), int64(b.LongTerm.CPU), offerCPU) || differs(a.LongTerm.MemoryBytes, b.LongTerm.MemoryBytes, offerMemory)
}

func differs(now, before, least int64) bool {
	return math.Abs(float64(now-before)) >= max(offerChange*float64(before), float64(least))
}
