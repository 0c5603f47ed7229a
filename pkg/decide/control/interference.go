package control

import (
	"cmp"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Strain is how much a pod waits. Each figure is that of its worst container.
type Strain struct {
	CPUFraction       float64 `json:"cpuFraction"`       // Share of time in which some task waited for a CPU (PSI), 0 to 1.
	MemoryFraction    float64 `json:"memoryFraction"`    // Share of time in which some task waited for memory (PSI), 0 to 1.
	IOFraction        float64 `json:"ioFraction"`        // Share of time in which some task waited for I/O (PSI), 0 to 1.
	RunDelayFraction  float64 `json:"runDelayFraction"`  // Share of the time in which its threads ran or could have run that they waited for a CPU, 0 to 1.
	ThrottledFraction float64 `json:"throttledFraction"` // Share of quota periods that were throttled, 0 to 1.
}

const strains = 5

// The signals of Disturbance.Latest are the parts of Strain, and two that show contention for caches and the bandwidth
// of memory.
const (
	slowCycles = strains + iota // cycles per instruction, as a multiple of the usual
	lostCache                   // memory traffic per CPU time, as a multiple of what it was with the cache that was lost, minus 1
	signals
)

func (s *Strain) part(i int) *float64 {
	return [strains]*float64{&s.CPUFraction, &s.MemoryFraction, &s.IOFraction, &s.RunDelayFraction, &s.ThrottledFraction}[i]
}

// strainName returns the name of a signal, and the resource that it concerns.
func strainName(i int) (name string, r hintKind) {
	return [signals]string{"CPU pressure", "memory pressure", "I/O pressure", "run delay", "share of throttled periods",
			"number of cycles per instruction", "memory traffic per CPU second"}[i],
		[signals]hintKind{ofCPU, ofMemory, ofIO, ofCPU, ofCPU, ofBandwidth, ofBandwidth}[i]
}

// Disturbance compares the waiting of an LS pod with its waiting without batch work.
type Disturbance struct {
	Pod       int        `json:"-"` // in View.Pods
	UID       string     `json:"-"`
	Ref       string     `json:"pod"`                 // LS pod as "namespace/name".
	Calm      Strain     `json:"calm"`                // Baseline: how the pod waits without batch work.
	Excess    Strain     `json:"excess"`              // Waiting beyond the baseline while batch work runs, over some seconds.
	Learned   bool       `json:"learned"`             // Whether the baseline is known.
	Bounds    []Bound    `json:"bounds,omitempty"`    // Bounds of slo.sluice.dev; absent if the pod has none.
	Objective *Objective `json:"objective,omitempty"` // Latency objective of slo.sluice.dev; absent if the pod has none.
	Cycles    *Cycles    `json:"cycles,omitempty"`    // Cycles per instruction; absent if they were not counted in the last minutes.
	Suspects  []Suspect  `json:"suspects,omitempty"`  // Batch pods that used most while the pod waited; a hint, not a proof; absent if it did not wait.

	limited bool             // it has, or has had a moment ago, a lower CPU limit as a culprit or few CPUs as a noisy pod, and waits for that reason
	bears   [signals]float64 // by signal, the excess from which the pod suffers: what its bounds leave of Suffers; 0 for Suffers
	Latest  [signals]Reading `json:"-"` // newest measurements, by signal
}

// throttling is the part of Strain that a pod's own limit causes.
const throttling = strains - 1

// bearsOf returns the excess over the baseline from which the pod suffers.
func (d *Disturbance) bearsOf(part int) float64 { return cmp.Or(d.bears[part], Suffers) }

// tells returns the excess over the baseline from which a signal tells what the pod lacks. A pod
// that breaks its objective lacks something, so that little waiting is enough.
func (d *Disturbance) tells(part int) float64 {
	if d.late() && part < strains {
		return leastBears
	}
	return d.bearsOf(part)
}

// late reports whether others make the pod break its objective.
func (d *Disturbance) late() bool { return d.Objective != nil && d.Objective.broken() }

// throttled reports whether a limit of the pod keeps it from running.
func (d *Disturbance) throttled() bool { return d.limited || d.Latest[throttling].value >= Suffers }

// Reading is the newest measurement of a signal. Its time is zero if there is none.
type Reading struct {
	from, at time.Time // the measurement is a mean over this time
	value    float64
	above    float64 // excess over the baseline
}

// Suffers is the excess above which an LS pod without a bound counts as suffering.
const Suffers = 0.10

// The constants control how the baseline is learned. While BE load is light, the baseline
// follows the 90th percentile of the measurements, by the gradient of the quantile loss
// (Koenker and Bassett, Regression Quantiles, 1978): each second it rises by 0.9 × 1 percentage
// point if the measurement is above it, and falls by 0.1 × 1 point if it is below. A pod that
// was never measured without BE pods has the lowest measurement instead, as TCP BBR takes a
// path's delay from the lowest round-trip time. That value decays upwards, so that an old one
// is forgotten. What Learn was told decays downwards.
const (
	lightPercent   = 2           // CPU of the node in percent, below which BE load is light
	leastShareTime = time.Minute // after which BE load is light with the least share that bounds leave it
	learnTime      = 30 * time.Second
	learnQuantile  = 0.9
	learnPerSecond = 0.01
	decayPerSecond = 0.01 / 600

	excessTime = 10 * time.Second // time constant of the excess's mean
	excessTo   = 0.5              // part of the excess that a pod bears, below which a reported suffering ends

	limitedTime = 2 * observe.SlowInterval // for which the newest measurement may be from before

	leastRunnable = 0.05 // in CPUs: a pod that hardly runs has no meaningful run delay
)

// Interference measures how much longer LS pods wait while BE pods run, and which BE pods use
// most of the resource meanwhile. That is a hint at a cause, not a proof.
type Interference struct {
	interval  time.Duration
	watch     stopwatch
	clock     time.Duration // sum of the time between steps
	pods      perID[suffering]
	cycles    perID[instructions] // by ID of containers
	disturbed []Disturbance
	users     [hintKinds]users
	least     time.Duration // for which bounds have left batch work no more than they can
	lightAt   time.Time     // since when BE load has been light; zero while it is not
}

type suffering struct {
	calm, excess Strain
	latest       [signals]Reading
	learned      [strains]time.Duration
	told         [strains]bool // by Learn
	met          [strains]bool
	reported     [strains]bool
	bounds       [boundsKinds]bounded
	objective    objective
	limitedAt    time.Time // when the pod had a lower CPU limit as a culprit, or few CPUs as a noisy pod, for the last time
}

// NewInterference returns the measurement of interference. Step must be called once per
// interval.
func NewInterference(interval time.Duration) *Interference {
	return &Interference{interval: interval}
}

// Step returns the LS pods with a measurement. The list is valid until the next step.
func (f *Interference) Step(v *View) ([]Disturbance, []Decision) {
	passed := f.watch.lap(v.Now, f.interval)
	f.clock += passed
	used, light, sure := f.load(v, passed)
	f.pods.begin()
	f.cycles.begin()
	f.disturbed = f.disturbed[:0]
	var decisions []Decision
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Class != workload.LS && !p.Class.Pinned() {
			continue
		}
		s := f.pods.at(p.UID)
		f.measure(v, p, s, sure, light, passed)
		one := Disturbance{
			Pod: i, UID: p.UID, Ref: p.Ref, Calm: s.calm, Excess: s.excess, Learned: true,
			Bounds: f.boundsOf(v, p, s), Objective: f.objectiveOf(v, p, s), limited: s.limited(v), Latest: s.latest,
		}
		f.cyclesOf(v, p, sure && !one.limited, &one)
		some := one.Objective != nil || one.Cycles != nil
		for part := range strains {
			some = some || s.met[part]
			if s.met[part] && s.learned[part] < learnTime {
				one.Learned = false
			}
			name, r := strainName(part)
			one.bears[part] = s.bears(&p.SLO, part)
			if excess, ends := *s.excess.part(part), one.bears[part]*excessTo; s.reported[part] && excess < ends {
				s.reported[part] = false
				decisions = append(decisions, f.reportEnd(p, name, *s.calm.part(part), excess, ends))
			} else if !s.reported[part] && excess > one.bears[part] {
				s.reported[part] = true
				decisions = append(decisions, f.reportSuffering(v, p, s, part, used))
			}
			if s.reported[part] && one.Suspects == nil {
				one.Suspects = f.users[r].most()
			}
		}
		if some {
			f.disturbed = append(f.disturbed, one)
		}
	}
	f.pods.end()
	f.cycles.end()
	return f.disturbed, decisions
}

// Unavoidable is how much an LS pod waited while all batch work had no more CPU than its floor.
type Unavoidable struct {
	pod   string // UID
	part  int    // of Strain
	value float64
}

// Learn raises the baseline of a pod to its unavoidable waiting. A lower one was measured while the pod
// had less to do, or was a lowest measurement that came about by chance.
func (f *Interference) Learn(u Unavoidable) {
	if s := f.pods.find(u.pod); s != nil && u.value > *s.calm.part(u.part) {
		*s.calm.part(u.part), s.told[u.part] = u.value, true
	}
}

// load returns the CPU usage of batch work, whether it is too little to disturb anybody, and whether it is known.
func (f *Interference) load(v *View, passed time.Duration) (used workload.MilliCPU, light, sure bool) {
	used, complete, sure := f.batch(v)
	if f.least += passed; v.Share.Percent != boundLeast {
		f.least = 0
	}
	light = complete && used*100 <= v.Allocatable*lightPercent || f.least >= leastShareTime
	switch {
	case !light || !sure:
		f.lightAt = time.Time{}
	case f.lightAt.IsZero() || v.Now.Before(f.lightAt):
		f.lightAt = v.Now
	}
	return used, light, sure
}

// limited reports whether the newest measurements may show how the pod waits as a culprit or a noisy pod.
func (s *suffering) limited(v *View) bool { return recent(v.Now, s.limitedAt, limitedTime) }

// measure takes a pod's new measurements. Nothing is learned from them if it is not sure how much CPU batch
// work uses, or if the pod is limited as a culprit or kept apart as a noisy pod.
func (f *Interference) measure(v *View, p *Pod, s *suffering, sure, light bool, passed time.Duration) {
	if p.Squeezed || p.Separated {
		s.limitedAt = v.Now
	}
	limited := s.limited(v)
	now, at := strainOf(v, p, f.interval)
	for part := range strains {
		if sure && !limited {
			s.enter(part, *now.part(part), !at[part].IsZero(), light, passed)
		}
		if s.read(part, *now.part(part), at[part]) && !limited {
			s.followBound(&p.SLO, part, light && sure)
		}
	}
}

// enter adds a measurement to the baseline, or to the excess above it. It changes nothing if
// there is no measurement.
func (s *suffering) enter(part int, now float64, measured, light bool, passed time.Duration) {
	if !measured {
		return
	}
	calm, excess := s.calm.part(part), s.excess.part(part)
	above := 0.0
	switch step := passed.Seconds() * learnPerSecond; {
	case !s.met[part]:
		*calm, s.met[part] = now, true
	case light:
		s.learned[part] = min(s.learned[part]+passed, learnTime)
		if now > *calm {
			*calm = min(now, *calm+step*learnQuantile)
		} else {
			*calm = max(now, *calm-step*(1-learnQuantile))
		}
	default:
		switch decay := passed.Seconds() * decayPerSecond; {
		case s.learned[part] >= learnTime:
		case s.told[part]:
			*calm = min(*calm, max(now, *calm-decay))
		default:
			*calm = min(now, *calm+decay)
		}
		above = max(0, now-*calm)
	}
	*excess += (above - *excess) * min(1, passed.Seconds()/excessTime.Seconds())
}

// read remembers the latest measurement, and reports whether it is new. A zero time stands for none.
func (s *suffering) read(part int, now float64, at time.Time) bool {
	r := &s.latest[part]
	switch {
	case at.IsZero() || !s.met[part]:
		*r = Reading{}
	case !at.Equal(r.at):
		*r = Reading{from: r.at, at: at, value: now, above: max(0, now-*s.calm.part(part))}
		return true
	}
	return false
}

// strainOf returns how much the pod waits now, and when that was measured, by part. If its
// containers were measured at different times, it is the earliest. The time of a part that is
// not known is zero.
func strainOf(v *View, p *Pod, interval time.Duration) (worst Strain, at [strains]time.Time) {
	for i := range v.Containers[p.First : p.First+p.Count] {
		c := &v.Containers[p.First+i]
		every := max(interval, c.CPU.Interval)
		values, has := [strains]float64{c.Pressure.CPU, c.Pressure.Memory, c.Pressure.IO}, [strains]time.Time{}
		if knownSlowly(v.Now, c.Pressure.At, interval) {
			has[0], has[1], has[2] = c.Pressure.At, c.Pressure.At, c.Pressure.At
		}
		if knownSlowly(v.Now, c.RunDelay.At, interval) && uses(v, c, interval) {
			has[3] = c.RunDelay.At
			if ready := c.RunDelay.Waiting + float64(c.CPU.Usage)/1000; ready >= leastRunnable {
				values[3] = c.RunDelay.Waiting / ready
			}
		}
		if known(v.Now, c.CPU.StatAt, every) {
			has[4] = c.CPU.StatAt
			if c.CPU.Periods > 0 {
				values[4] = float64(c.CPU.Throttled) / float64(c.CPU.Periods)
			}
		}
		for part := range strains {
			if has[part].IsZero() {
				continue
			}
			if at[part].IsZero() || has[part].Before(at[part]) {
				at[part] = has[part]
			}
			*worst.part(part) = max(*worst.part(part), values[part])
		}
	}
	return worst, at
}
