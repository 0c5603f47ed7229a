package sim

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/synth"
)

// A replay of days has, in each minute, the recorded mean, and the highest measurement for as long
// as it took.
func TestReplayOfDays(t *testing.T) {
	t.Parallel()
	m, err := synth.Machine("8 cores")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	mean := func(minute int) float64 { return (11*(1+(float64(minute)+0.5)/20) + 4) / 12 }
	track := recording.Track{Container: recording.Container{ID: "web", Ref: "shop/web-0/main", Class: workload.LS, Pool: "online", Request: 2000}}
	for minute := range 20 {
		track.Samples = append(track.Samples, recording.Sample{
			At: time.Duration(minute) * time.Minute, CPU: float32(mean(minute)), Peak: 4,
			Pressure: recording.Unknown, Throttled: recording.Unknown, Waiting: recording.Unknown, Anon: 1 << 28,
		})
	}
	r := &recording.Recording{Machine: m, Start: start, End: start.Add(20 * time.Minute), Interval: time.Minute, Tracks: []recording.Track{track}}
	s, err := ReplaySpan(r, Span{5 * time.Minute, 15 * time.Minute}, config.Default(), Service{2 * time.Millisecond, 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if s.Duration != 10*time.Minute || len(s.Pods) != 1 || s.Pods[0].End != 0 || s.Pods[0].Start != 0 {
		t.Fatalf("%+v", s)
	}
	load := newSource(s.Pods[0].Load, 1, "web")
	moved := false
	for minute := range 10 {
		sum, high, first := 0.0, 0, -1
		for second := range 60 {
			cpus := load.at(time.Duration(60*minute+second)*time.Second, 0, time.Second)
			if sum += cpus; cpus > 3.9 {
				high++
				if first < 0 {
					first = second
				}
			}
		}
		if want := mean(minute + 5); math.Abs(sum/60-want) > 0.01*want || high != 5 {
			t.Errorf("minute %d: a mean of %v for %v, and %d s at the peak", minute, sum/60, mean(minute+5), high)
		}
		moved = moved || first != 30
	}
	if !moved {
		t.Error("the peaks are not drawn")
	}
	result, err := Run(t.Context(), s, Suppression, 1)
	if err != nil || math.Abs(result.OnlineCPUs-(11*1.5+4)/12) > 0.05 {
		t.Errorf("%+v, %v", result, err)
	}
}
