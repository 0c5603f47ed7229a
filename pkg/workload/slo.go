package workload

import "time"

// SLO is how long a pod can bear to wait: the largest shares of time, above 0 to 1, as means over
// ten seconds. Zero sets no bound.
type SLO struct {
	Latency        Objective
	RunDelay       float64 // of the time in which its threads ran or could have run
	CPUPressure    float64 // some task waited for a CPU (PSI)
	MemoryPressure float64 // some task waited for memory (PSI)
	IOPressure     float64 // some task waited for I/O (PSI)
}

// Tighten lowers each bound to that of another container.
func (s *SLO) Tighten(o SLO) {
	for _, b := range []struct {
		own   *float64
		other float64
	}{{&s.RunDelay, o.RunDelay}, {&s.CPUPressure, o.CPUPressure}, {&s.MemoryPressure, o.MemoryPressure}, {&s.IOPressure, o.IOPressure}} {
		if b.other > 0 && (*b.own == 0 || b.other < *b.own) {
			*b.own = b.other
		}
	}
	if o.Latency.Bound > 0 && (s.Latency.Bound == 0 || o.Latency.Bound < s.Latency.Bound) {
		s.Latency = o.Latency
	}
}

// OnCPU returns the lower of the bounds on waiting for CPUs; 0 if there is none.
func (s SLO) OnCPU() float64 {
	if s.RunDelay == 0 || s.CPUPressure == 0 {
		return max(s.RunDelay, s.CPUPressure)
	}
	return min(s.RunDelay, s.CPUPressure)
}

// Objective is a bound on a quantile of the pod's response times, by a histogram that the pod serves for
// Prometheus. The zero value sets none.
type Objective struct {
	Metric   string        // the histogram's name, without _bucket
	Labels   [4]Label      // that a series must have to count; unused ones are empty
	Quantile float64       // share of the requests that must be answered within Bound, above 0 and below 1
	Bound    time.Duration // largest response time
	Unit     time.Duration // of the histogram's buckets: a second or a millisecond
	Port     int           // of the pod's address, where the histogram is served by HTTP
	Path     string        // of the page, beginning with "/"
}

// Label is a Prometheus label with its value.
type Label struct{ Name, Value string }
