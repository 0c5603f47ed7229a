package controlloop

import (
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
)

func TestCPULoad(t *testing.T) {
	t.Parallel()
	got := cpuLoad([]observe.CPU{{Known: true}, {}, {Busy: 0.12345, Known: true}, {Busy: 1, Known: true}})
	if want := []float64{0, -1, 12.3, 100}; !slices.Equal(got, want) || cpuLoad(nil) != nil {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestBatchWord(t *testing.T) {
	t.Parallel()
	for want, b := range map[status.BatchState]control.BatchState{
		status.BatchOpen: {}, status.BatchNoNew: {Closed: true}, status.BatchSqueezed: {Squeeze: true, Percent: 20},
		status.BatchClosed: {Closed: true, Squeeze: true}, status.BatchEvicting: {Closed: true, Squeeze: true, Evict: true},
	} {
		if got := batchWord(&b); got != want {
			t.Errorf("%+v: %s, want %s", b, got, want)
		}
	}
}
