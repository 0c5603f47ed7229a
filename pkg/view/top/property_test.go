package top

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// drawStatus draws any status, also of a plugin with wrong values everywhere.
func drawStatus(t *rapid.T) *status.Status {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "\x1b[2J\x1b]0;owned\a", "a/b/c", strings.Repeat("long/", 60), "\u202e中\u0301"}))
	share := rapid.OneOf(rapid.Float64Range(-1, 2), rapid.SampledFrom([]float64{0, 1, 1e300, -1e300, math.NaN(), math.Inf(1)}))
	milli := rapid.Custom(func(t *rapid.T) workload.MilliCPU { return workload.MilliCPU(rapid.Int64().Draw(t, "milli")) })
	set := rapid.Custom(func(t *rapid.T) cpuset.Set {
		return cpuset.Of(rapid.SliceOfN(rapid.IntRange(0, cpuset.Max-1), 0, 40).Draw(t, "cpus")...)
	})
	at := time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "time"), 0).UTC()
	s := &status.Status{
		Version: text.Draw(t, "version"), Mode: status.Mode(text.Draw(t, "mode")), Why: text.Draw(t, "reason"), Time: at,
		Runtime: status.Runtime{Connected: rapid.Bool().Draw(t, "connected"), Name: text.Draw(t, "runtime")},
		Machine: status.Machine{Online: set.Draw(t, "online"), Pinned: set.Draw(t, "pinned"), Reserved: set.Draw(t, "reserved"), System: set.Draw(t, "system"), External: set.Draw(t, "external")},
	}
	for range rapid.IntRange(0, 4).Draw(t, "pools") {
		p := status.Pool{Name: text.Draw(t, "pool"), CPUs: set.Draw(t, "pool's"), Containers: rapid.Int().Draw(t, "count")}
		if rapid.Bool().Draw(t, "has load") {
			p.Load = &status.PoolLoad{MeasuredAt: at, Usage: milli.Draw(t, "usage"), LoadFraction: share.Draw(t, "load"), PressureFraction: share.Draw(t, "pressure"),
				BandLowPercent: rapid.Int().Draw(t, "low"), BandHighPercent: rapid.Int().Draw(t, "high"), ShortCPUs: rapid.IntRange(0, 3).Draw(t, "short"), Small: true}
		}
		s.Pools = append(s.Pools, p)
	}
	for range rapid.IntRange(0, 8).Draw(t, "containers") {
		c := status.Container{Ref: text.Draw(t, "ref"), Pool: text.Draw(t, "pool"), Class: workload.Class(rapid.IntRange(0, 5).Draw(t, "class")), CPUs: set.Draw(t, "cpus")}
		if rapid.Bool().Draw(t, "has usage") {
			c.Usage = &status.Usage{
				CPU:      status.CPUUsage{MeasuredAt: at, Usage: milli.Draw(t, "usage"), Limit: milli.Draw(t, "limit"), ThrottledFraction: share.Draw(t, "throttled")},
				Memory:   status.MemoryUsage{MeasuredAt: at, WorkingSetBytes: rapid.Int64().Draw(t, "memory")},
				Pressure: status.PressureUsage{MeasuredAt: at, CPUFraction: share.Draw(t, "pressure")},
			}
		}
		s.Containers = append(s.Containers, c)
	}
	if rapid.Bool().Draw(t, "neighbour") {
		s.Neighbours = []peers.Neighbour{{Kind: peers.Koordlet, Response: text.Draw(t, "response")}}
		s.Contested = []string{text.Draw(t, "contested")}
	}
	if rapid.Bool().Draw(t, "has loop") {
		s.Loop = &status.Loop{
			Mode: control.Mode(text.Draw(t, "mode")), MeasuredAt: at, Problem: text.Draw(t, "problem"),
			Node: status.NodeUsage{
				CPU:    status.CPUUsage{MeasuredAt: at, Usage: milli.Draw(t, "usage"), Limit: milli.Draw(t, "limit")},
				Memory: status.NodeMemory{MeasuredAt: at, TotalBytes: rapid.Int64().Draw(t, "total")}, Pressure: status.PressureUsage{MeasuredAt: at, IOFraction: share.Draw(t, "io")},
				CPULoadPercent: rapid.SliceOfN(share, 0, 8).Draw(t, "load"),
			},
			Batch:     status.Batch{State: status.BatchState(text.Draw(t, "state")), Why: text.Draw(t, "why"), Known: rapid.Bool().Draw(t, "known"), Budget: milli.Draw(t, "budget"), Mechanism: status.Mechanism(text.Draw(t, "mechanism"))},
			Memory:    status.BatchMemory{UsedBytes: rapid.Int64().Draw(t, "held"), GoalBytes: 1},
			Refusal:   &status.Refusal{NewBatch: rapid.Bool().Draw(t, "new"), EndsAt: at},
			Disturbed: []control.Disturbance{{Ref: text.Draw(t, "disturbed"), Excess: control.Strain{CPUFraction: share.Draw(t, "excess")}, Suspects: []control.Suspect{{Ref: text.Draw(t, "suspect")}}, Objective: &control.Objective{Metric: text.Draw(t, "metric"), BrokenAt: at, Seconds: share.Draw(t, "seconds")}, Bounds: []control.Bound{{Kind: control.BoundKind(text.Draw(t, "bound")), BrokenAt: at, WaitingFraction: share.Draw(t, "waiting")}}}},
			Advice:    []control.Advice{{Object: text.Draw(t, "object"), Text: text.Draw(t, "advice")}},
			Decisions: []status.Decision{{Time: at, Mode: control.Preview, Decision: control.Decision{Object: text.Draw(t, "object"), Action: text.Draw(t, "action"), To: text.Draw(t, "to"), Why: text.Draw(t, "why")}}},
		}
	}
	return s
}

// For every status, no line is wider and no frame higher than the terminal, the output contains
// only ASCII and the frame's own colours, and without colours it contains the same text.
func TestAnyFrameKeepsToTheTerminal(t *testing.T) {
	t.Parallel()
	m := machine(t, middle)
	colours := regexp.MustCompile(`\x1b\[[0-9;]*m`)
	control := regexp.MustCompile(`[^ -~\n]`)
	rapid.Check(t, func(t *rapid.T) {
		seen := State{Status: drawStatus(t)}
		if rapid.Bool().Draw(t, "machine") {
			seen.Machine = m
		}
		o := Options{
			Width: rapid.IntRange(0, 220).Draw(t, "width"), Height: rapid.IntRange(0, 60).Draw(t, "height"), First: rapid.IntRange(0, 10).Draw(t, "first"),
			Sort: rapid.SampledFrom([]Order{"", ByCPU, ByThrottled, ByMemory}).Draw(t, "sort"), Problem: rapid.String().Draw(t, "problem"),
			Help: rapid.Bool().Draw(t, "help"), Live: rapid.Bool().Draw(t, "live"), Paused: rapid.Bool().Draw(t, "paused"),
		}
		text := Render(seen, o)
		if bad := control.FindString(text); bad != "" {
			t.Fatalf("%q reaches the terminal in\n%s", bad, text)
		}
		lines := strings.Split(text, "\n")
		if o.Height > 0 && len(lines) > o.Height {
			t.Fatalf("%d lines of %d", len(lines), o.Height)
		}
		for _, line := range lines {
			if len(line) > o.Width {
				t.Fatalf("%d columns of %d: %s", len(line), o.Width, line)
			}
		}
		o.Colour = true
		if coloured := Render(seen, o); colours.ReplaceAllString(coloured, "") != text {
			t.Fatalf("with colours it tells something else:\n%s\nwithout:\n%s", coloured, text)
		}
	})
}

// Every online CPU has exactly one owner.
func TestOwnersDivideTheMachine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawStatus(t)
		var all cpuset.Set
		letters := map[byte]bool{}
		for _, o := range owners(s) {
			if all.Overlaps(o.cpus) || letters[o.letter] && o.letter != '?' {
				t.Fatalf("%c %s: %s", o.letter, o.name, o.cpus)
			}
			letters[o.letter] = true
			all = cpuset.Union(all, o.cpus)
		}
		if all != s.Machine.Online {
			t.Fatalf("%s have an owner, %s are online", all, s.Machine.Online)
		}
	})
}

// Each form of the display shows each CPU once, wherever the lines break.
func TestEveryCPUIsDrawnOnce(t *testing.T) {
	t.Parallel()
	for _, text := range []string{small, middle, large, "4 packages 2 nodes 3 cores 2 threads"} {
		seen := scene(t, text, 6)
		for _, used := range forms() {
			for _, width := range []int{20, 31, 80, 200} {
				f := frame{Options: Options{Width: width}, State: seen}
				drawn := 0
				for _, line := range f.cells(f.places(), owners(seen.Status), used) {
					drawn += len(regexp.MustCompile(`[a-zA-Z-]`).FindAllString(regexp.MustCompile(`P\d N\d`).ReplaceAllString(line, ""), -1))
				}
				if want := seen.Machine.Online.Size(); drawn != want {
					t.Errorf("%s at %d columns, %+v: %d of %d CPUs", text, width, used, drawn, want)
				}
			}
		}
	}
}

func BenchmarkRender(b *testing.B) {
	for name, seen := range map[string]State{"64 CPUs 12 containers": scene(b, middle, 12), "512 CPUs 500 containers": scene(b, large, 500)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Render(seen, Options{Width: 80, Height: 24, Colour: true, Live: true})
			}
		})
	}
}
