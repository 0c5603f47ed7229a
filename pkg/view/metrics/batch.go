package metrics

import (
	"strconv"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
)

const (
	secondsPerHour = 3600
	bytesPerGiB    = 1 << 30
)

func benefit() []metric {
	return []metric{
		{"sluice_batch_cpu_seconds_total", "CPU time that batch work used.", counter, nil,
			oneLooked(func(l *status.Loop) float64 { return l.Benefit.RunCPUHours * secondsPerHour })},
		{"sluice_batch_memory_byte_seconds_total", "Memory that batch work used, in bytes times seconds.", counter, nil,
			oneLooked(func(l *status.Loop) float64 { return l.Benefit.RunGiBHours * bytesPerGiB * secondsPerHour })},
		{"sluice_node_utilization_day_ratio", "Share of the node's CPUs in use in the last 24 hours.", gauge, nil,
			overDay(func(l *status.Loop) float64 { return l.Benefit.Day.UtilizationFraction })},
		{"sluice_node_utilization_day_known_seconds", "Measured part of the last 24 hours.", gauge, nil,
			oneLooked(func(l *status.Loop) float64 { return l.Benefit.Day.KnownHours * secondsPerHour })},
	}
}

// overDay returns a number about the last 24 hours, if the forecast has any data about them.
func overDay(value func(*status.Loop) float64) func(*scrape, *sink) {
	return loopSamples(func(l *status.Loop, out *sink) {
		if l.Benefit.Day.KnownHours > 0 {
			out.put(value(l))
		}
	})
}

func batchHealth() []metric {
	lifetime := []string{"lifetime"}
	return []metric{
		{"sluice_batch_satisfaction_ratio", "CPU that batch work got in the last 24 hours, divided by its requests.", gauge, nil,
			overDay(func(l *status.Loop) float64 { return l.Benefit.SatisfactionFraction })},
		{"sluice_batch_day_squeezes", "Intervals of the last 24 hours in which the batch CPU budget fell.", gauge, nil,
			overDay(func(l *status.Loop) float64 { return float64(l.Benefit.Day.Squeezes) })},
		{"sluice_batch_day_kills", "Pods evicted in the last 24 hours.", gauge, nil,
			overDay(func(l *status.Loop) float64 { return float64(l.Benefit.Day.Evicted) })},
		{"sluice_batch_sellable_known", "1 if the offer to batch work is known.", gauge, nil,
			oneLooked(func(l *status.Loop) float64 { return truth(l.Offer.Known) })},
		{"sluice_batch_sellable_cpus", "CPUs offered to batch work in total: short is above what others use now, long above their peak of 24 hours.", gauge, lifetime,
			loopSamples(func(l *status.Loop, out *sink) {
				if l.Offer.Known {
					out.put(cpus(l.Offer.ShortTerm.CPU), "short")
					out.put(cpus(l.Offer.LongTerm.CPU), "long")
				}
			})},
		{"sluice_batch_sellable_memory_bytes", "Memory offered to batch work in total, by lifetime as sluice_batch_sellable_cpus.", gauge, lifetime,
			loopSamples(func(l *status.Loop, out *sink) {
				if l.Offer.Known {
					out.put(float64(l.Offer.ShortTerm.MemoryBytes), "short")
					out.put(float64(l.Offer.LongTerm.MemoryBytes), "long")
				}
			})},
		{"sluice_pinnable_cpus", "Most CPUs that one new LSR container would get on the NUMA node.", gauge, []string{"numa_node"},
			loopSamples(func(l *status.Loop, out *sink) {
				for node, n := range l.Offer.FreeCPUs {
					out.put(float64(n), strconv.Itoa(node))
				}
			})},
	}
}

func egress() []metric {
	value := func(of func(*status.Egress) observe.BitRate) func(*scrape, *sink) {
		return loopSamples(func(l *status.Loop, out *sink) {
			if e := l.Egress; e != nil && e.Room > 0 {
				out.put(float64(of(e)) / 8)
			}
		})
	}
	return []metric{
		{"sluice_egress_link_bytes_per_second", "Speed of the node's link.", gauge, nil, value(func(e *status.Egress) observe.BitRate { return e.Speed })},
		{"sluice_egress_sent_bytes_per_second", "What the node's link sends.", gauge, nil, value(func(e *status.Egress) observe.BitRate { return e.Sent })},
		{"sluice_egress_batch_sent_bytes_per_second", "What pods of batch work send, also to other pods of the node.", gauge, nil, value(func(e *status.Egress) observe.BitRate { return e.BatchSent })},
		{"sluice_egress_batch_room_bytes_per_second", "What pods of batch work may send together.", gauge, nil, value(func(e *status.Egress) observe.BitRate { return e.Room })},
		{"sluice_egress_problems", "Pods of batch work whose sending can't be limited, and 1 if the link can't be read.", gauge, nil,
			loopSamples(func(l *status.Loop, out *sink) {
				if l.Egress == nil {
					return
				}
				n := 0
				for i := range l.Egress.Pods {
					if l.Egress.Pods[i].Problem != "" {
						n++
					}
				}
				out.put(float64(n) + truth(l.Egress.Problem != ""))
			})},
	}
}

func batchBudget() []metric {
	return []metric{
		{"sluice_batch_state", "1 for batch work's state in force.", gauge, []string{"state"},
			loopSamples(func(l *status.Loop, out *sink) {
				for _, word := range []status.BatchState{status.BatchOpen, status.BatchNoNew, status.BatchSqueezed, status.BatchClosed, status.BatchEvicting} {
					out.put(truth(l.Batch.State == word), string(word))
				}
			})},
		{"sluice_batch_unlimited", "1 if batch work may use all CPUs that it shares.", gauge, nil,
			oneLooked(func(l *status.Loop) float64 { return truth(l.Batch.Unlimited) })},
		{"sluice_batch_budget_cpus", "CPUs that all batch work together may use; absent if unlimited.", gauge, nil,
			loopSamples(func(l *status.Loop, out *sink) {
				if l.Batch.Known && !l.Batch.Unlimited {
					out.put(cpus(l.Batch.Budget))
				}
			})},
		{"sluice_batch_floor_cpus", "CPUs that batch work always has.", gauge, nil,
			oneLooked(func(l *status.Loop) float64 { return cpus(l.Batch.Floor) })},
		{"sluice_batch_used_cpus", "CPUs that batch work uses, as far as known.", gauge, nil,
			oneLooked(func(l *status.Loop) float64 { return cpus(l.Batch.Used) })},
		{"sluice_batch_requested_cpus", "CPUs that batch work requests.", gauge, nil,
			oneLooked(func(l *status.Loop) float64 { return cpus(l.Batch.Requested) })},
		{"sluice_batch_refused", "1 while no batch pod may start.", gauge, nil,
			oneLooked(func(l *status.Loop) float64 { return truth(l.Refusal != nil && l.Refusal.NewBatch) })},
		{"sluice_batch_refused_pods", "Evicted pods that may not start yet.", gauge, nil,
			oneLooked(func(l *status.Loop) float64 {
				if l.Refusal == nil {
					return 0
				}
				return float64(len(l.Refusal.PodUIDs))
			})},
	}
}

func batchMemory() []metric {
	bytes := func(of func(*status.BatchMemory) int64) func(*scrape, *sink) {
		return oneLooked(func(l *status.Loop) float64 { return float64(of(&l.Memory)) })
	}
	limits := func(of func(*status.BatchMemory) int64) func(*scrape, *sink) {
		return loopSamples(func(l *status.Loop, out *sink) {
			if limit := of(&l.Memory); limit > 0 {
				out.put(float64(limit))
			}
		})
	}
	return []metric{
		{"sluice_batch_memory_held_bytes", "Memory that batch work holds, including page cache.", gauge, nil, bytes(func(m *status.BatchMemory) int64 { return m.UsedBytes })},
		{"sluice_batch_memory_goal_bytes", "Memory that batch work may hold in the end.", gauge, nil, bytes(func(m *status.BatchMemory) int64 { return m.GoalBytes })},
		{"sluice_batch_memory_limit_bytes", "Limit of all batch work together.", gauge, nil, limits(func(m *status.BatchMemory) int64 { return m.LimitBytes })},
		{"sluice_batch_memory_wanted_limit_bytes", "Limit that the loop wants for batch work.", gauge, nil, limits(func(m *status.BatchMemory) int64 { return m.WantedLimitBytes })},
		{"sluice_batch_memory_swap_bytes", "Memory of batch work that is in swap.", gauge, nil, bytes(func(m *status.BatchMemory) int64 { return m.SwapBytes })},
		{"sluice_batch_memory_taken_bytes_total", "Memory that batch work gave back on request: page cache that was dropped, and memory that went to swap.", counter, []string{"by"},
			loopSamples(func(l *status.Loop, out *sink) {
				out.put(float64(l.Memory.Taken.PageCacheBytes), "page-cache")
				out.put(float64(l.Memory.Taken.SwapBytes), "swap")
			})},
		{"sluice_online_memory_bytes", "Memory in use by everything but batch work.", gauge, nil, bytes(func(m *status.BatchMemory) int64 { return m.OnlineBytes })},
		{"sluice_memory_headroom_bytes", "Memory kept free for the growth of others.", gauge, nil, bytes(func(m *status.BatchMemory) int64 { return m.HeadroomBytes })},
	}
}
