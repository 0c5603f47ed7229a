package sim

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sort"
	"time"
)

// source computes the load of one container over time.
type source struct {
	Load
	rng   *rand.Rand
	seed  uint64        // of what is drawn independently of the order of reading
	slow  float64       // the slowly changing noise
	next  time.Duration // begin of the next burst, or end of the present one
	burst bool
	level float64 // load without noise when the curve was last read
	until time.Duration
}

// newSource seeds the random numbers by the seed and the container's name only, so that another
// pod in the file doesn't change this one.
func newSource(l Load, seed int, name string) *source {
	h := fnv.New64a()
	h.Write([]byte(name))
	return &source{Load: l, rng: rand.New(rand.NewPCG(uint64(seed), h.Sum64())), seed: uint64(seed) ^ h.Sum64(), next: -1}
}

// lookEvery is the time between two readings of a curve. Between them only the noise changes.
const lookEvery = time.Second

// at returns the work that is wanted at a time since the start of the scenario, in CPUs. since is
// the time since the pod's own start, and clock that since the midnight before Monday. Times must not
// decrease.
func (s *source) at(since, clock, step time.Duration) float64 {
	if since >= s.until {
		s.until = since.Truncate(lookEvery) + lookEvery
		s.level = s.curve(since, clock)
	}
	if s.Noise == 0 {
		return s.level
	}
	// There are two kinds of noise with half of the variance each: one is independent in each
	// step, the other fades over ten seconds (an autoregressive process of order one).
	const fades = 10 * time.Second
	keep := math.Exp(-float64(step) / float64(fades))
	s.slow = keep*s.slow + math.Sqrt(1-keep*keep)*s.rng.NormFloat64()
	return s.level * max(0, 1+float64(s.Noise)*math.Sqrt2/2*(s.slow+s.rng.NormFloat64()))
}

// curve returns the load without noise.
func (s *source) curve(since, clock time.Duration) float64 {
	load := s.known(since, clock) * s.growth(since)
	if s.Curve != Steps && len(s.Steps) > 0 && since >= s.Steps[0].At {
		load *= s.stepAt(since)
	}
	return load
}

// known returns the load by its curve alone, as if nothing had ever changed.
func (s *source) known(since, clock time.Duration) float64 {
	top, low := float64(s.CPU), float64(s.Low)
	switch s.Curve {
	case Sine:
		return top * (low + (1-low)*s.tide(clock))
	case Steps:
		return top * s.stepAt(since)
	case Bursts:
		if s.bursting(since) {
			return top
		}
		return top * low
	case Trace:
		if s.recorded != nil {
			return s.recorded.at(since, s.seed)
		}
		return between(s.points, since)
	case Constant:
	}
	return top
}

// growth returns the factor of the drift at a time since the pod's start, which may be negative.
func (s *source) growth(since time.Duration) float64 {
	return math.Pow(1+float64(s.Drift), float64(since)/float64(day))
}

// stepAt returns the level of the steps; 0 before the first one.
func (s *source) stepAt(since time.Duration) float64 { return levelAt(s.Steps, since, 0) }

// levelAt returns the level of steps at a time, or another one before the first of them.
func levelAt(steps []Step, since time.Duration, before Percent) float64 {
	level := before
	for _, step := range steps {
		if step.At <= since {
			level = step.Load
		}
	}
	return float64(level)
}

const day = 24 * time.Hour

// tide returns the height of a sine load: 1 at a peak, 0 far from all of them, a raised cosine in
// between.
func (s *source) tide(clock time.Duration) float64 {
	peaks, width := s.Peaks, s.Width
	if len(peaks) == 0 {
		peaks = []Hour{Hour(14 * time.Hour)}
	}
	if width == 0 {
		width = day
		if len(peaks) > 1 {
			width = day / 3
		}
	}
	height := 0.0
	for _, peak := range peaks {
		away := (clock - time.Duration(peak)).Abs() % day
		away = min(away, day-away)
		if 2*away < width {
			height = max(height, (1+math.Cos(2*math.Pi*float64(away)/float64(width)))/2)
		}
	}
	if s.Weekend > 0 && weekday(clock) >= 5 {
		height *= float64(s.Weekend)
	}
	return height
}

// weekday returns the day of the week, 0 for Monday. A clock before its zero is of the week before.
func weekday(clock time.Duration) int {
	const week = 7 * day
	return int((clock%week + week) % week / day)
}

// bursting reports whether a burst is in progress. It draws the time to the next burst when one
// ends.
func (s *source) bursting(since time.Duration) bool {
	if s.next < 0 {
		s.next = s.pause()
	}
	for since >= s.next {
		s.burst = !s.burst
		if s.burst {
			s.next += s.For
		} else {
			s.next += s.pause()
		}
	}
	return s.burst
}

func (s *source) pause() time.Duration {
	return max(lookEvery, time.Duration(s.rng.ExpFloat64()*float64(s.Every-s.For)))
}

// between interpolates linearly between points, and is constant before the first and after the
// last.
func between(points []point, at time.Duration) float64 {
	i := sort.Search(len(points), func(i int) bool { return points[i].at >= at })
	switch i {
	case 0:
		return points[0].cpu
	case len(points):
		return points[i-1].cpu
	}
	before, after := points[i-1], points[i]
	part := float64(at-before.at) / float64(after.at-before.at)
	return before.cpu + part*(after.cpu-before.cpu)
}
