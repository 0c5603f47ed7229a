package predict

import (
	"math"
	"time"
)

// Scale divides values into buckets, each Ratio times as wide as the one before. The first one
// begins at 0.
type Scale struct {
	First float64 // width of the first bucket
	Ratio float64 // at least 1, which makes all buckets equally wide
	Most  float64 // values from here on share the last bucket
}

// start returns the lower end of a bucket.
func (s *Scale) start(bucket int) float64 {
	if s.Ratio == 1 {
		return s.First * float64(bucket)
	}
	return s.First * (math.Pow(s.Ratio, float64(bucket)) - 1) / (s.Ratio - 1)
}

// bucket returns the bucket of a value.
func (s *Scale) bucket(value float64) int {
	value = min(max(value, 0), s.Most)
	if s.Ratio == 1 {
		return int(value / s.First)
	}
	n := int(math.Log(value*(s.Ratio-1)/s.First+1) / math.Log(s.Ratio))
	// The logarithm may miss the bucket of a value that is the end of one.
	if value >= s.start(n+1) {
		n++
	}
	return n
}

// mostExponent bounds the weight of a sample to 2^mostExponent, so that a float32 holds sums.
const mostExponent = 60

// leastWeight is the weight below which a bucket counts as empty, in parts of all.
const leastWeight = 1e-4

// Histogram is a distribution of values in which a sample loses half of its weight in each
// half-life.
type Histogram struct {
	scale     *Scale
	halfLife  time.Duration
	reference time.Time // time whose samples have the weight 1
	newest    time.Time // time of the newest sample
	weights   []float32 // by bucket
	total     float64
}

// NewHistogram returns an empty histogram.
func NewHistogram(scale *Scale, halfLife time.Duration) *Histogram {
	return &Histogram{scale: scale, halfLife: halfLife}
}

// Add adds a value with a weight.
func (h *Histogram) Add(value, weight float64, at time.Time) {
	if !(value >= 0) || !(weight > 0) { // which NaN isn't either
		return
	}
	if h.reference.IsZero() {
		h.reference = at
	}
	age := h.halfLives(at)
	if age > mostExponent || age < -mostExponent {
		h.rebase(at)
		age = 0
	}
	if at.After(h.newest) {
		h.newest = at
	}
	weight *= math.Exp2(age)
	bucket := h.scale.bucket(value)
	if bucket >= len(h.weights) {
		h.weights = append(h.weights, make([]float32, bucket+1-len(h.weights))...)
	}
	h.weights[bucket] += float32(weight)
	h.total += weight
}

// halfLives returns the time from the reference on in half-lives.
func (h *Histogram) halfLives(at time.Time) float64 {
	return float64(at.Sub(h.reference)) / float64(h.halfLife)
}

// setHalfLife changes how fast samples lose their weight from now on. What they have lost stays
// lost.
func (h *Histogram) setHalfLife(halfLife time.Duration) {
	if halfLife != h.halfLife {
		h.settle()
		h.halfLife = halfLife
	}
}

// settle makes the newest sample weigh 1, so that no other weight depends on the half-life.
func (h *Histogram) settle() {
	if h.total > 0 {
		h.rebase(h.newest)
	}
}

// rebase makes a sample of that time weigh 1. A clock that was set back by many half-lives makes
// what was measured before worthless.
func (h *Histogram) rebase(at time.Time) {
	halfLives := h.halfLives(at)
	factor := math.Exp2(-halfLives)
	if halfLives < 0 {
		factor = 0
	}
	h.total = 0
	for i := range h.weights {
		h.weights[i] *= float32(factor)
		h.total += float64(h.weights[i])
	}
	h.reference, h.newest = at, at
}

// Percentile returns the upper end of the bucket that holds this part of the weight, from 0 to 1,
// so that no more than the rest of the samples was higher. It returns 0 if there are none.
func (h *Histogram) Percentile(part float64) float64 {
	sum, least, wanted := 0.0, leastWeight*h.total, part*h.total
	found := -1
	for i, w := range h.weights {
		if float64(w) > least || w > 0 && part >= 1 {
			found = i
		}
		sum += float64(w)
		if found >= 0 && sum >= wanted {
			break
		}
	}
	if found < 0 {
		return 0
	}
	return min(h.scale.start(found+1), max(h.scale.Most, h.scale.start(1)))
}
