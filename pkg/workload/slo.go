package workload

// SLO is how long a pod can bear to wait: the largest shares of time, above 0 to 1, as means over
// ten seconds. Zero sets no bound.
type SLO struct {
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
}

// OnCPU returns the lower of the bounds on waiting for CPUs; 0 if there is none.
func (s SLO) OnCPU() float64 {
	if s.RunDelay == 0 || s.CPUPressure == 0 {
		return max(s.RunDelay, s.CPUPressure)
	}
	return min(s.RunDelay, s.CPUPressure)
}
