package observe

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Latency is a quantile of a pod's response times over a window.
type Latency struct {
	From, At time.Time // the window; zero before the first
	Seconds  float64   // the quantile of the response times
	Requests float64   // that were answered in the window
	Slow     float64   // that took longer than the objective's bound
	Problem  string    // why the newest page could not be read; "" if it was
}

// Histogram counts a pod's requests since some start by their response times, as Prometheus does.
type Histogram struct {
	UpTo   []float64 // upper bounds of the buckets in seconds, ascending; the last is +Inf
	Counts []float64 // requests of at most that time
}

// The constants of windows. The shortest window that has enough requests says soonest what a change has
// brought.
const (
	longestWindow  = time.Minute
	requestsBeyond = 10 // that a window has beyond the quantile if they suffice
)

// The limits of histograms. Beyond them, computing overflows to infinity, which no status can hold.
const (
	longestBucket = 1e6     // seconds
	mostRequests  = 1 << 53 // up to which a float64 counts one by one
)

// errNoHistogram reports counts that no histogram has.
var errNoHistogram = errors.New("the histogram's buckets must end at times of 0 to 1,000,000 s, must end at +Inf and have counts that do not fall")

// Check reports whether the histogram can say whether a bound, in seconds, is kept.
func (h *Histogram) Check(bound float64) error {
	last := len(h.UpTo) - 1
	if last < 1 || len(h.Counts) != last+1 || !math.IsInf(h.UpTo[last], 1) {
		return errNoHistogram
	}
	for i := range h.UpTo {
		count := h.Counts[i]
		if !(h.UpTo[i] >= 0 && (h.UpTo[i] <= longestBucket || i == last)) || !(count >= 0 && count <= mostRequests) || i > 0 && (h.UpTo[i] <= h.UpTo[i-1] || count < h.Counts[i-1]) {
			return errNoHistogram
		}
	}
	if largest := h.UpTo[last-1]; largest <= bound { // no quantile would be above the bound
		return fmt.Errorf("the histogram's largest bucket ends at %v s, not beyond the bound of %v s: it needs a bucket that ends at the bound, and a larger one", largest, bound)
	}
	return nil
}

// since returns what was counted after an earlier histogram, and false if the counts do not continue it,
// because the process has restarted.
func (h *Histogram) since(earlier *Histogram) (Histogram, bool) {
	if !slices.Equal(h.UpTo, earlier.UpTo) {
		return Histogram{}, false
	}
	between := Histogram{h.UpTo, make([]float64, len(h.Counts))}
	for i := range h.Counts {
		between.Counts[i] = h.Counts[i] - earlier.Counts[i]
		if between.Counts[i] < 0 {
			return Histogram{}, false
		}
		if i > 0 { // several series were read at different times
			between.Counts[i] = max(between.Counts[i], between.Counts[i-1])
		}
	}
	return between, true
}

func (h *Histogram) requests() float64 { return h.Counts[len(h.Counts)-1] }

// quantile returns the response time that a share of the requests does not exceed, as Prometheus'
// histogram_quantile computes it: linearly within a bucket, and the largest bucket's end for what is
// beyond. It is 0 without requests.
func (h *Histogram) quantile(share float64) float64 {
	rank := share * h.requests()
	i := 0
	for i < len(h.Counts)-1 && h.Counts[i] < rank {
		i++
	}
	switch below := h.countBelow(i); {
	case rank == 0:
		return 0
	case math.IsInf(h.UpTo[i], 1):
		return h.UpTo[i-1]
	default:
		return h.start(i) + (h.UpTo[i]-h.start(i))*(rank-below)/(h.Counts[i]-below)
	}
}

// slower returns how many requests took longer than a time, linearly within a bucket.
func (h *Histogram) slower(than float64) float64 {
	i := 0
	for h.UpTo[i] < than {
		i++
	}
	if math.IsInf(h.UpTo[i], 1) {
		return h.requests() - h.countBelow(i)
	}
	below := h.countBelow(i)
	return h.requests() - below - (h.Counts[i]-below)*(than-h.start(i))/(h.UpTo[i]-h.start(i))
}

// countBelow and start describe where a bucket begins.
func (h *Histogram) countBelow(i int) float64 {
	if i == 0 {
		return 0
	}
	return h.Counts[i-1]
}

func (h *Histogram) start(i int) float64 {
	if i == 0 {
		return min(0, h.UpTo[0])
	}
	return h.UpTo[i-1]
}

// LatencyMeter turns the histograms that a pod serves one after another into a latency. The zero value
// has seen none.
type LatencyMeter struct {
	pages []page // of the longest window, the oldest first
}

type page struct {
	at time.Time
	h  Histogram
}

// Add adds a histogram that has passed Check. Counts that fell begin anew, and so do those after a gap: a
// window would be longer than the longest, and the process may have restarted unseen.
func (m *LatencyMeter) Add(at time.Time, h Histogram) {
	if n := len(m.pages); n > 0 {
		newest := &m.pages[n-1]
		if _, continues := h.since(&newest.h); !continues || !at.After(newest.at) || at.Sub(newest.at) > longestWindow {
			m.pages = m.pages[:0]
		}
	}
	m.pages = append(m.pages, page{at, h})
	for len(m.pages) > 2 && at.Sub(m.pages[1].at) >= longestWindow {
		m.pages = slices.Delete(m.pages, 0, 1)
	}
}

// Latency returns the quantile and the requests above the bound, which is in seconds. There is none
// before the second histogram.
func (m *LatencyMeter) Latency(share, bound float64) (l Latency) {
	newest := len(m.pages) - 1
	for i := newest - 1; i >= 0; i-- {
		between, _ := m.pages[newest].h.since(&m.pages[i].h)
		requests := between.requests()
		l = Latency{From: m.pages[i].at, At: m.pages[newest].at, Seconds: between.quantile(share), Requests: requests, Slow: between.slower(bound)}
		if requests*(1-share) >= requestsBeyond {
			break
		}
	}
	if newest > 0 && l.Requests == 0 { // the shortest window says the same, and sooner
		l.From = m.pages[newest-1].at
	}
	return l
}
