package latency

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
)

func TestHistograms(t *testing.T) {
	t.Parallel()
	h, now := New(), time.Now()
	h.Answered(Create, now)
	h.Answered(Create, now.Add(-3*time.Millisecond))
	h.Answered(RemovePod, now.Add(-time.Hour))
	all, bounds := h.Status(), status.LatencyBounds()
	if len(all) != len(eventNames) {
		t.Errorf("%d events, want %d", len(all), len(eventNames))
	}
	for _, e := range all {
		if len(e.Counts) != len(bounds)+1 {
			t.Fatalf("%s has %d counts for %d bounds", e.Event, len(e.Counts), len(bounds))
		}
		sum := uint64(0)
		for _, count := range e.Counts {
			sum += count
		}
		above, want := e.Counts[len(bounds)], map[string]uint64{"CreateContainer": 2, "RemovePodSandbox": 1}[e.Event]
		if sum != want || e.Event == "CreateContainer" && (e.Sum < 3*time.Millisecond || above > 0) ||
			e.Event == "RemovePodSandbox" && (e.Sum < time.Hour || above != 1) {
			t.Errorf("%s: %v, %v in all, want %d answers", e.Event, e.Counts, e.Sum, want)
		}
	}
}

func TestAnsweredDoesNotAllocate(t *testing.T) { // not parallel, because it counts the allocations of the process
	h, now := New(), time.Now()
	if got := testing.AllocsPerRun(100, func() { h.Answered(Start, now) }); got > 0 {
		t.Errorf("%v allocations", got)
	}
}
