// Package predict forecasts the peak of a usage: of the node, of a pool, or of a workload. Three
// methods forecast, and those that were best in the last days count:
//
//   - a histogram of the usage whose samples lose half of their weight in each half-life, as in
//     Kubernetes' Vertical Pod Autoscaler
//   - a profile of the peaks by hour of the day and of the week
//   - the period of the usage, if it has one: the peak at the same phase of the last periods
//
// Forecasts of the peaks of the next ten minutes and of the next hour are later compared with the
// peaks, so that a series knows how well each method serves it. docs/prediction.md shows how well they serve made days. The
// package does no I/O; time is an input.
package predict

import "time"

// Config says how peaks are forecast.
type Config struct {
	CPU    ResourceConfig
	Memory ResourceConfig
	// Margin multiplies what the methods forecast.
	Margin float64
	// Trust is the least confidence of a forecast that counts, from 0 to 1.
	Trust float64
}

// ResourceConfig says how the usage of a resource is collected.
type ResourceConfig struct {
	Scale      Scale
	HalfLife   time.Duration // of a sample's weight in the histogram
	Percentile float64       // of the samples that a peak covers, from 0 to 1
}

// DefaultConfig has the values of the Vertical Pod Autoscaler, with the higher percentiles of
// Koordinator's peak prediction.
func DefaultConfig() Config {
	return Config{
		CPU:    ResourceConfig{Scale: Scale{First: 0.025, Ratio: 1.05, Most: 1000}, HalfLife: 12 * time.Hour, Percentile: 0.95},
		Memory: ResourceConfig{Scale: Scale{First: 5 << 20, Ratio: 1.05, Most: 1e13}, HalfLife: 24 * time.Hour, Percentile: 0.98},
		Margin: 1.10,
		Trust:  0.90,
	}
}

// of returns the configuration of a resource.
func (c *Config) of(r Resource) *ResourceConfig {
	if r == Memory {
		return &c.Memory
	}
	return &c.CPU
}

// Resource is what is used.
type Resource uint8

// The resources.
const (
	CPU    Resource = iota // in CPUs
	Memory                 // in bytes
)

// Method is a way to forecast a peak.
type Method uint8

// The methods.
const (
	ByHistogram Method = iota
	ByProfile
	ByPeriod
	methods int = iota
)

// Methods lists all methods.
func Methods() []Method { return []Method{ByHistogram, ByProfile, ByPeriod} }

// Forecast is the expected peak of a usage.
type Forecast struct {
	Peak float64 // in CPUs or bytes, margin included
	By   Method
	// Confidence is the part of the last days' windows (ten minutes, or an hour) whose peak was no
	// higher than this method had forecast, from 0 to 1.
	Confidence float64
	// Trusted is set if enough windows were compared, and the confidence is high enough. What is
	// not trusted counts with its request.
	Trusted bool
}

// Reclaimable returns what can be given to others of a request whose peak is known: what the
// peak leaves.
func Reclaimable[T ~int64 | ~float64](request, peak T) T { return max(0, request-peak) }

// floorDiv divides and rounds down, also before the epoch.
func floorDiv(a, b int64) int64 {
	if q := a / b; a%b >= 0 {
		return q
	}
	return a/b - 1
}

// floorMod returns the non-negative rest.
func floorMod(a, b int64) int64 { return a - b*floorDiv(a, b) }
