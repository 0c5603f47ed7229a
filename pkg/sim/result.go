package sim

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// Result is the outcome of a run. Fractions are between 0 and 1.
type Result struct {
	Policy               Policy               `json:"policy"`
	LoadRatio            float64              `json:"loadRatio"`           // factor of the load of the pods that vary
	TightRatio           float64              `json:"tightRatio"`          // factor of how full the policy lets the node be
	UtilizationFraction  float64              `json:"utilizationFraction"` // CPU time used of the node's
	LateFraction         float64              `json:"lateFraction"`        // fraction of the services' time in which they exceeded their SLO
	ServiceSeconds       float64              `json:"-"`                   // the services' time, to weigh lateFraction
	BatchCPUs            float64              `json:"batchCPUs"`           // mean batch work done, in CPUs at full speed
	BatchServedFraction  float64              `json:"batchServedFraction"` // CPU time that batch got, of what it wanted
	OnlineCPUs           float64              `json:"onlineCPUs"`          // mean online work done, in CPUs at full speed
	CPUMovesPerHour      float64              `json:"cpuMovesPerHour"`     // CPUs that pools and pins gained per hour
	MovesPerHour         float64              `json:"movesPerHour"`        // changes of containers' CPUs per hour
	Evictions            int                  `json:"evictions"`
	OOMKills             int                  `json:"oomKills"`
	Squeezes             int                  `json:"squeezes"`             // times that online work took CPU from batch work; several steps of one movement are one
	ExpectedSqueezes     int                  `json:"expectedSqueezes"`     // those of a load that was forecast
	Notices              control.NoticeCounts `json:"notices"`              // warnings of batch work by forecasts
	Refused              int                  `json:"refused"`              // containers that the plugin refused
	ThrottledFraction    float64              `json:"throttledFraction"`    // fraction of the online containers' time in which a quota throttled them
	DirectStallsFraction float64              `json:"directStallsFraction"` // of the services' time, in direct reclaim or throttled by memory.high

	Services  []ServiceResult `json:"services"`
	Decisions map[string]int  `json:"decisions"` // by controller and action
	Series    Series          `json:"series"`
}

// Kills returns the number of containers that were ended before their time: evicted, or killed for
// lack of memory.
func (r *Result) Kills() int { return r.Evictions + r.OOMKills }

// BatchFraction returns the batch work done as a part of the node, from 0 to 1.
func (r *Result) BatchFraction() float64 {
	return ratio(r.BatchCPUs, float64(r.Series.NodeCPUs))
}

// ServiceResult is the outcome of one service.
type ServiceResult struct {
	Name             string  `json:"name"`
	LateFraction     float64 `json:"lateFraction"`
	UnservedFraction float64 `json:"unservedFraction"` // of its work, given up after waiting long
}

// Series describes the pools over time.
type Series struct {
	NodeCPUs     int           `json:"nodeCPUs"`
	StartsAt     time.Time     `json:"startsAt"`
	Step         time.Duration `json:"stepNanos"` // nanoseconds, between two points
	Pools        []PoolSeries  `json:"pools"`
	LateFraction []float64     `json:"lateFraction"` // share of the services' time over their SLO
	Overlap      bool          `json:"overlap"`      // the pools share CPUs
}

// PoolSeries describes one pool over time.
type PoolSeries struct {
	Name            string    `json:"name"`
	BandLowPercent  int       `json:"bandLowPercent"` // the band, in percent of its CPUs; 0, 0 none
	BandHighPercent int       `json:"bandHighPercent"`
	SizeCPUs        []float64 `json:"sizeCPUs"` // CPUs
	UsedCPUs        []float64 `json:"usedCPUs"`
	WantedCPUs      []float64 `json:"wantedCPUs"`
}

// totals sums the steps of a pod.
type totals struct {
	steps, late, throttled, stalled int
	cpu, demand, work, wanted, lost float64
}

// pointCount is the number of points of a series.
const pointCount = 480

// report collects a run's result.
type report struct {
	trial     trial
	steps     int
	late      int // steps of services above their SLO
	spare     int // maximum of late without exceeding the budget
	busy      float64
	decisions map[string]int
	squeezes  squeezes
	series    Series
	every     time.Duration
	bucket    bucket
	warmup    Moves // what had moved at its end
}

// bucket sums the steps of one point of the series.
type bucket struct {
	steps, services, late int
	usage, wants          []float64 // by pool
}

func (r *report) init(s *simulation, t trial) {
	r.trial, r.decisions = t, map[string]int{}
	r.every = max(s.Duration/pointCount, s.config.Control.FastInterval).Truncate(s.config.Control.FastInterval)
	r.series = Series{NodeCPUs: s.node.machine.Online.Size(), StartsAt: time.Time(s.Start), Step: r.every}
	for _, p := range s.config.PoolLaw() {
		r.series.Pools = append(r.series.Pools, PoolSeries{Name: p.Name, BandLowPercent: p.Low, BandHighPercent: p.High})
	}
	r.series.Pools = append(r.series.Pools, PoolSeries{Name: "pinned"})
	r.bucket = bucket{usage: make([]float64, len(r.series.Pools)), wants: make([]float64, len(r.series.Pools))}
	services := time.Duration(0) // sum of the services' times
	for _, in := range s.kubelet.instances {
		if in.Service.Time > 0 {
			services += max(0, min(in.end, s.Duration)-in.start)
		}
	}
	r.spare = int(t.budget*float64(services/s.node.step)) + len(s.kubelet.instances)
}

// over reports whether the run has already exceeded the budget.
func (r *report) over() bool { return r.late > r.spare }

// pool returns the index of a pod's pool in the series.
func (r *report) pool(in *instance) int {
	if in.class.Pinned() {
		return len(r.series.Pools) - 1
	}
	return max(0, slices.IndexFunc(r.series.Pools, func(p PoolSeries) bool { return p.Name == in.pool }))
}

// note adds a step that began at the time now.
func (r *report) note(s *simulation, now time.Duration) {
	if now < s.Warmup {
		s.node.mu.Lock()
		r.warmup = s.node.moves
		s.node.mu.Unlock()
		return
	}
	dt := s.node.step.Seconds()
	r.steps++
	r.bucket.steps++
	r.squeezes.possible = false
	for _, in := range s.kubelet.instances {
		if now < in.start || now >= in.end {
			continue
		}
		t := &in.total
		t.steps++
		late := in.Service.Time > 0
		if late {
			r.bucket.services++
		}
		if c := in.running; c != nil {
			late = late && c.violates()
			r.busy += c.got * dt
			t.cpu += c.got * dt
			t.demand += c.demand * dt
			t.work += c.done
			t.wanted += c.offered * dt
			t.lost += c.lost
			t.throttled += one(c.throttled)
			t.stalled += one(c.held.stall > 0)
			r.squeezes.possible = r.squeezes.possible || !in.online()
			at := r.pool(in)
			r.bucket.usage[at] += c.got
			r.bucket.wants[at] += c.demand
		}
		t.late += one(late)
		r.late += one(late)
		r.bucket.late += one(late)
	}
	if (now+s.node.step)%r.every < s.node.step {
		r.point(s)
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// point ends a bucket and adds its point to the series.
func (r *report) point(s *simulation) {
	b, v := &r.bucket, &r.series
	v.LateFraction = append(v.LateFraction, ratio(float64(b.late), float64(b.services)))
	sizes := r.sizes(s)
	for i := range v.Pools {
		p := &v.Pools[i]
		p.SizeCPUs = append(p.SizeCPUs, sizes[i])
		p.UsedCPUs = append(p.UsedCPUs, b.usage[i]/float64(b.steps))
		p.WantedCPUs = append(p.WantedCPUs, b.wants[i]/float64(b.steps))
		b.usage[i], b.wants[i] = 0, 0
	}
	b.steps, b.services, b.late = 0, 0, 0
}

// sizes returns the pools' present numbers of CPUs; without an agent the last pool has all of the
// node's.
func (r *report) sizes(s *simulation) []float64 {
	sizes := make([]float64, len(r.series.Pools))
	r.series.Overlap = true
	if s.agent == nil {
		return sizes
	}
	status, err := s.agent.Status()
	if err != nil {
		return sizes
	}
	sum := 0
	for i, p := range status.Pools {
		sizes[i] = float64(p.CPUs.Size())
		sum += p.CPUs.Size()
	}
	for _, c := range status.Containers {
		if c.Class.Pinned() {
			sizes[len(sizes)-1] += float64(c.CPUs.Size())
		}
	}
	r.series.Overlap = sum > s.node.machine.Online.Size()
	return sizes
}

// ratio returns a / b, or 0 if b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (r *report) result(s *simulation) *Result {
	lasts := s.Duration - s.Warmup
	seconds := lasts.Seconds()
	out := &Result{
		Policy: r.trial.policy, LoadRatio: r.trial.vary, TightRatio: r.trial.tight, Decisions: r.decisions, Series: r.series, OOMKills: s.kubelet.kills, Refused: s.kubelet.refused,
		UtilizationFraction: r.busy / seconds / float64(r.series.NodeCPUs),
		CPUMovesPerHour:     float64(s.node.moves.CPUs-r.warmup.CPUs) / lasts.Hours(),
		MovesPerHour:        float64(s.node.moves.Containers-r.warmup.Containers) / lasts.Hours(),
		Evictions:           s.kubelet.evictions,
		Squeezes:            r.squeezes.all, ExpectedSqueezes: r.squeezes.expected,
	}
	if s.agent != nil {
		if status, err := s.agent.Status(); err == nil {
			out.Notices = status.Loop.Notices.Counts
		}
	}
	var services, late, stalled, online, throttled int
	var batch, demand float64
	for _, in := range s.kubelet.instances {
		t := &in.total
		if in.online() {
			online += t.steps
			throttled += t.throttled
			out.OnlineCPUs += t.work / seconds
		} else {
			out.BatchCPUs += t.work / seconds
			batch += t.cpu
			demand += t.demand
		}
		if in.Service.Time > 0 {
			services += t.steps
			late += t.late
			stalled += t.stalled
			out.Services = append(out.Services, ServiceResult{Name: in.name, LateFraction: ratio(float64(t.late), float64(t.steps)), UnservedFraction: ratio(t.lost, t.wanted)})
		}
	}
	out.ServiceSeconds = float64(services) * s.node.step.Seconds()
	out.LateFraction = ratio(float64(late), float64(services))
	out.DirectStallsFraction = ratio(float64(stalled), float64(services))
	out.ThrottledFraction = ratio(float64(throttled), float64(online))
	out.BatchServedFraction = ratio(batch, demand)
	return out
}
