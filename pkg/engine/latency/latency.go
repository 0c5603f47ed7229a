// Package latency counts how long the plugin takes to answer the runtime's requests, in
// histograms by the kind of request.
package latency

import (
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
)

// Event is a kind of request of the runtime's.
type Event int

// The events.
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

	kinds // how many there are
)

var eventNames = [...]string{
	"Synchronize", "CreateContainer", "PostCreateContainer", "StartContainer", "UpdateContainer", "PostUpdateContainer",
	"StopContainer", "RemoveContainer", "UpdatePodSandbox", "RemovePodSandbox",
}

// String is the event's name in NRI.
func (e Event) String() string { return eventNames[e] }

// Histograms count the answers to each kind of event by how long they took. Their methods may be
// called by several goroutines at once; they neither wait nor allocate.
type Histograms struct {
	bounds []time.Duration
	of     *[kinds]histogram
}

type histogram struct {
	counts []atomic.Uint64 // by bounds, and one above all
	sum    atomic.Int64    // ns
}

// New makes empty histograms.
func New() Histograms {
	h := Histograms{status.LatencyBounds(), new([kinds]histogram)}
	for i := range h.of {
		h.of[i].counts = make([]atomic.Uint64, len(h.bounds)+1)
	}
	return h
}

// Answered counts an event that came at the time began and has its answer now.
func (h *Histograms) Answered(e Event, began time.Time) {
	took := time.Since(began)
	at := 0
	for at < len(h.bounds) && took > h.bounds[at] {
		at++
	}
	h.of[e].counts[at].Add(1)
	h.of[e].sum.Add(int64(took))
}

// Status is what was counted so far, for each event.
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
