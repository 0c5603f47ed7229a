package predict

import (
	"math"
	"time"
)

const (
	// testHours is the time constant in which the result of a comparison loses its weight: of the
	// last days, the newest count most.
	testHours = 48
	// leastTests is the number of hours after which a method is believed to be as good as its
	// results.
	leastTests = 24
	// lossPercentile makes a forecast that was too low by some amount count 19 times as much as
	// one that was too high by it. The forecast with the least loss is the 95th percentile of the
	// peaks (quantile regression).
	lossPercentile = 0.95
	// betterBy is how much less the loss of another method must be before it is chosen, so that
	// two equally good ones don't take turns.
	betterBy = 0.95
	// fullHour is how many minutes of an hour must have been measured for its peak to count.
	fullHour = 45
)

// Series is the usage of one resource by one object, with what is known of its course.
type Series struct {
	cfg      *Config
	resource Resource

	histogram Histogram
	history   history
	profile   profile
	period    time.Duration // 0 if none was found

	minute minute  // the present one
	step   float64 // highest minute of the present step of the history
	hour   hour    // the present one
	tests  [methods]test
	chosen Method
}

// minute sums the measurements of a minute.
type minute struct {
	at    int64 // since the epoch
	sum   float64
	count int
}

// hour is an hour in which forecasts are compared with the peak.
type hour struct {
	at        int64 // since the epoch
	peak      float64
	minutes   int              // that were measured
	forecasts [methods]float64 // made at its beginning; negative if the method had none
}

// test sums the results of a method. Each hour, earlier results lose part of their weight.
type test struct {
	hours float64 // weight of the hours
	loss  float64 // of their losses
	kept  float64 // of the hours whose peak was no higher than forecast
}

// NewSeries returns a series without measurements, whose history has steps of that length: whole
// minutes that divide an hour.
func NewSeries(cfg *Config, resource Resource, step time.Duration) *Series {
	of := cfg.of(resource)
	s := &Series{
		cfg: cfg, resource: resource, history: newHistory(step), profile: newProfile(),
		histogram: *NewHistogram(&of.Scale, of.HalfLife),
	}
	s.hour.forecasts = none()
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
	s.hour.peak = max(s.hour.peak, mean)
	s.hour.minutes++
}

// beginMinute begins the minute of that time, and with it a step of the history and an hour.
func (s *Series) beginMinute(now time.Time, at int64) {
	if last := s.minute; last.count > 0 {
		if at < last.at { // the clock was set back by weeks: what was measured lies in the future
			s.history.clear()
			s.hour = hour{forecasts: none()}
		} else if was := s.history.stepOf(time.Unix(last.at*60, 0)); was != s.history.stepOf(now) {
			s.history.enter(was, s.step)
			s.step = 0
		}
	}
	s.minute = minute{at: at}
	if at := hourOf(now); at != s.hour.at {
		s.endHour()
		s.hour = hour{at: at}
		for _, m := range Methods() {
			s.hour.forecasts[m] = s.forecast(m, now, time.Hour)
		}
	}
}

// endHour compares the forecasts with the peak of the hour that is over.
func (s *Series) endHour() {
	h := &s.hour
	if h.minutes < fullHour {
		return
	}
	for m, forecast := range h.forecasts {
		if forecast >= 0 {
			s.tests[m].enter(forecast, h.peak)
		}
	}
	s.profile.enter(h.at, h.peak)
	s.chosen = s.best(func(Method) bool { return true })
}

func (t *test) enter(forecast, peak float64) {
	keep := math.Exp(-1.0 / testHours)
	loss, kept := (1-lossPercentile)*(forecast-peak), 1.0
	if forecast < peak {
		loss, kept = lossPercentile*(peak-forecast), 0
	}
	t.hours, t.loss, t.kept = t.hours*keep+1, t.loss*keep+loss, t.kept*keep+kept
}

// enough reports whether enough hours were compared. Their weight is less than their number.
func (t *test) enough() bool {
	keep := math.Exp(-1.0 / testHours)
	return t.hours > (1-math.Pow(keep, leastTests-0.5))/(1-keep)
}

// best returns the method with the least loss of those that may be chosen. The one that was
// chosen keeps its place against one that is hardly better.
func (s *Series) best(may func(Method) bool) Method {
	best := ByHistogram
	if may(s.chosen) {
		best = s.chosen
	}
	for _, m := range Methods() {
		t, b := &s.tests[m], &s.tests[best]
		if m != best && may(m) && t.enough() && (!b.enough() || t.loss/t.hours < betterBy*b.loss/b.hours) {
			best = m
		}
	}
	return best
}

// FindPeriod looks for the period of the usage. It takes milliseconds, and its result holds for
// hours.
func (s *Series) FindPeriod() { s.period = findPeriod(&s.history) }

// Period returns the period that was found last; 0 for none.
func (s *Series) Period() time.Duration { return s.period }

// Forecast returns the expected peak in a time that begins now, by the method that was best of
// those that know one.
func (s *Series) Forecast(now time.Time, horizon time.Duration) Forecast {
	f := s.By(s.chosen, now, horizon)
	if f.Peak > 0 {
		return f
	}
	return s.By(s.best(func(m Method) bool { return m == ByHistogram || s.forecast(m, now, horizon) > 0 }), now, horizon)
}

// By returns the expected peak by one method. Without a peak, the method knows none.
func (s *Series) By(m Method, now time.Time, horizon time.Duration) Forecast {
	f := Forecast{By: m, Peak: s.forecast(m, now, horizon)}
	if f.Peak < 0 {
		return Forecast{By: m}
	}
	if t := &s.tests[m]; t.enough() {
		f.Confidence = t.kept / t.hours
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
