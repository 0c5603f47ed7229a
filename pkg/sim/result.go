package sim

import (
	"slices"
	"time"
)

// Result is what a run came to. Shares are of 1.
type Result struct {
	Policy       Policy  `json:"policy"`
	Load         float64 `json:"load"`        // factor of the pods that vary
	Tight        float64 `json:"tight"`       // factor of how full the policy lets the node be
	Utilization  float64 `json:"utilization"` // CPU time used of the node's
	Violations   float64 `json:"violations"`  // of the services' time over their SLO
	BatchCPU     float64 `json:"batchCPU"`    // CPUs of batch work done, on average, as of CPUs that run at full speed
	BatchServed  float64 `json:"batchServed"` // CPU time that batch got, of what it wanted
	OnlineCPU    float64 `json:"onlineCPU"`   // CPUs of online work done, on average
	CPUMoves     float64 `json:"cpuMoves"`    // CPUs that pools and pins gained, an hour
	Moves        float64 `json:"moves"`       // containers given other CPUs, an hour
	Evictions    int     `json:"evictions"`
	OOMKills     int     `json:"oomKills"`     //
	Refused      int     `json:"refused"`      // containers that the plugin refused
	Throttled    float64 `json:"throttled"`    // of the online containers' time, by a quota
	DirectStalls float64 `json:"directStalls"` // of the services' time, in direct reclaim or throttled by memory.high

	Services  []ServiceResult `json:"services"`
	Decisions map[string]int  `json:"decisions"` // by controller and action
	Series    Series          `json:"series"`
}

// ServiceResult is one service.
type ServiceResult struct {
	Name       string  `json:"name"`
	Violations float64 `json:"violations"`
	Unserved   float64 `json:"unserved"` // of its work, given up after waiting long
}

// Series is the pools over time.
type Series struct {
	CPUs    int           `json:"cpus"`
	Start   time.Time     `json:"start"`
	Step    time.Duration `json:"step"` // nanoseconds, between two points
	Pools   []PoolSeries  `json:"pools"`
	Late    []float64     `json:"late"`    // share of the services' time over their SLO
	Overlap bool          `json:"overlap"` // pools share CPUs
}

// PoolSeries is one pool over time.
type PoolSeries struct {
	Name  string    `json:"name"`
	Low   int       `json:"low"` // the band, in percent of its CPUs; 0, 0 none
	High  int       `json:"high"`
	Size  []float64 `json:"size"` // CPUs
	Usage []float64 `json:"usage"`
	Wants []float64 `json:"wants"`
}

// totals is what a pod came to.
type totals struct {
	steps, late, throttled, stalled int
	cpu, asked, work, wanted, lost  float64
}

// pointCount is how many points a series has.
const pointCount = 480

// report gathers a run's result.
type report struct {
	trial     trial
	steps     int
	late      int // steps of services over their SLO
	spare     int // and how many may be
	busy      float64
	decisions map[string]int
	series    Series
	every     time.Duration
	bucket    bucket
}

// bucket is what one point of the series is made of.
type bucket struct {
	steps, services, late int
	usage, wants          []float64 // by pool
}

func (r *report) init(s *simulation, t trial) {
	r.trial, r.decisions = t, map[string]int{}
	r.every = max(s.Duration/pointCount, s.config.Control.FastInterval).Truncate(s.config.Control.FastInterval)
	r.series = Series{CPUs: s.node.machine.Online.Size(), Start: time.Time(s.Start), Step: r.every}
	for _, p := range s.config.PoolLaw() {
		r.series.Pools = append(r.series.Pools, PoolSeries{Name: p.Name, Low: p.Low, High: p.High})
	}
	r.series.Pools = append(r.series.Pools, PoolSeries{Name: "pinned"})
	r.bucket = bucket{usage: make([]float64, len(r.series.Pools)), wants: make([]float64, len(r.series.Pools))}
	services := time.Duration(0) // their time
	for _, in := range s.kubelet.instances {
		if in.Service.Time > 0 {
			services += max(0, min(in.end, s.Duration)-in.start)
		}
	}
	r.spare = int(t.budget*float64(services/s.node.step)) + len(s.kubelet.instances)
}

// over reports whether the budget of lateness is used up, whatever comes.
func (r *report) over() bool { return r.late > r.spare }

// pool is a pod's in the series.
func (r *report) pool(in *instance) int {
	if in.class.Pinned() {
		return len(r.series.Pools) - 1
	}
	return max(0, slices.IndexFunc(r.series.Pools, func(p PoolSeries) bool { return p.Name == in.pool }))
}

// note adds up a step that began at a time.
func (r *report) note(s *simulation, now time.Duration) {
	dt := s.node.step.Seconds()
	r.steps++
	r.bucket.steps++
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
			t.asked += c.asked * dt
			t.work += c.done
			t.wanted += c.offered * dt
			t.lost += c.lost
			t.throttled += one(c.throttled)
			t.stalled += one(c.held.stall > 0)
			at := r.pool(in)
			r.bucket.usage[at] += c.got
			r.bucket.wants[at] += c.asked
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

// point ends a bucket.
func (r *report) point(s *simulation) {
	b, v := &r.bucket, &r.series
	v.Late = append(v.Late, ratio(float64(b.late), float64(b.services)))
	sizes := r.sizes(s)
	for i := range v.Pools {
		p := &v.Pools[i]
		p.Size = append(p.Size, sizes[i])
		p.Usage = append(p.Usage, b.usage[i]/float64(b.steps))
		p.Wants = append(p.Wants, b.wants[i]/float64(b.steps))
		b.usage[i], b.wants[i] = 0, 0
	}
	b.steps, b.services, b.late = 0, 0, 0
}

// sizes are the pools' CPUs now; without an agent the last pool's are the node's.
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

// ratio is a of b, 0 where there is none.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (r *report) result(s *simulation) *Result {
	seconds := s.Duration.Seconds()
	out := &Result{
		Policy: r.trial.policy, Load: r.trial.vary, Tight: r.trial.tight, Decisions: r.decisions, Series: r.series, OOMKills: s.kubelet.kills, Refused: s.kubelet.refused,
		Utilization: r.busy / seconds / float64(r.series.CPUs),
		CPUMoves:    float64(s.node.moves.CPUs) / s.Duration.Hours(),
		Moves:       float64(s.node.moves.Containers) / s.Duration.Hours(),
		Evictions:   s.kubelet.evictions,
	}
	var services, late, stalled, online, throttled int
	var batch, asked float64
	for _, in := range s.kubelet.instances {
		t := &in.total
		if in.online() {
			online += t.steps
			throttled += t.throttled
			out.OnlineCPU += t.work / seconds
		} else {
			out.BatchCPU += t.work / seconds
			batch += t.cpu
			asked += t.asked
		}
		if in.Service.Time > 0 {
			services += t.steps
			late += t.late
			stalled += t.stalled
			out.Services = append(out.Services, ServiceResult{Name: in.name, Violations: ratio(float64(t.late), float64(t.steps)), Unserved: ratio(t.lost, t.wanted)})
		}
	}
	out.Violations = ratio(float64(late), float64(services))
	out.DirectStalls = ratio(float64(stalled), float64(services))
	out.Throttled = ratio(float64(throttled), float64(online))
	out.BatchServed = ratio(batch, asked)
	return out
}
