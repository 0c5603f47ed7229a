package selling

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// room is what a node says for schedulers' plugins; it knows no room if that is negative.
func room(milli int64) *nodereport.Scheduling {
	s := &nodereport.Scheduling{AllocatableMilliCPU: 31000, OvercommitRatio: 1.25}
	if milli >= 0 {
		s.RoomMilliCPU = &milli
	}
	return s
}

func TestSchedulingOfAStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status status.Scheduling
		room   int64 // -1 if it is not known
		known  bool
	}{
		"a room":                 {status.Scheduling{Allocatable: 31000, OvercommitRatio: 1.2504, Room: new(workload.MilliCPU(7))}, 7, true},
		"no room left":           {status.Scheduling{Allocatable: 31000, OvercommitRatio: 1.25, Room: new(workload.MilliCPU(0))}, 0, true},
		"no known room":          {status.Scheduling{Allocatable: 31000, OvercommitRatio: 1.25, RoomWhy: "overlap"}, -1, true},
		"a plugin without it":    {status.Scheduling{}, -1, false},
		"a room that cannot be":  {status.Scheduling{Allocatable: 31000, Room: new(workload.MilliCPU(-1))}, -1, false},
		"a ratio that cannot be": {status.Scheduling{Allocatable: 31000, OvercommitRatio: -1}, -1, false},
	} {
		s := acting()
		s.Scheduling = c.status
		r, err := NewReport(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Scheduling; (got != nil) != c.known || got != nil && ((got.RoomMilliCPU == nil) != (c.room < 0) || c.room >= 0 && *got.RoomMilliCPU != c.room || got.OvercommitRatio != 1.25 || got.AllocatableMilliCPU != 31000) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The report has the lowest room of the last 10 to 20 minutes, so that a scheduler can rely on it,
// and keeps it through the moment of a reload.
func TestLowestRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(measured(4000, 1500))
	says := func() int64 {
		r := w.seller.report(&w.in)
		if r.Scheduling == nil || r.Scheduling.AllocatableMilliCPU != 31000 || r.Scheduling.OvercommitRatio != 1.25 {
			t.Fatalf("it says %+v", r.Scheduling)
		}
		if r.Scheduling.RoomMilliCPU == nil {
			return -1
		}
		return *r.Scheduling.RoomMilliCPU
	}
	for _, step := range []struct {
		room  int64
		lasts time.Duration
		want  int64
	}{
		{-1, time.Minute, -1},
		{5000, time.Minute, 5000},
		{3000, time.Second, 3000},
		{6000, 10 * time.Minute, 3000},
		{6000, 11 * time.Minute, 6000},
		{-1, Silence - 2*time.Second, 6000},
		{7000, time.Second, 6000},
		{-1, Silence, -1},
		{7000, time.Second, 7000},
	} {
		w.in.Report.Scheduling = room(step.room)
		w.run(step.lasts)
		if got := says(); got != step.want {
			t.Errorf("after %v of %d it says %d, want %d", step.lasts, step.room, got, step.want)
		}
	}
}

// However the room and the overcommit change, a node publishes at the same times as without them.
func TestSchedulingCausesNoPublication(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		with, without := newWorld(measured(4000, 1500)), newWorld(measured(4000, 1500))
		for range rapid.IntRange(1, 10).Draw(t, "changes") {
			sellable, used := rapid.Int64Range(0, 9000).Draw(t, "sellable"), rapid.Int64Range(0, 9000).Draw(t, "used")
			for _, w := range []*world{with, without} {
				w.in.Report = measured(sellable, used)
			}
			for range rapid.IntRange(1, 30).Draw(t, "minutes") {
				with.in.Report.Scheduling = room(rapid.Int64Range(0, 60000).Draw(t, "room"))
				with.in.Report.Scheduling.OvercommitRatio = rapid.Float64Range(0, 9).Draw(t, "overcommit")
				for _, w := range []*world{with, without} {
					for range 6 {
						w.in.Now += Interval
						w.report(*w.in.Report)
						w.step()
					}
				}
			}
		}
		times := func(w *world) (all []time.Duration) {
			for _, s := range w.sent {
				all = append(all, s.at)
			}
			return all
		}
		if !slices.Equal(times(with), times(without)) {
			t.Fatalf("it published at %v, and without a room at %v", times(with), times(without))
		}
		if with.in.Object.Report.Scheduling == nil {
			t.Fatal("no publication has it")
		}
	})
}
