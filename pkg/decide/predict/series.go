package predict

import (
	"math"
	"time"
)

const (
	// testTime is the time constant in which the result of a comparison loses its weight: of the
	// last days, the newest count most.
	testTime = 48 * time.Hour
	// leastTime is the time after which a method is believed to be as good as its results.
	leastTime = 24 * time.Hour
	// lossPercentile makes a forecast that was too low by some amount count 19 times as much as
	// one that was too high by it. The forecast with the least loss is the 95th percentile of the
	// peaks (quantile regression).
	lossPercentile = 0.95
	// betterBy is how much less the loss of another method must be before it is chosen, so that
	// two equally good ones don't take turns.
	betterBy = 0.95
	// fullPart is the part of a window that must have been measured for its peak to count.
	fullPart = 0.75
)

// Series is the usage of one resource by one object, with what is known of its course.
type Series struct {
	cfg      *Config
	resource Resource

	histogram Histogram
	history   history
	profile   profile
	period    time.Duration // 0 if none was found

	minute minute   // the present one
	step   float64  // highest minute of the present step of the history
	trials [2]trial // those of the next ten minutes, and of the next hour
	last   Hour
}

// Hour is a past hour with its peak, and what had been forecast by the method that counted.
type Hour struct {
	Forecast, Peak float64
	Known          bool
}

// minute sums the measurements of a minute.
type minute struct {
	at    int64 // since the epoch
	sum   float64
	count int
}

// trial compares forecasts with peaks, in windows of time that follow each other. How well a method
// forecasts ten minutes says little of how well it forecasts an hour.
type trial struct {
	length    int64 // of a window, in minutes
	at        int64 // the present window, since the epoch
	peak      float64
	minutes   int              // that were measured
	forecasts [methods]float64 // made at its beginning; negative if the method had none
	tests     [methods]test
	chosen    Method
}

// test sums the results of a method. With each window, earlier results lose part of their weight.
type test struct {
	weight float64 // of the windows
	loss   float64 // of their losses
	kept   float64 // of the windows whose peak was no higher than forecast
}

// NewSeries returns a series without measurements, whose history has steps of that length: whole
// minutes that divide an hour.
func NewSeries(cfg *Config, resource Resource, step time.Duration) *Series {
	of := cfg.of(resource)
	s := &Series{
		cfg: cfg, resource: resource, history: newHistory(step), profile: newProfile(),
		histogram: *NewHistogram(&of.Scale, of.HalfLife),
	}
	s.trials = [2]trial{{length: 10, forecasts: none()}, {length: 60, forecasts: none()}}
	return s
}

func none() (f [methods]float64) {
	for i := range f {
		f[i] = -1
	}
	return f
}

// Add adds a measurement. Measurements from before the present minute are left out: the clock was
// set back.
func (s *Series) Add(now time.Time, value float64) {
	if !(value >= 0) || math.IsInf(value, 0) {
		return
	}
	at := floorDiv(now.Unix(), 60)
	if at != s.minute.at {
		if at < s.minute.at && s.minute.at-at < int64(historyTime/time.Minute) {
			return
		}
		s.endMinute()
		s.beginMinute(now, at)
	}
	s.minute.sum += value
	s.minute.count++
}

// endMinute enters the mean of the minute that is over.
func (s *Series) endMinute() {
	m := &s.minute
	if m.count == 0 {
		return
	}
	mean := m.sum / float64(m.count)
	s.histogram.Add(mean, 1, time.Unix(m.at*60, 0))
	s.step = max(s.step, mean)
	for i := range s.trials {
		t := &s.trials[i]
		t.peak = max(t.peak, mean)
		t.minutes++
	}
}

// beginMinute begins the minute of that time, and with it a step of the history and an hour.
func (s *Series) beginMinute(now time.Time, at int64) {
	if last := s.minute; last.count > 0 {
		if at < last.at { // the clock was set back by weeks: what was measured lies in the future
			s.history.clear()
			for i := range s.trials {
				s.trials[i].minutes, s.trials[i].forecasts = 0, none()
			}
		} else if was := s.history.stepOf(time.Unix(last.at*60, 0)); was != s.history.stepOf(now) {
			s.history.enter(was, s.step)
			s.step = 0
		}
	}
	s.minute = minute{at: at}
	for i := range s.trials {
		t := &s.trials[i]
		if window := floorDiv(at, t.length); window != t.at {
			s.endWindow(t)
			t.at, t.peak, t.minutes = window, 0, 0
			for _, m := range Methods() {
				t.forecasts[m] = s.forecast(m, now, time.Duration(t.length)*time.Minute)
			}
		}
	}
}

// endWindow compares the forecasts with the peak of the window that is over.
func (s *Series) endWindow(t *trial) {
	if float64(t.minutes) < fullPart*float64(t.length) {
		return
	}
	if t.length == 60 {
		s.last = Hour{t.forecasts[t.chosen], t.peak, t.forecasts[t.chosen] >= 0}
		s.profile.enter(t.at, t.peak)
	}
	for m, forecast := range t.forecasts {
		if forecast >= 0 {
			t.tests[m].enter(forecast, t.peak, t.keeps())
		}
	}
	t.chosen = t.best(func(Method) bool { return true })
}

// keeps returns the part of their weight that earlier results keep with each window.
func (t *trial) keeps() float64 { return math.Exp(-float64(t.length) / testTime.Minutes()) }

func (t *test) enter(forecast, peak, keeps float64) {
	loss, kept := (1-lossPercentile)*(forecast-peak), 1.0
	if forecast < peak {
		loss, kept = lossPercentile*(peak-forecast), 0
	}
	t.weight, t.loss, t.kept = t.weight*keeps+1, t.loss*keeps+loss, t.kept*keeps+kept
}

// enough reports whether a method was compared often enough. The weight of its windows is less
// than their number.
func (t *trial) enough(m Method) bool {
	least := leastTime.Minutes()/float64(t.length) - 0.5
	return t.tests[m].weight > (1-math.Pow(t.keeps(), least))/(1-t.keeps())
}

// best returns the method with the least loss of those that may be chosen. The one that was
// chosen keeps its place against one that is hardly better.
func (t *trial) best(may func(Method) bool) Method {
	best := ByHistogram
	if may(t.chosen) {
		best = t.chosen
	}
	for _, m := range Methods() {
		if m != best && may(m) && t.enough(m) && (!t.enough(best) || t.tests[m].mean() < betterBy*t.tests[best].mean()) {
			best = m
		}
	}
	return best
}

// mean returns the mean loss.
func (t *test) mean() float64 { return t.loss / t.weight }

// trial returns the one that fits a horizon best.
func (s *Series) trial(horizon time.Duration) *trial {
	if horizon <= time.Duration(s.trials[0].length)*time.Minute {
		return &s.trials[0]
	}
	return &s.trials[1]
}

// FindPeriod looks for the period of the usage. It takes milliseconds, and its result holds for
// hours.
func (s *Series) FindPeriod() { s.period = findPeriod(&s.history) }

// Period returns the period that was found last; 0 for none.
func (s *Series) Period() time.Duration { return s.period }

// Forecast returns the expected peak in a time that begins now, by the method that was best of
// those that know one.
func (s *Series) Forecast(now time.Time, horizon time.Duration) Forecast {
	t := s.trial(horizon)
	if f := s.By(t.chosen, now, horizon); f.Peak > 0 {
		return f
	}
	return s.By(t.best(func(m Method) bool { return m == ByHistogram || s.forecast(m, now, horizon) > 0 }), now, horizon)
}

// By returns the expected peak by one method. Without a peak, the method knows none.
func (s *Series) By(m Method, now time.Time, horizon time.Duration) Forecast {
	f := Forecast{By: m, Peak: s.forecast(m, now, horizon)}
	if f.Peak < 0 {
		return Forecast{By: m}
	}
	if t := s.trial(horizon); t.enough(m) {
		f.Confidence = t.tests[m].kept / t.tests[m].weight
		f.Trusted = f.Confidence >= s.cfg.Trust
	}
	return f
}

// forecast returns the expected peak by a method; negative if the method knows none.
func (s *Series) forecast(m Method, now time.Time, horizon time.Duration) float64 {
	peak, ok := 0.0, false
	switch m {
	case ByHistogram:
		peak = s.histogram.Percentile(s.cfg.of(s.resource).Percentile)
		ok = s.histogram.total > 0
	case ByProfile:
		peak, ok = s.profile.peak(now, horizon)
	case ByPeriod:
		peak, ok = samePhase(&s.history, s.period, now, horizon)
	}
	if !ok {
		return -1
	}
	return peak * s.cfg.Margin
}
