package agent

import (
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
)

// Event is a kind of request of the runtime's.
type Event int

// The events.
const (
	SynchronizeEvent Event = iota
	CreateEvent
	PostCreateEvent
	StartEvent
	UpdateEvent
	PostUpdateEvent
	StopEvent
	RemoveEvent
	UpdatePodEvent
	RemovePodEvent

	kinds // how many there are
)

var eventNames = [...]string{
	"Synchronize", "CreateContainer", "PostCreateContainer", "StartContainer", "UpdateContainer", "PostUpdateContainer",
	"StopContainer", "RemoveContainer", "UpdatePodSandbox", "RemovePodSandbox",
}

func (e Event) String() string { return eventNames[e] }

// latencies count how long events took. Handlers run beside the loop and each other:
// they neither wait nor allocate here.
type latencies struct {
	bounds []time.Duration
	of     *[kinds]latency
}

type latency struct {
	counts []atomic.Uint64 // by bounds, and one above all
	sum    atomic.Int64    // ns
}

func newLatencies() latencies {
	l := latencies{status.LatencyBounds(), new([kinds]latency)}
	for i := range l.of {
		l.of[i].counts = make([]atomic.Uint64, len(l.bounds)+1)
	}
	return l
}

// Answered notes that an event that came at that time has its answer.
func (a *Agent) Answered(e Event, began time.Time) {
	took := time.Since(began)
	l := &a.latencies.of[e]
	at := 0
	for at < len(a.latencies.bounds) && took > a.latencies.bounds[at] {
		at++
	}
	l.counts[at].Add(1)
	l.sum.Add(int64(took))
}

func (l *latencies) status() []status.Handler {
	all := make([]status.Handler, kinds)
	counts := make([]uint64, int(kinds)*(len(l.bounds)+1))
	for e := range kinds {
		from := &l.of[e]
		all[e] = status.Handler{Event: e.String(), Sum: time.Duration(from.sum.Load())}
		all[e].Counts, counts = counts[:len(from.counts):len(from.counts)], counts[len(from.counts):]
		for i := range from.counts {
			all[e].Counts[i] = from.counts[i].Load()
		}
	}
	return all
}
