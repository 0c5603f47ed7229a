package control

import (
	"math"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
)

// Cycles is how many cycles a pod needs per instruction, compared with itself. Contention for caches and for the
// bandwidth of memory raises it, and shows in no other figure: a thread that waits for memory counts as running.
// Each figure is that of the worst container.
type Cycles struct {
	MeasuredAt          time.Time `json:"measuredAt"`          // Time of the latest count.
	PerInstructionRatio float64   `json:"perInstructionRatio"` // Cycles per instruction in the latest count.
	UsualRatio          float64   `json:"usualRatio"`          // Mean of the counts without batch work; until there are three, of all counts.
	LimitRatio          float64   `json:"limitRatio"`          // Cycles per instruction above which a count is an outlier.
	Learned             bool      `json:"learned"`             // Whether the usual value is known.
	Outliers            int       `json:"outliers"`            // Outliers among the last five counts.

	samples []cycleSample // latest counts
	now     time.Duration // on the clock of the samples
}

// The constants are those of CPI² (Zhang et al., EuroSys 2013, sections 4 and 5), but for the mean, which is there that
// of a job's tasks in the whole cluster. Here, each container is compared with itself.
const (
	cyclesUsage    = 250              // CPU usage in thousandths below which a count means nothing
	cyclesOutlier  = 2                // standard deviations above the mean from which a count is an outlier
	cyclesCounts   = 5                // latest counts, of which
	cyclesOutliers = 3                // so many outliers mean that others slow the container down
	cyclesHistory  = 10               // counts by which suspects are compared
	cyclesTime     = 10 * time.Minute // within this time
	cyclesAge      = 3 * time.Minute  // after which the latest count says nothing, since one is made each minute

	leastCount  = 5 * time.Second // a shorter count only shows what a change has brought
	leastCalm   = 3               // counts without batch work that make a mean
	leastUsual  = 10              // counts beside batch work that make one
	cyclesMean  = 30              // counts after which the mean forgets
	leastSlowed = Suffers         // least excess of an outlier, since a container may need nearly the same number always
)

// cycleSample is one count.
type cycleSample struct {
	ended time.Duration // on a clock that nobody sets: the sum of the time between steps
	over  time.Duration
	value float64 // cycles per instruction
}

// moments are a mean and a variance with exponentially decreasing weights (Finch, Incremental calculation of weighted
// mean and variance, 2009).
type moments struct {
	mean, variance float64
	n              int
}

func (m *moments) enter(x float64) {
	m.n = min(m.n+1, cyclesMean)
	weight := 1 / float64(m.n)
	difference := x - m.mean
	m.mean += weight * difference
	m.variance = (1 - weight) * (m.variance + weight*difference*difference)
}

// limit returns the value above which a count is an outlier. Few counts say little about mean and deviation, so that the
// limit is further away then: three counts double the variance (prediction interval).
func (m *moments) limit() float64 {
	spread := m.variance
	if n := float64(m.n); n > 1 {
		spread *= n / (n - 1) * (1 + 1/n)
	}
	return m.mean + max(cyclesOutlier*math.Sqrt(spread), leastSlowed*m.mean)
}

// instructions is what is known of a container's cycles per instruction.
type instructions struct {
	counted     time.Time // when the latest count ended
	calm, usual moments   // without batch work, and of all counts
	reading     Reading   // value and excess are multiples of the mean
	cycles      float64   // per instruction, by the latest count
	outliers    uint8     // bit i is set if the count before i others was one
	samples     [cyclesHistory]cycleSample
	n           int // samples that were entered, of which the last are kept
}

// base returns the moments that a container is compared with.
func (s *instructions) base() (m *moments, learned bool) {
	if s.calm.n >= leastCalm {
		return &s.calm, true
	}
	return &s.usual, s.usual.n >= leastUsual
}

// follow takes a new count, with the time of its end on the samples' clock. It is calm if no batch work ran meanwhile, and nothing is learned from it if learns is
// false. Short counts are only read. Beside batch work, an outlier counts as the limit, so that contention does not
// soon become usual.
func (s *instructions) follow(c *observe.CPI, ended time.Duration, calm, learns bool) {
	if c.Usage < cyclesUsage {
		s.reading = Reading{}
		return
	}
	base, learned := s.base()
	s.cycles = c.Cycles
	if c.Over >= leastCount {
		s.outliers <<= 1
		if learned && c.Cycles > base.limit() {
			s.outliers |= 1
		}
		s.samples[s.n%cyclesHistory] = cycleSample{ended, c.Over, c.Cycles}
		s.n++
		switch {
		case !learns:
		case calm:
			s.calm.enter(c.Cycles)
			s.usual.enter(c.Cycles)
		case learned && base == &s.usual:
			s.usual.enter(min(c.Cycles, base.limit()))
		default:
			s.usual.enter(c.Cycles)
		}
		base, learned = s.base()
	}
	s.reading = Reading{value: 1}
	if learned && base.mean > 0 {
		s.reading.value = c.Cycles / base.mean
		s.reading.above = max(0, s.reading.value-1)
	}
}

// slowed returns the number of outliers among the latest counts.
func (s *instructions) slowed() (n int) {
	for i := range cyclesCounts {
		n += int(s.outliers >> i & 1)
	}
	return n
}

// cyclesOf enters what was counted of a pod's containers into what is known of the pod, by the container that is
// furthest above its limit, in parts of it. One whose usual value is not known says nothing beside one whose is.
func (f *Interference) cyclesOf(v *View, p *Pod, learns bool, d *Disturbance) {
	worst := math.Inf(-1)
	counted := false
	for i := range v.Containers[p.First : p.First+p.Count] {
		c := &v.Containers[p.First+i]
		s := f.cycles.find(c.ID)
		if c.CPI.At.IsZero() && s == nil {
			continue
		}
		s = f.cycles.at(c.ID)
		from := c.CPI.At.Add(-c.CPI.Over)
		if !c.CPI.At.Equal(s.counted) && known(v.Now, c.CPI.At, f.interval) { // otherwise, only the clock was set
			s.follow(&c.CPI, f.clock-v.Now.Sub(c.CPI.At), !f.lightAt.IsZero() && !from.Before(f.lightAt), learns)
		}
		s.counted = c.CPI.At
		base, learned := s.base()
		limit := base.limit()
		if s.reading.value > 0 {
			s.reading.from, s.reading.at = from, c.CPI.At
		}
		above := s.cycles/max(limit, math.SmallestNonzeroFloat64) - 1
		if !learned {
			above = -1
		}
		if !recent(v.Now, s.reading.at, cyclesAge) || counted && above <= worst {
			continue
		}
		worst, counted = above, true
		d.Cycles = &Cycles{
			MeasuredAt: s.reading.at, PerInstructionRatio: s.cycles, UsualRatio: base.mean, LimitRatio: limit,
			Learned: learned, Outliers: s.slowed(), samples: s.samples[:min(s.n, cyclesHistory)], now: f.clock,
		}
		d.Latest[slowCycles] = s.reading
		if learned {
			d.bears[slowCycles] = limit/base.mean - 1
		}
	}
}

// Slowed reports whether others slow the pod down: it has needed more cycles per instruction than its limit again and
// again. The latest count may be a few minutes old.
func (c *Cycles) Slowed() bool {
	return c.Learned && c.Outliers >= cyclesOutliers && c.PerInstructionRatio > c.LimitRatio
}

// known reports whether the cycles per instruction tell whether others slow the pod down.
func (c *Cycles) known(now time.Time) bool {
	return c != nil && c.Learned && recent(now, c.MeasuredAt, cyclesAge)
}
