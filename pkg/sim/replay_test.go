package sim

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/synth"
)

// use is what a recorded container uses at a time since the recording's start, in CPUs.
type use func(time.Duration) float64

// recordDays returns a recording of days of containers that are named after their class and pool,
// as "web LS critical".
func recordDays(t testing.TB, machine string, lasts time.Duration, containers map[string]use) *recording.Recording {
	t.Helper()
	m, err := synth.Machine(machine)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	d, err := recording.NewDays(&out, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var list []recording.Container
	for name := range containers {
		words := strings.Fields(name)
		class, err := workload.ParseClass(words[1])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, recording.Container{ID: words[0], Ref: "shop/" + words[0] + "-0/main", Class: class, Pool: words[2], Request: 2000})
	}
	begin := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	s := &observe.Snapshot{}
	for at := time.Duration(0); at < lasts; at += recording.PeakTime {
		s.Now = begin.Add(at)
		s.Containers = s.Containers[:0]
		for name, used := range containers {
			s.Containers = append(s.Containers, observe.Container{
				ID:     strings.Fields(name)[0],
				CPU:    observe.ContainerCPU{At: s.Now, Interval: recording.PeakTime, Usage: workload.MilliCPU(1000 * used(at))},
				Memory: observe.ContainerMemory{At: s.Now, Anon: 1 << 28, WorkingSet: 1 << 28},
			})
		}
		if err := d.Record(m, list, s); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := recording.Read(&out)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A replay of days has, in each minute, the recorded mean, and the highest measurement for as long
// as it took.
func TestReplayOfDays(t *testing.T) {
	t.Parallel()
	r := recordDays(t, "8 cores", 20*time.Minute, map[string]use{"web LS online": func(at time.Duration) float64 {
		if at%time.Minute == 30*time.Second {
			return 4
		}
		return 1 + at.Minutes()/20
	}})
	s, err := replay(r, span{5 * time.Minute, 15 * time.Minute}, config.Default(), Service{2 * time.Millisecond, 20 * time.Millisecond})
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
		want := (11*(1+(float64(minute)+5.5)/20) + 4) / 12
		if math.Abs(sum/60-want) > 0.03*want || high != 5 {
			t.Errorf("minute %d: a mean of %v for %v, and %d s at the peak", minute, sum/60, want, high)
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
