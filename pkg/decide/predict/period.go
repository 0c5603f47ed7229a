package predict

import (
	"math"
	"time"

	"gonum.org/v1/gonum/dsp/fourier"
)

const (
	leastCorrelation = 0.5  // of a usage with itself one period later, in any case
	sureCorrelation  = 0.75 // enough in any case
	leastDeviation   = 0.02 // standard deviation in parts of the mean; steps of the stored values are smaller
	leastPeriods     = 2    // in the history, for a period to be found
	leastPeriodSteps = 10
	pastPeriods      = 3 // whose same phase forecasts the next one
	measuredPart     = 2 // one in so many steps must have been measured
)

// usualPeriods returns the periods by which people and their clocks work. A period that the data
// can't tell from one of them is that one.
func usualPeriods() []time.Duration {
	const minute, day = time.Minute, 24 * time.Hour
	return []time.Duration{
		10 * minute, 15 * minute, 20 * minute, 30 * minute, time.Hour, 2 * time.Hour, 3 * time.Hour,
		4 * time.Hour, 6 * time.Hour, 8 * time.Hour, 12 * time.Hour, day, 7 * day,
	}
}

// findPeriod returns the period of the usage in a history; 0 if it has none.
func findPeriod(h *history) time.Duration {
	usage := series(h)
	if len(usage) < leastPeriods*leastPeriodSteps {
		return 0
	}
	lag := fundamental(correlation(usage, len(usage)/leastPeriods))
	if lag < leastPeriodSteps {
		return 0
	}
	period := time.Duration(lag * float64(h.step))
	for _, usual := range usualPeriods() {
		if (period - usual).Abs() <= usual/100 {
			return usual
		}
	}
	return period.Round(time.Minute)
}

// series returns the usage without its mean and its trend, which would hide the period. Missing
// steps have the value 0, which the mean has then. It returns nil if too little was measured, or
// if the usage hardly changes.
func series(h *history) []float64 {
	n := int(h.last - h.first + 1)
	usage, known := make([]float64, n), make([]bool, n)
	var count, sumX, sumY, sumXX, sumXY float64
	for i := range usage {
		value, ok := h.at(h.first + int64(i))
		if usage[i], known[i] = value, ok; ok {
			x := float64(i)
			count, sumX, sumY, sumXX, sumXY = count+1, sumX+x, sumY+value, sumXX+x*x, sumXY+x*value
		}
	}
	slope := (count*sumXY - sumX*sumY) / (count*sumXX - sumX*sumX)
	if count*measuredPart < float64(n) || math.IsNaN(slope) || math.IsInf(slope, 0) {
		return nil
	}
	base, squares := (sumY-slope*sumX)/count, 0.0
	for i := range usage {
		if known[i] {
			usage[i] -= base + slope*float64(i)
			squares += usage[i] * usage[i]
		}
	}
	if math.Sqrt(squares/count) < leastDeviation*sumY/count {
		return nil
	}
	return usage
}

// correlation returns how well a series agrees with itself after each lag up to the longest,
// from -1 to 1. By the theorem of Wiener and Khinchin it is the Fourier transform of the power
// spectrum.
func correlation(x []float64, longest int) []float64 {
	size := 1
	for size < len(x)+longest {
		size *= 2
	}
	padded := make([]float64, size)
	copy(padded, x)
	transform := fourier.NewFFT(size)
	spectrum := transform.Coefficients(nil, padded)
	for i, c := range spectrum {
		spectrum[i] = complex(real(c)*real(c)+imag(c)*imag(c), 0)
	}
	products := transform.Sequence(padded, spectrum)
	energy := make([]float64, len(x)+1) // of the first values
	for i, value := range x {
		energy[i+1] = energy[i] + value*value
	}
	all, n := energy[len(x)], len(x)
	r := make([]float64, longest+1)
	for lag := range r {
		if norm := math.Sqrt(energy[n-lag] * (all - energy[lag])); norm > 1e-9*all {
			r[lag] = products[lag] / float64(size) / norm
		}
	}
	return r
}

// fundamental returns the lag at the top of the first hill that is about as high as the highest,
// since a period's multiples have hills as well. It returns 0 if no hill is high enough.
func fundamental(r []float64) float64 {
	begin := 0
	for begin < len(r) && r[begin] > 0 {
		begin++
	}
	best, bestAt := 0.0, begin
	for i, at := range r[begin:] {
		if at > best {
			best, bestAt = at, begin+i
		}
	}
	if best < significant(r[:begin], leastPeriods*(len(r)-1)-bestAt) {
		return 0
	}
	top := begin
	for r[top] < 0.9*best {
		top++
	}
	end := top
	for i := top; i < len(r) && r[i] > 0; i++ {
		if r[i] > r[top] {
			top = i
		}
		end = i
	}
	return vertex(r, top, end)
}

// significant returns the correlation from which values that are compared so many times hardly
// agree by chance: four standard deviations by Bartlett's formula. The slower noise fades, the
// fewer values are independent. How slowly, the correlations after the shortest lags show.
func significant(shortest []float64, compared int) float64 {
	together := 1.0
	for _, at := range shortest {
		together += 2 * at * at
	}
	return min(max(leastCorrelation, 4*math.Sqrt(together/float64(max(compared, 1)))), sureCorrelation)
}

// vertex returns the lag at the top of a hill, by the parabola that fits its upper part best: the
// highest point itself is moved by noise. The hill ends at the lag end.
func vertex(r []float64, top, end int) float64 {
	least := 0.8 * r[top]
	low, high := top, top
	for low > 0 && r[low-1] >= least {
		low--
	}
	for high < end && r[high+1] >= least {
		high++
	}
	// A hill that the longest lag cuts off, or that leans to one side, is measured around its top.
	width := min(top-low, high-top)
	if width < 2 {
		return float64(top)
	}
	// With x from -width to width, sums of odd powers of x are 0.
	var n, s2, s4, y, xy, x2y float64
	for i := -width; i <= width; i++ {
		x, at := float64(i), r[top+i]
		n, s2, s4 = n+1, s2+x*x, s4+x*x*x*x
		y, xy, x2y = y+at, xy+x*at, x2y+x*x*at
	}
	curve := (n*x2y - s2*y) / (n*s4 - s2*s2)
	if curve >= 0 {
		return float64(top)
	}
	return float64(top) + min(max(-xy/s2/(2*curve), -float64(width)), float64(width))
}

// samePhase returns the highest usage at the same phase of the last periods.
func samePhase(h *history, period time.Duration, from time.Time, horizon time.Duration) (peak float64, ok bool) {
	if period <= 0 {
		return 0, false
	}
	period *= (horizon + period - 1) / period // the phase may not reach beyond now
	for past := 1; past <= pastPeriods; past++ {
		at := from.Add(-time.Duration(past) * period)
		begin := h.stepOf(at)
		count := h.stepOf(at.Add(horizon-1)) - begin + 1
		most, measured := h.most(begin, count)
		if measured*measuredPart >= count {
			peak, ok = max(peak, most), true
		}
	}
	return peak, ok
}
