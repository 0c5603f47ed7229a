// Package latency measures how long the plugin takes to answer the runtime's requests, in a
// histogram for each kind of request.
package latency

import (
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
)

// Event is a kind of request from the runtime.
type Event int

// These are the kinds of requests.
const (
	Synchronize Event = iota
	Create
	PostCreate
	Start
	Update
	PostUpdate
	Stop
	Remove
	UpdatePod
	RemovePod

	kinds // number of kinds
)

var eventNames = [...]string{
	"Synchronize", "CreateContainer", "PostCreateContainer", "StartContainer", "UpdateContainer", "PostUpdateContainer",
	"StopContainer", "RemoveContainer", "UpdatePodSandbox", "RemovePodSandbox",
}

// String returns the event's name in NRI.
func (e Event) String() string { return eventNames[e] }

// Histograms count the answers to each kind of event by the time that they took. Goroutines may
// call the methods concurrently; the methods neither wait nor allocate.
type Histograms struct {
	bounds []time.Duration
	of     *[kinds]histogram
}

type histogram struct {
	counts []atomic.Uint64 // one per bound, and one for all longer times
	sum    atomic.Int64    // in nanoseconds
}

// New makes empty histograms.
func New() Histograms {
	h := Histograms{status.LatencyBounds(), new([kinds]histogram)}
	for i := range h.of {
		h.of[i].counts = make([]atomic.Uint64, len(h.bounds)+1)
	}
	return h
}

// Answered counts an event that arrived at the time began and has just been answered.
func (h *Histograms) Answered(e Event, began time.Time) {
	took := time.Since(began)
	at := 0
	for at < len(h.bounds) && took > h.bounds[at] {
		at++
	}
	h.of[e].counts[at].Add(1)
	h.of[e].sum.Add(int64(took))
}

// Status returns the counts since the start, for each kind of event.
func (h *Histograms) Status() []status.Handler {
	all := make([]status.Handler, kinds)
	counts := make([]uint64, int(kinds)*(len(h.bounds)+1))
	for e := range kinds {
		from := &h.of[e]
		all[e] = status.Handler{Event: e.String(), Sum: time.Duration(from.sum.Load())}
		all[e].Counts, counts = counts[:len(from.counts):len(from.counts)], counts[len(from.counts):]
		for i := range from.counts {
			all[e].Counts[i] = from.counts[i].Load()
		}
	}
	return all
}
