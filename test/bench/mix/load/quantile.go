package load

import (
	"math"
	"slices"
	"time"
)

// Quantile is the smallest sample that the share q of all samples doesn't exceed;
// 0 without samples. It sorts the samples.
func Quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	slices.Sort(samples)
	return samples[max(0, int(math.Ceil(q*float64(len(samples))))-1)]
}
