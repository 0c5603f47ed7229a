package control

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// slots is the number of parts into which a window divides its time. Its maximum covers the
// last span and up to one part more.
const slots = 60

// window is the maximum of the values in the last span of time. Its memory does not depend on
// the number of values.
type window struct {
	width time.Duration // of a slot
	start time.Time     // start of the first slot; zero if the window is empty
	at    int64         // slot of the newest value, counted from start
	most  [slots + 1]workload.MilliCPU
}

func newWindow(span time.Duration) window {
	return window{width: max(span/slots, time.Millisecond)}
}

// reset empties the window.
func (w *window) reset() { *w = window{width: w.width} }

func (w *window) add(now time.Time, value workload.MilliCPU) {
	if w.start.IsZero() || now.Before(w.start) {
		w.reset()
		w.start = now
	}
	k := int64(now.Sub(w.start) / w.width)
	for gone := min(k-w.at, int64(len(w.most))); gone > 0; gone-- {
		w.most[(k-gone+1)%int64(len(w.most))] = 0
	}
	w.at = max(w.at, k)
	slot := &w.most[w.at%int64(len(w.most))]
	*slot = max(*slot, value)
}

func (w *window) max() workload.MilliCPU {
	var most workload.MilliCPU
	for _, m := range w.most {
		most = max(most, m)
	}
	return most
}

// full reports whether the window covers its whole span.
func (w *window) full(now time.Time) bool {
	return !w.start.IsZero() && now.Sub(w.start) >= slots*w.width
}
