package metrics

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Every status can be scraped, and every sample is a number.
func TestAnyStatus(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := drawStatus(r)
		for _, f := range gather(t, s, rapid.Bool().Draw(r, "names")) {
			for _, m := range f.GetMetric() {
				for _, v := range values(m) {
					if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
						r.Errorf("%s is %v", f.GetName(), v)
					}
				}
			}
		}
	})
}

func values(m *dto.Metric) []float64 {
	if h := m.GetHistogram(); h != nil {
		last := uint64(0)
		for _, b := range h.GetBucket() {
			if b.GetCumulativeCount() < last {
				return []float64{-1}
			}
			last = b.GetCumulativeCount()
		}
		return []float64{h.GetSampleSum()}
	}
	return []float64{m.GetGauge().GetValue(), m.GetCounter().GetValue()}
}

type drawn struct{ *rapid.T }

func (d drawn) float() float64 {
	return rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0})).Draw(d.T, "float")
}
func (d drawn) milli() workload.MilliCPU { return workload.MilliCPU(rapid.Int64().Draw(d.T, "milli")) }
func (d drawn) bytes() int64             { return rapid.Int64().Draw(d.T, "bytes") }
func (d drawn) text() string             { return rapid.String().Draw(d.T, "text") }
func (d drawn) at() time.Time {
	return rapid.SampledFrom([]time.Time{{}, now()}).Draw(d.T, "at")
}
func (d drawn) count() int { return rapid.IntRange(-3, 5).Draw(d.T, "count") }

func (d drawn) pressure() status.PressureUsage {
	return status.PressureUsage{MeasuredAt: d.at(), CPUFraction: d.float(), MemoryFraction: d.float(), IOFraction: d.float()}
}

func (d drawn) strain() control.Strain {
	return control.Strain{CPUFraction: d.float(), MemoryFraction: d.float(), IOFraction: d.float(), RunDelayFraction: d.float(), ThrottledFraction: d.float()}
}

func drawStatus(r *rapid.T) *status.Status {
	d := drawn{r}
	s := &status.Status{
		Time: d.at(), StartedAt: d.at(), Mode: status.Mode(d.text()), Config: status.Config{Hash: strings.ToValidUTF8(d.text(), ""), LoadedAt: d.at(), Reloads: d.count()},
		Counters: status.Counters{Placed: d.count(), Drift: d.count()}, Runtime: status.Runtime{Name: d.text(), Version: "\xff"},
	}
	for i := range max(0, d.count()) {
		s.Pools = append(s.Pools, status.Pool{Name: fmt.Sprint("p", i), Requested: d.milli(), Load: &status.PoolLoad{
			MeasuredAt: d.at(), Usage: d.milli(), LoadFraction: d.float(), PressureFraction: d.float(), BandHighPercent: d.count(), BandLowPercent: d.count(), ShortCPUs: d.count(),
		}})
		s.Handlers = append(s.Handlers, status.Handler{Event: fmt.Sprint("e", i), Sum: time.Duration(d.bytes()),
			Counts: rapid.SliceOfN(rapid.Uint64Range(0, 1<<40), 0, 20).Draw(r, "counts")})
	}
	for range max(0, d.count()) {
		c := status.Container{
			Ref: rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"a/b/c", "a/b/c/d", "\xff\xfe/b/c", ""})).Draw(r, "ref"),
			ID:  d.text(), Class: workload.Class(rapid.IntRange(0, 5).Draw(r, "class")), Requested: d.milli(), Drift: d.count(),
		}
		if rapid.Bool().Draw(r, "used") {
			c.Usage = &status.Usage{
				CPU:    status.CPUUsage{MeasuredAt: d.at(), Usage: d.milli(), Limit: d.milli(), LoopLimit: d.milli(), ThrottledFraction: d.float()},
				Memory: status.MemoryUsage{MeasuredAt: d.at(), WorkingSetBytes: d.bytes(), RequestedBytes: d.bytes(), OOMKills: d.count()}, Pressure: d.pressure(), WaitingThreads: d.float(),
			}
		}
		s.Containers = append(s.Containers, c)
	}
	if rapid.Bool().Draw(r, "loop") {
		s.Loop = drawLoop(d)
	}
	return s
}

func drawLoop(d drawn) *status.Loop {
	l := &status.Loop{
		MeasuredAt: d.at(), Interval: time.Duration(d.bytes()),
		Node:    status.NodeUsage{CPU: status.CPUUsage{MeasuredAt: d.at(), Usage: d.milli()}, Memory: status.NodeMemory{MeasuredAt: d.at(), FreeBytes: d.bytes(), DirectReclaimPagesPerSecond: d.float()}, Pressure: d.pressure(), DiskUsedFraction: d.float()},
		Batch:   status.Batch{State: status.BatchState(d.text()), Known: true, Budget: d.milli(), Used: d.milli()},
		Memory:  status.BatchMemory{UsedBytes: d.bytes(), LimitBytes: d.bytes()},
		Offer:   control.Offer{Known: true, ShortTerm: control.Amount{CPU: d.milli(), MemoryBytes: d.bytes()}, FreeCPUs: []int{d.count(), d.count()}},
		Benefit: control.BenefitReport{RunCPUHours: d.float(), RunGiBHours: d.float(), Day: control.Day{UtilizationFraction: d.float(), KnownHours: d.float()}, SatisfactionFraction: d.float()},
	}
	for range max(0, d.count()) {
		l.Disturbed = append(l.Disturbed, control.Disturbance{Ref: rapid.SampledFrom([]string{"a/b", "a/c", "\xff/b", ""}).Draw(d.T, "pod"), Calm: d.strain(), Excess: d.strain()})
		l.Counts = append(l.Counts, status.Count{Count: d.count(), Decided: status.Decided{Controller: "windows", Action: rapid.SampledFrom([]string{"squeeze to 1%", "squeeze to 2%", "open"}).Draw(d.T, "action")}})
	}
	return l
}
