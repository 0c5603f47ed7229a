package control

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Given is what the other controllers gave to batch work and took from it since the previous
// step.
type Given struct {
	CPU      workload.MilliCPU // CPU that batch work may use now: its budget, or its pool
	Squeezes int               // number of times that its CPU was lowered
	Kills    int               // number of pods evicted
}

// Benefit counts the CPU and memory that batch work used, and the utilization of the node.
type Benefit struct {
	interval time.Duration
	watch    stopwatch
	counts   BenefitCounts

	keptCPU, keptGiB float64 // totals of earlier runs
}

// BenefitCounts are the counters that survive a restart. They marshal to JSON.
type BenefitCounts struct {
	CPUHours float64         `json:"cpuHours"` // CPU-hours that BE pods used since the first step
	GiBHours float64         `json:"gibHours"` // GiB-hours of their working sets
	Hours    [24]BenefitHour `json:"hours"`    // by hour since the epoch, modulo 24
}

// BenefitHour holds the counters of one hour. Each mean comes with the seconds for which it was
// measured.
type BenefitHour struct {
	Hour             int64   `json:"hour"` // since the epoch
	CPUHours         float64 `json:"cpuHours"`
	GiBHours         float64 `json:"gibHours"`
	Utilization      float64 `json:"utilization"` // mean share of the node's CPUs in use, 0 to 1
	Seconds          float64 `json:"seconds"`
	Granted          float64 `json:"granted"` // mean share of the requested CPUs that BE pods could use, 0 to 1
	RequestedSeconds float64 `json:"asked"`   // seconds in which BE pods requested CPU
	Squeezes         int     `json:"squeezes"`
	Kills            int     `json:"kills"`
}

// BenefitReport summarizes what batch work used, in total and in the last 24 hours.
type BenefitReport struct {
	CPUHours             float64 `json:"cpuHours"`             // CPU-hours that batch work used since the counters began; kept over restarts.
	GiBHours             float64 `json:"gibHours"`             // Memory in GiB-hours that batch work used since the counters began; kept over restarts.
	RunCPUHours          float64 `json:"runCPUHours"`          // CPU-hours that batch work used since this process started.
	RunGiBHours          float64 `json:"runGiBHours"`          // Memory in GiB-hours that batch work used since this process started.
	Day                  Day     `json:"day"`                  // Summary of the last 24 hours.
	ByHour               []Hour  `json:"byHour"`               // Last 24 hours one by one, oldest first; hours that were not measured are left out.
	SatisfactionFraction float64 `json:"satisfactionFraction"` // CPU that batch work got over the last 24 hours divided by what it requested, 0 to 1; 1 if it requested none.
}

// Day summarizes the last 24 hours.
type Day struct {
	CPUHours            float64 `json:"cpuHours"`            // CPU-hours that batch work used.
	GiBHours            float64 `json:"gibHours"`            // Memory in GiB-hours that batch work used.
	UtilizationFraction float64 `json:"utilizationFraction"` // Share of the node's CPUs in use over the measured time, 0 to 1.
	KnownHours          float64 `json:"knownHours"`          // Hours in which the node was measured.
	Squeezes            int     `json:"squeezes"`            // Number of loop intervals in which the batch budget was lowered.
	Evicted             int     `json:"evicted"`             // Number of pods evicted.
}

// Hour is the utilization in one hour.
type Hour struct {
	StartsAt            time.Time `json:"startsAt"`            // Beginning of the hour.
	UtilizationFraction float64   `json:"utilizationFraction"` // Share of the node's CPUs in use, 0 to 1.
}

// NewBenefit returns counters that continue from those of an earlier run, or from the zero
// value. Step must be called once per interval.
func NewBenefit(interval time.Duration, kept BenefitCounts) *Benefit {
	return &Benefit{interval: interval, counts: kept, keptCPU: kept.CPUHours, keptGiB: kept.GiBHours}
}

// Counts returns the counters to save for a restart.
func (b *Benefit) Counts() BenefitCounts { return b.counts }

// Step adds the time since the previous step to the counters.
func (b *Benefit) Step(v *View, given Given) {
	passed := b.watch.lap(v.Now, b.interval)
	hour := hourOf(v.Now)
	h := &b.counts.Hours[hourIndex(hour)]
	if h.Hour != hour {
		*h = BenefitHour{Hour: hour}
	}
	h.Squeezes += given.Squeezes
	h.Kills += given.Kills
	if passed == 0 {
		return
	}
	if all := capacityOf(v); all > 0 && known(v.Now, v.Node.CPU.At, b.interval) {
		enterMean(&h.Utilization, &h.Seconds, float64(v.Node.CPU.Usage)/float64(all), passed.Seconds())
	}
	var requested workload.MilliCPU
	for i := range v.Containers {
		c := &v.Containers[i]
		if c.Class != workload.BE {
			continue
		}
		requested += c.Request
		if uses(v, c, b.interval) {
			used := float64(c.CPU.Usage) / 1000 * passed.Hours()
			h.CPUHours += used
			b.counts.CPUHours += used
		}
		if m := &c.Container.Memory; knownSlowly(v.Now, m.At, b.interval) {
			used := float64(m.WorkingSet) / (1 << 30) * passed.Hours()
			h.GiBHours += used
			b.counts.GiBHours += used
		}
	}
	if requested > 0 {
		enterMean(&h.Granted, &h.RequestedSeconds, min(1, float64(given.CPU)/float64(requested)), passed.Seconds())
	}
}

func enterMean(mean, seconds *float64, now, passed float64) {
	*seconds += passed
	*mean += (now - *mean) * passed / *seconds
}

// Report summarizes the 24 hours until now. It leaves out the hour that began 24 hours ago,
// whose slot holds the present hour.
func (b *Benefit) Report(now time.Time) BenefitReport {
	r := BenefitReport{CPUHours: b.counts.CPUHours, GiBHours: b.counts.GiBHours, SatisfactionFraction: 1}
	r.RunCPUHours, r.RunGiBHours = b.counts.CPUHours-b.keptCPU, b.counts.GiBHours-b.keptGiB
	var seconds, granted, requested float64
	this := hourOf(now)
	for hour := this - 23; hour <= this; hour++ {
		h := &b.counts.Hours[hourIndex(hour)]
		if h.Hour != hour {
			continue
		}
		r.Day.CPUHours += h.CPUHours
		r.Day.GiBHours += h.GiBHours
		r.Day.Squeezes += h.Squeezes
		r.Day.Evicted += h.Kills
		r.Day.UtilizationFraction += h.Utilization * h.Seconds
		seconds += h.Seconds
		granted += h.Granted * h.RequestedSeconds
		requested += h.RequestedSeconds
		if h.Seconds > 0 {
			r.ByHour = append(r.ByHour, Hour{time.Unix(hour*3600, 0).UTC(), h.Utilization})
		}
	}
	if seconds > 0 {
		r.Day.UtilizationFraction /= seconds
	}
	r.Day.KnownHours = seconds / 3600
	if requested > 0 {
		r.SatisfactionFraction = granted / requested
	}
	return r
}
