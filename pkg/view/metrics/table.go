package metrics

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// section is a group of related metrics, for the documentation.
type section struct {
	title   string
	names   bool // its metrics have labels of containers and pods
	metrics []metric
}

// sections lists all metrics. Those that matter most to operators of mixed nodes come first.
func sections() []section {
	return []section{
		{title: "Interference", metrics: interference()},
		{title: "Bounds", metrics: bounds()},
		{title: "Benefit", metrics: benefit()},
		{title: "Egress", metrics: egress()},
		{title: "Batch health", metrics: batchHealth()},
		{title: "Pools", metrics: pools()},
		{title: "Forecasts", metrics: forecasts()},
		{title: "Classes", metrics: classes()},
		{title: "Batch budget", metrics: batchBudget()},
		{title: "Batch memory", metrics: batchMemory()},
		{title: "Host applications", metrics: hostApplications()},
		{title: "Node", metrics: node()},
		{title: "Decisions", metrics: decisions()},
		{title: "Settings", metrics: settings()},
		{title: "Runtime", metrics: runtime()},
		{title: "Sluice itself", metrics: plugin()},
		{title: "Single containers and pods", names: true, metrics: append(containers(), overAsks()...)},
	}
}

// kind is the type of a metric.
type kind uint8

const (
	gauge kind = iota
	counter
	histogram
)

func (k kind) String() string { return [...]string{"gauge", "counter", "histogram"}[k] }

// metric is one metric family: its description, and a function for its samples in a status.
type metric struct {
	name, help string
	kind       kind
	labels     []string
	samples    func(*scrape, *sink)
}

// scrape is a status with values that several metrics derive from it.
type scrape struct {
	*status.Status
	loop    *status.Loop // nil without a control loop, and before its first measurement
	classes [classCount]class
	named   []named // nil if containers are not exported
}

func newScrape(s *status.Status, names bool) *scrape {
	input := &scrape{Status: s}
	if s.Loop != nil && !s.Loop.MeasuredAt.IsZero() {
		input.loop = s.Loop
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		if int(c.Class) < len(input.classes) {
			input.classes[c.Class].add(c)
		}
	}
	if names {
		input.named = nameEach(s.Containers)
	}
	return input
}

// loopSamples wraps samples that exist after the control loop's first measurement.
func loopSamples(samples func(*status.Loop, *sink)) func(*scrape, *sink) {
	return func(s *scrape, out *sink) {
		if s.loop != nil {
			samples(s.loop, out)
		}
	}
}

// one wraps the only sample of a metric.
func one(value func(*status.Status) float64) func(*scrape, *sink) {
	return func(s *scrape, out *sink) { out.put(value(s.Status)) }
}

// oneLooked wraps the only sample of a metric of the control loop.
func oneLooked(value func(*status.Loop) float64) func(*scrape, *sink) {
	return loopSamples(func(l *status.Loop, out *sink) { out.put(value(l)) })
}

// sink receives the samples of one metric.
type sink struct {
	out  chan<- prometheus.Metric
	desc *prometheus.Desc
	kind kind
}

// put sends a sample, unless it is negative or not finite: no metric is ever negative.
func (s *sink) put(value float64, labels ...string) {
	if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		return
	}
	as := prometheus.GaugeValue
	if s.kind == counter {
		as = prometheus.CounterValue
	}
	s.send(prometheus.NewConstMetric(s.desc, as, value, labels...))
}

func (s *sink) putTime(t time.Time) {
	if !t.IsZero() {
		s.put(float64(t.UnixNano()) / 1e9)
	}
}

func (s *sink) putHistogram(count uint64, sum float64, buckets map[float64]uint64, labels ...string) {
	s.send(prometheus.NewConstHistogram(s.desc, count, max(sum, 0), buckets, labels...))
}

func (s *sink) send(m prometheus.Metric, err error) {
	if err != nil {
		m = prometheus.NewInvalidMetric(s.desc, err)
	}
	s.out <- m
}

func cpus(m workload.MilliCPU) float64 { return float64(m) / 1000 }

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// The label of what is waited for, and its values for pressure.
const resourceLabel = "resource"

func putPressure(out *sink, p *status.PressureUsage, labels ...string) {
	if p.MeasuredAt.IsZero() {
		return
	}
	at := len(labels)
	labels = append(labels, "")
	for _, part := range []struct {
		name  string
		share float64
	}{{"cpu", p.CPUFraction}, {"memory", p.MemoryFraction}, {"io", p.IOFraction}} {
		labels[at] = part.name
		out.put(part.share, labels...)
	}
}
