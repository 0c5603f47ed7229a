package load

import (
	"math"
	"slices"
	"time"
)

// Quantile returns the smallest sample that is at least as large as the fraction q of all samples,
// or 0 without samples. It sorts the samples.
func Quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	slices.Sort(samples)
	return samples[max(0, int(math.Ceil(q*float64(len(samples))))-1)]
}
