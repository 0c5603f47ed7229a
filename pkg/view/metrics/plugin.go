package metrics

import (
	"strings"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
)

func decisions() []metric {
	return []metric{
		{"sluice_decisions_total", "Decisions of the loop, counted at their first step. The cause is that of an eviction, or for a demotion the pool that lacked CPUs.", counter, []string{"controller", "action", "cause", "mode"},
			loopSamples(func(l *status.Loop, out *sink) {
				sums := map[status.Decided]int{}
				for i := range l.Counts {
					d := l.Counts[i].Decided
					d.Action, _, _ = strings.Cut(d.Action, " to ") // "squeeze to 30%" is one of a hundred
					sums[d] += l.Counts[i].Count
				}
				for d, n := range sums {
					out.put(float64(n), d.Controller, d.Action, d.Cause, string(d.Mode))
				}
			})},
		{"sluice_evictions_total", "Pods chosen for eviction: evicted, failed, refused by the cluster for the moment, or only reported.", counter, []string{"result"},
			loopSamples(func(l *status.Loop, out *sink) {
				out.put(float64(l.Evictions.Evicted), "evicted")
				out.put(float64(l.Evictions.Failed), "failed")
				out.put(float64(l.Evictions.Refused), "refused")
				out.put(float64(l.Evictions.Reported), "told")
			})},
		{"sluice_controller_mode", "1 for the controller's mode in force.", gauge, []string{"controller", "mode"},
			func(s *scrape, out *sink) {
				if s.Loop == nil {
					return
				}
				for i := range s.Loop.Controllers {
					c := &s.Loop.Controllers[i]
					for _, mode := range []control.Mode{control.On, control.Preview, control.Off} {
						out.put(truth(c.Mode == mode), c.Name, string(mode))
					}
				}
			}},
		{"sluice_advice", "Pieces of advice in sluice status.", gauge, nil,
			oneLooked(func(l *status.Loop) float64 { return float64(len(l.Advice)) })},
		{"sluice_loop_problem", "1 if the loop does not run; sluice status shows why.", gauge, nil, ofLoop(func(l *status.Loop, out *sink) { out.put(truth(l.Problem != "")) })},
		{"sluice_loop_interval_seconds", "The configured control.interval.", gauge, nil, ofLoop(func(l *status.Loop, out *sink) { out.put(l.Interval.Seconds()) })},
		{"sluice_loop_last_look_timestamp_seconds", "Time of the loop's latest measurement.", gauge, nil, ofLoop(func(l *status.Loop, out *sink) { out.putTime(l.MeasuredAt) })},
		{"sluice_sampler_failures_total", "Failed measurements, by what could not be read.", counter, []string{"what"},
			ofLoop(func(l *status.Loop, out *sink) {
				for i := range l.Failures {
					out.put(float64(l.Failures[i].Count), l.Failures[i].What)
				}
			})},
		{"sluice_audit_dropped_total", "Decisions that the audit trail lost.", counter, nil, ofLoop(func(l *status.Loop, out *sink) { out.put(float64(l.DroppedAuditEntries)) })},
	}
}

// ofLoop wraps samples of the control loop that exist before its first measurement.
func ofLoop(samples func(*status.Loop, *sink)) func(*scrape, *sink) {
	return func(s *scrape, out *sink) {
		if s.Loop != nil {
			samples(s.Loop, out)
		}
	}
}

func count(of func(*status.Counters) int) func(*scrape, *sink) {
	return one(func(s *status.Status) float64 { return float64(of(&s.Counters)) })
}

func settings() []metric {
	return []metric{
		{"sluice_containers_placed_total", "Times a container was admitted.", counter, nil, count(func(c *status.Counters) int { return c.Placed })},
		{"sluice_containers_ran_refused_total", "Containers that CRI-O ran although their start was refused.", counter, nil, count(func(c *status.Counters) int { return c.RanRefused })},
		{"sluice_containers_refused_total", "Times Sluice refused a container, counting each of the kubelet's attempts.", counter, nil, count(func(c *status.Counters) int { return c.Refused })},
		{"sluice_containers_resized_total", "Resizes carried out.", counter, nil, count(func(c *status.Counters) int { return c.Resized })},
		{"sluice_resizes_refused_total", "Resizes refused, counting repeated attempts once.", counter, nil, count(func(c *status.Counters) int { return c.ResizesRefused })},
		{"sluice_drift_repairs_total", "Repairs of settings that another program changed.", counter, nil, count(func(c *status.Counters) int { return c.Drift })},
		{"sluice_contested_settings", "Settings that another program keeps changing, so that repairs wait.", gauge, nil,
			one(func(s *status.Status) float64 { return float64(len(s.Contested)) })},
		{"sluice_unset_settings", "Settings that do not have the wanted value in the kernel.", gauge, []string{"setting"},
			func(s *scrape, out *sink) {
				sums := map[string]int{}
				for i := range s.Containers {
					for k := range s.Containers[i].Settings {
						if kernel := &s.Containers[i].Settings[k]; kernel.Problem != "" {
							sums[kernel.Knob]++
						}
					}
				}
				for setting, n := range sums {
					out.put(float64(n), setting)
				}
			}},
		{"sluice_forbidden_kills_total", "Kills by the kernel of batch work that might have held more, and of services while batch work held memory.", counter, []string{"of"},
			func(s *scrape, out *sink) {
				out.put(float64(s.Counters.BatchKills), "batch")
				out.put(float64(s.Counters.ServiceKills), "services")
			}},
		{"sluice_write_errors_total", "Writes of settings that the kernel refused.", counter, nil, count(func(c *status.Counters) int { return c.WriteErrors })},
		{"sluice_knob_errors_total", "Writes of settings that the kernel refused, by setting and kernel error.", counter, []string{"knob", "errno"},
			func(s *scrape, out *sink) {
				for i := range s.Errors {
					out.put(float64(s.Errors[i].Count), s.Errors[i].Knob, s.Errors[i].Errno)
				}
			}},
		{"sluice_feature_supported", "1 if this node has the feature, 0 if it lacks it.", gauge, []string{"feature"},
			func(s *scrape, out *sink) {
				for i := range s.Features {
					switch f := &s.Features[i]; f.State {
					case status.FeatureSupported:
						out.put(1, f.Name)
					case status.FeatureUnsupported:
						out.put(0, f.Name)
					}
				}
			}},
	}
}

func runtime() []metric {
	return []metric{
		{"sluice_runtime_connected", "1 while Sluice is connected to the runtime.", gauge, nil, one(func(s *status.Status) float64 { return truth(s.Runtime.Connected) })},
		{"sluice_runtime_info", "Name and versions of the runtime.", gauge, []string{"name", "version", "nri_version"},
			func(s *scrape, out *sink) {
				if r := &s.Runtime; r.Name != "" {
					out.put(1, text(r.Name), text(r.Version), text(r.NRIVersion))
				}
			}},
		{"sluice_runtime_reconnects_total", "Connections to the runtime after the first.", counter, nil, count(func(c *status.Counters) int { return c.Reconnects })},
		{"sluice_grants_cut_total", "Containers that claimed more than the kubelet granted.", counter, nil, count(func(c *status.Counters) int { return c.GrantsCut })},
		{"sluice_handler_duration_seconds", "Time for which the runtime waited for an answer.", histogram, []string{"event"}, latencies},
		{"sluice_runtime_updates_total", "Updates of the runtime's own record of a container.", counter, nil, count(func(c *status.Counters) int { return c.RecordUpdates })},
		{"sluice_runtime_update_failures_total", "Updates of its own record that the runtime refused.", counter, nil, count(func(c *status.Counters) int { return c.RecordUpdateFailures })},
	}
}

func latencies(s *scrape, out *sink) {
	bounds := status.LatencyBounds()
	for i := range s.Handlers {
		h := &s.Handlers[i]
		buckets, all := make(map[float64]uint64, len(bounds)), uint64(0)
		for b, n := range h.Counts {
			all += n
			if b < len(bounds) {
				buckets[bounds[b].Seconds()] = all
			}
		}
		out.putHistogram(all, h.Sum.Seconds(), buckets, h.Event)
	}
}

func plugin() []metric {
	return []metric{
		{"sluice_build_info", "Version of the running program.", gauge, []string{"version", "revision", "goversion"},
			func(s *scrape, out *sink) { out.put(1, s.Build.Version, s.Build.Revision, s.Build.Go) }},
		{"sluice_start_time_seconds", "Time at which the process started.", gauge, nil, func(s *scrape, out *sink) { out.putTime(s.StartedAt) }},
		{"sluice_acting", "1 if Sluice applies its decisions; 0 in preview.", gauge, nil, one(func(s *status.Status) float64 { return truth(s.Mode == status.ModeOn) })},
		{"sluice_config_info", "Beginning of the hash of the configuration in force.", gauge, []string{"hash"},
			func(s *scrape, out *sink) {
				const enough = 12
				out.put(1, text(s.Config.Hash[:min(enough, len(s.Config.Hash))]))
			}},
		{"sluice_config_loaded_timestamp_seconds", "Time at which the configuration came into force.", gauge, nil, func(s *scrape, out *sink) { out.putTime(s.Config.LoadedAt) }},
		{"sluice_config_reloads_total", "Changed configuration files read.", counter, nil, one(func(s *status.Status) float64 { return float64(s.Config.Reloads) })},
		{"sluice_config_refused_total", "Changed configuration files refused.", counter, nil, one(func(s *status.Status) float64 { return float64(s.Config.Refused) })},
		{"sluice_config_problem", "1 if the newest configuration is not in force; sluice status shows why.", gauge, nil, one(func(s *status.Status) float64 { return truth(s.Config.Problem != "") })},
		{"sluice_panics_total", "Panics, each of which is a bug that failed one operation.", counter, nil, count(func(c *status.Counters) int { return c.Panics })},
	}
}
