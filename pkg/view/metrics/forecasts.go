package metrics

import (
	"strings"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func forecasts() []metric {
	byResource, byHorizon := []string{"object", "resource"}, []string{"object", "horizon"}
	return []metric{
		{"sluice_forecast_peak_cpus", "Expected peak of the CPU that all but batch work use (object node), a pool, or the pods of a class, in the next ten minutes (horizon 10m) or day (24h).", gauge, byHorizon,
			forecastOf(control.PeakOfCPU, func(f *control.PeakForecast, out *sink) {
				out.put(cpus(f.Soon.CPU), f.Object, "10m")
				out.put(cpus(f.Day.CPU), f.Object, "24h")
			})},
		{"sluice_forecast_peak_memory_bytes", "Expected peak of the memory that all but batch work or the pods of a class use, by horizon as sluice_forecast_peak_cpus.", gauge, byHorizon,
			forecastOf(control.PeakOfMemory, func(f *control.PeakForecast, out *sink) {
				out.put(float64(f.Soon.MemoryBytes), f.Object, "10m")
				out.put(float64(f.Day.MemoryBytes), f.Object, "24h")
			})},
		{"sluice_forecast_last_hour_cpus", "Peak of the CPU in the latest whole hour: what was forecast (kind forecast), and what came (peak).", gauge, []string{"object", "kind"},
			forecastOf(control.PeakOfCPU, func(f *control.PeakForecast, out *sink) {
				if f.LastHourForecast.CPU > 0 {
					out.put(cpus(f.LastHourForecast.CPU), f.Object, "forecast")
					out.put(cpus(f.LastHourPeak.CPU), f.Object, "peak")
				}
			})},
		{"sluice_forecast_last_hour_memory_bytes", "Peak of the memory in the latest whole hour, by kind as sluice_forecast_last_hour_cpus.", gauge, []string{"object", "kind"},
			forecastOf(control.PeakOfMemory, func(f *control.PeakForecast, out *sink) {
				if f.LastHourForecast.MemoryBytes > 0 {
					out.put(float64(f.LastHourForecast.MemoryBytes), f.Object, "forecast")
					out.put(float64(f.LastHourPeak.MemoryBytes), f.Object, "peak")
				}
			})},
		{"sluice_forecast_confidence_ratio", "Share of the last days' windows of ten minutes whose peak was no higher than forecast.", gauge, byResource,
			forecastOf("", func(f *control.PeakForecast, out *sink) { out.put(f.ConfidenceFraction, f.Object, string(f.Resource)) })},
		{"sluice_forecast_trusted", "1 if decisions may count with the forecast.", gauge, byResource,
			forecastOf("", func(f *control.PeakForecast, out *sink) { out.put(truth(f.Trusted), f.Object, string(f.Resource)) })},
		{"sluice_notices_total", "Notices to batch work by forecasts: given, kept (the squeeze came while the notice held), false (withdrawn without).", counter, []string{"result"},
			loopSamples(func(l *status.Loop, out *sink) {
				out.put(float64(l.Notices.Counts.Given), "given")
				out.put(float64(l.Notices.Counts.Kept), "kept")
				out.put(float64(l.Notices.Counts.False), "false")
			})},
		{"sluice_notice", "1 while batch work has a notice of that kind, for that cause: forecast, window or switch.", gauge, []string{"kind", "cause"},
			loopSamples(func(l *status.Loop, out *sink) {
				if n := l.Notices.Active; n != nil {
					out.put(1, string(n.Kind), string(n.Cause))
				}
			})},
	}
}

// overAsks returns the metrics of workloads that request far more than they are expected to use.
func overAsks() []metric {
	of := func(value func(*control.PeakForecast) workload.MilliCPU) func(*scrape, *sink) {
		return loopSamples(func(l *status.Loop, out *sink) {
			for i := range l.Forecasts {
				if f := &l.Forecasts[i]; f.Requested.CPU > 0 {
					out.put(cpus(value(f)), strings.TrimPrefix(f.Object, "workload "))
				}
			}
		})
	}
	return []metric{
		{"sluice_overask_requested_cpus", "CPU that the pods of a workload on this node request, if that is at least three times its expected peak of the next day.", gauge, []string{"workload"},
			of(func(f *control.PeakForecast) workload.MilliCPU { return f.Requested.CPU })},
		{"sluice_overask_peak_cpus", "Expected peak of the next day of a workload that has sluice_overask_requested_cpus.", gauge, []string{"workload"},
			of(func(f *control.PeakForecast) workload.MilliCPU { return f.Day.CPU })},
	}
}

// forecastOf returns the samples of the forecasts of a resource, or of both if it is empty, without
// those of workloads.
func forecastOf(resource control.PeakResource, put func(*control.PeakForecast, *sink)) func(*scrape, *sink) {
	return loopSamples(func(l *status.Loop, out *sink) {
		for i := range l.Forecasts {
			if f := &l.Forecasts[i]; f.Requested.CPU == 0 && (resource == "" || f.Resource == resource) {
				put(f, out)
			}
		}
	})
}
