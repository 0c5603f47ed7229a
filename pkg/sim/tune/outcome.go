package tune

import "math"

// outcome returns the means over the pieces from one to before another: by time, and lateness by
// the services' time.
func (t *tuner) outcome(c choice, from, to int) Outcome {
	o := Outcome{Pieces: to - from}
	hours, services := 0.0, 0.0
	for i := from; i < to; i++ {
		r, s := t.results[c.key()][i], t.pieces[i].scenario
		h := (s.Duration - s.Warmup).Hours()
		hours += h
		services += r.ServiceSeconds
		o.BatchCPUs += h * r.BatchCPUs
		o.UtilizationFraction += h * r.UtilizationFraction
		o.CPUMovesPerHour += h * r.CPUMovesPerHour
		o.MovesPerHour += h * r.MovesPerHour
		o.LateFraction += r.ServiceSeconds * r.LateFraction
	}
	for _, v := range []*float64{&o.BatchCPUs, &o.UtilizationFraction, &o.CPUMovesPerHour, &o.MovesPerHour} {
		*v /= hours
	}
	if services > 0 {
		o.LateFraction /= services
	}
	return o
}

const (
	errorsOfMean = 2    // standard errors of the mean by which a gain exceeds noise
	leastGain    = 0.01 // part of the batch work by which a gain is worth a change
)

// gains reports whether b does more batch work than a on the pieces, by more than noise. The
// comparison is by pairs: each piece has the same load and the same random numbers for both.
func (t *tuner) gains(a, b choice, from, to int) bool {
	n, sum, squares, before := float64(to-from), 0.0, 0.0, 0.0
	for i := from; i < to; i++ {
		was := t.results[a.key()][i].BatchCPUs
		gain := t.results[b.key()][i].BatchCPUs - was
		sum, squares, before = sum+gain, squares+gain*gain, before+was
	}
	mean := sum / n
	deviation := math.Sqrt(max(0, squares/n-mean*mean) * n / max(1, n-1))
	return mean > errorsOfMean*deviation/math.Sqrt(n) && mean > leastGain*before/n
}
