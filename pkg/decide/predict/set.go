package predict

import "time"

// Kind is what uses something.
type Kind uint8

// The kinds.
const (
	Node     Kind = iota // all but batch work together, the system included
	Pool                 // one pool of CPUs
	Workload             // the pods of one owner on this node
	Class                // the pods of one service class
)

// Key names a series.
type Key struct {
	Kind     Kind
	Name     string // "" for the node
	Resource Resource
}

const (
	// MaxSeries bounds the memory: CPU and memory of 500 workloads, with the node, its pools and its classes.
	MaxSeries = 1100
	// searchEvery is the time between two searches for the period of a series.
	searchEvery = 6 * time.Hour
	// unusedTime is the time after which another series may replace one without measurements.
	unusedTime = time.Hour
)

// steps of the histories. Nodes and pools need most detail, because decisions count with them.
const (
	fineStep   = time.Minute
	coarseStep = 15 * time.Minute
)

// step returns the step of the history of a series.
func (k *Key) step() time.Duration {
	if k.Kind == Node || k.Kind == Pool {
		return fineStep
	}
	return coarseStep
}

// Set has the series of a node.
type Set struct {
	cfg    *Config
	series map[Key]*member
	order  []*member // in which their periods are searched
	next   int       // index in order
	full   time.Time // until then there is no place for another series
}

// member is a series of a set.
type member struct {
	*Series
	key      Key
	measured time.Time // last; zero if it was loaded and not measured since
	searched time.Time // when its period was searched last; zero for never
}

// NewSet returns a set without series.
func NewSet(cfg Config) *Set { return &Set{cfg: &cfg, series: map[Key]*member{}} }

// Configure replaces the configuration. What was learned stays.
func (s *Set) Configure(cfg Config) {
	*s.cfg = cfg
	for _, m := range s.order {
		m.histogram.setHalfLife(cfg.of(m.key.Resource).HalfLife)
	}
}

// Add adds a measurement. A full set replaces what was not measured for an hour, or leaves the
// measurement out.
func (s *Set) Add(now time.Time, key Key, value float64) {
	m := s.series[key]
	if m == nil {
		if !s.makeRoom(now) {
			return
		}
		m = &member{Series: NewSeries(s.cfg, key.Resource, key.step()), key: key}
		s.insert(m)
	}
	m.measured = now
	m.Add(now, value)
}

func (s *Set) insert(m *member) {
	s.series[m.key] = m
	s.order = append(s.order, m)
}

// makeRoom makes room for one more series, if the set is full.
func (s *Set) makeRoom(now time.Time) bool {
	if len(s.order) < MaxSeries {
		return true
	}
	if now.Before(s.full) {
		return false
	}
	oldest := 0
	for i, m := range s.order {
		if m.measured.Before(s.order[oldest].measured) {
			oldest = i
		}
	}
	if m := s.order[oldest]; now.Sub(m.measured) >= unusedTime {
		delete(s.series, m.key)
		s.order[oldest] = s.order[len(s.order)-1]
		s.order = s.order[:len(s.order)-1]
		return true
	}
	s.full = now.Add(time.Minute)
	return false
}

// Search looks for the period of one series, if it is due. It must be called regularly, such as
// once a second: one at a time holds nobody up.
func (s *Set) Search(now time.Time) {
	if len(s.order) == 0 {
		return
	}
	s.next %= len(s.order)
	m := s.order[s.next]
	s.next++
	if since := now.Sub(m.searched); m.measured.IsZero() || since >= 0 && since < searchEvery {
		return
	}
	m.searched = now
	m.FindPeriod()
}

// Forecast returns the expected peak of a series in a time that begins now. It has no trust if
// there is no such series, or if it was not measured in the last minutes.
func (s *Set) Forecast(now time.Time, key Key, horizon time.Duration) Forecast {
	m := s.series[key]
	if m == nil {
		return Forecast{}
	}
	f := m.Forecast(now, horizon)
	const recent = 2 * time.Minute
	f.Trusted = f.Trusted && now.Sub(m.measured).Abs() < recent
	return f
}

// Has reports whether a series was measured, in this run or before it.
func (s *Set) Has(key Key) bool { return s.series[key] != nil }

// LastHour returns the latest hour in which the forecast of a series was compared with its peak.
func (s *Set) LastHour(key Key) Hour {
	if m := s.series[key]; m != nil {
		return m.last
	}
	return Hour{}
}

// Len returns the number of series.
func (s *Set) Len() int { return len(s.order) }
