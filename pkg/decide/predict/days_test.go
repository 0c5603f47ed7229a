package predict

import (
	"math"
	"math/rand/v2"
	"time"
)

// course is the usage of made days, minute by minute. docs/prediction.md says where the shapes
// and distributions come from.
type course struct {
	name     string
	resource Resource
	request  float64
	usage    func(m *maker, minute int) float64
}

const (
	dayMinutes  = 24 * 60
	weekMinutes = 7 * dayMinutes
	madeDays    = 28
	testedFrom  = 14 // days that the methods know before they are tested
)

// maker draws random numbers for one course.
type maker struct {
	rng  *rand.Rand
	slow float64 // noise that fades
	held float64 // memory
	next int     // minute of the next event
	end  int     // minute of the end of the present event
	size float64 // of the present event
}

// curve is the usage of a service at a minute of the day: a wide peak in the morning and a
// higher one in the evening, 2 to 8 CPUs.
func curve(minute int) float64 {
	bell := func(peak, width float64) float64 {
		away := math.Abs(float64(minute%dayMinutes)/60 - peak)
		away = min(away, 24-away)
		if 2*away >= width {
			return 0
		}
		return (1 + math.Cos(2*math.Pi*away/width)) / 2
	}
	return 2 + 6*max(0.8*bell(11, 12), bell(20.5, 8))
}

// weekly is a service that is used at work.
func weekly(minute int) float64 {
	if minute/dayMinutes%7 >= 5 {
		return 2 + 0.3*(curve(minute)-2)
	}
	return curve(minute)
}

// served adds the noise of requests that arrive independently of each other and take an
// exponentially distributed CPU time of 100 ms on average, and a noise of 5 % that fades in ten
// minutes.
func (m *maker) served(cpus float64) float64 {
	keep := math.Exp(-1.0 / 10)
	m.slow = keep*m.slow + math.Sqrt(1-keep*keep)*m.rng.NormFloat64()
	cpus *= math.Exp(0.05 * m.slow)
	const seconds = 0.1
	requests := cpus * 60 / seconds
	return max(0, cpus+math.Sqrt(2*requests)*seconds/60*m.rng.NormFloat64())
}

// event begins an event that lasts so many minutes, on average every so many minutes, and reports
// whether one is in progress.
func (m *maker) event(minute, every, lasts int, size func() float64) bool {
	if m.next == 0 {
		m.next = minute + int(m.rng.ExpFloat64()*float64(every))
	}
	if minute >= m.next {
		m.end, m.size, m.next = minute+lasts, size(), 0
	}
	return minute < m.end
}

func courses() []course {
	const gib = 1 << 30
	return []course{
		{"daily", CPU, 16, func(m *maker, minute int) float64 { return m.served(curve(minute)) }},
		{"weekly", CPU, 16, func(m *maker, minute int) float64 { return m.served(weekly(minute)) }},
		{"holiday", CPU, 16, func(m *maker, minute int) float64 {
			if minute/dayMinutes == 16 || minute/dayMinutes == 24 { // a Wednesday and a Thursday
				return m.served(2 + 0.3*(curve(minute)-2))
			}
			return m.served(weekly(minute))
		}},
		{"deploy", CPU, 16, func(m *maker, minute int) float64 {
			level := 1.0
			switch since := minute - 18*dayMinutes - 14*60; {
			case since >= 10:
				level = 1.4
			case since >= 0:
				level = 2 // it starts
			}
			return m.served(level * curve(minute))
		}},
		{"drift", CPU, 16, func(m *maker, minute int) float64 {
			return m.served(curve(minute) * math.Pow(1.03, float64(minute)/dayMinutes))
		}},
		{"flash crowd", CPU, 16, func(m *maker, minute int) float64 {
			if m.event(minute, 4*dayMinutes, 90, func() float64 { return 2 + 9*m.rng.Float64() }) {
				return m.served(min(16, m.size*curve(minute)))
			}
			return m.served(curve(minute))
		}},
		{"job every 100 minutes", CPU, 8, func(m *maker, minute int) float64 {
			if minute%100 < 12 {
				return m.served(6)
			}
			return m.served(0.5)
		}},
		{"no pattern", CPU, 16, func(m *maker, minute int) float64 {
			if m.event(minute, 180, 15, func() float64 { return 1 + 5*m.rng.Float64() }) {
				return m.served(2 + m.size)
			}
			return m.served(2)
		}},
		{"daily memory", Memory, 32 * gib, func(m *maker, minute int) float64 { return gib * (8 + m.served(curve(minute))) }},
		{"memory leak", Memory, 32 * gib, func(m *maker, _ int) float64 {
			if m.held += gib / 60; m.held > 20*gib { // it is restarted at its limit
				m.held = gib * m.rng.Float64()
			}
			return 4*gib + m.held
		}},
	}
}

// days returns the course's usage of each minute.
func (c *course) days() []float64 {
	m := &maker{rng: rand.New(rand.NewPCG(7, 7))}
	usage := make([]float64, madeDays*dayMinutes)
	for i := range usage {
		usage[i] = c.usage(m, i)
	}
	return usage
}

// misses are the errors of forecasts of the next hour's peak.
type misses struct {
	hours       int
	over, under float64 // sums, in parts of the peak
	tooLow      int
}

func (m *misses) add(forecast, peak float64) {
	m.hours++
	if forecast < peak {
		m.under += (peak - forecast) / peak
		m.tooLow++
		return
	}
	m.over += (forecast - peak) / peak
}

// The baselines stand behind the methods in a backtest's results.
const (
	chosenColumn = methods + iota
	lastHourColumn
	requestColumn
	columns
)

// backtest forecasts the peak of each hour at its beginning by all methods, and compares it. A
// method that knows no peak counts with the request. It also returns what the chosen method forecast
// for each hour from tested on.
func backtest(cfg *Config, resource Resource, usage []float64, tested int, request float64) (results [columns]misses, chosen []float64) {
	s := NewSeries(cfg, resource, time.Minute)
	before := 0.0
	for i := 0; i+60 <= len(usage); i += 60 {
		now := begin.Add(time.Duration(i) * time.Minute)
		s.Add(now, usage[i])
		if i%dayMinutes == 0 {
			s.FindPeriod()
		}
		peak := 0.0
		for _, value := range usage[i : i+60] {
			peak = max(peak, value)
		}
		if i >= tested && peak > 0 {
			or := func(f Forecast) float64 {
				if f.Peak == 0 {
					return request
				}
				return f.Peak
			}
			for _, by := range Methods() {
				results[by].add(or(s.By(by, now, time.Hour)), peak)
			}
			chosen = append(chosen, or(s.Forecast(now, time.Hour)))
			results[chosenColumn].add(chosen[len(chosen)-1], peak)
			results[lastHourColumn].add(before*cfg.Margin, peak)
			results[requestColumn].add(request, peak)
		}
		before = peak
		for k := 1; k < 60; k++ {
			s.Add(now.Add(time.Duration(k)*time.Minute), usage[i+k])
		}
	}
	return results, chosen
}
