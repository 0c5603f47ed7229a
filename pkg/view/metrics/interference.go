package metrics

import (
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
)

// strain is one kind of wait of an LS pod.
type strain struct {
	name string
	of   func(*control.Strain) float64
}

func strains() [5]strain {
	return [...]strain{
		{"cpu", func(s *control.Strain) float64 { return s.CPUFraction }},
		{"memory", func(s *control.Strain) float64 { return s.MemoryFraction }},
		{"io", func(s *control.Strain) float64 { return s.IOFraction }},
		{"run_delay", func(s *control.Strain) float64 { return s.RunDelayFraction }},
		{"throttled", func(s *control.Strain) float64 { return s.ThrottledFraction }},
	}
}

// overPods puts a number for each kind of wait, unless there are no pods.
func overPods(of func([]control.Disturbance, strain) float64) func(*scrape, *sink) {
	return loopSamples(func(l *status.Loop, out *sink) {
		if len(l.Disturbed) == 0 {
			return
		}
		for _, kind := range strains() {
			out.put(of(l.Disturbed, kind), kind.name)
		}
	})
}

func mean(pods []control.Disturbance, of func(*control.Disturbance) float64) float64 {
	sum := 0.0
	for i := range pods {
		sum += of(&pods[i])
	}
	return sum / float64(len(pods))
}

func interference() []metric {
	const kinds = " Kinds: pressure of cpu, memory and io, run_delay, throttled periods."
	kind := []string{"kind"}
	return []metric{
		{"sluice_interference_worst_ratio", "Share of time that the worst affected LS pod waits beyond its baseline." + kinds, gauge, kind,
			overPods(func(pods []control.Disturbance, kind strain) float64 {
				worst := 0.0
				for i := range pods {
					worst = max(worst, kind.of(&pods[i].Excess))
				}
				return worst
			})},
		{"sluice_interference_mean_ratio", "Share of time that LS pods wait beyond their baselines, mean of all.", gauge, kind,
			overPods(func(pods []control.Disturbance, kind strain) float64 {
				return mean(pods, func(d *control.Disturbance) float64 { return kind.of(&d.Excess) })
			})},
		{"sluice_interference_calm_ratio", "Share of time that LS pods wait without batch work, mean of all.", gauge, kind,
			overPods(func(pods []control.Disturbance, kind strain) float64 {
				return mean(pods, func(d *control.Disturbance) float64 { return kind.of(&d.Calm) })
			})},
		{"sluice_interference_suffering_pods", "LS pods that wait over 10 % of their time beyond their baseline.", gauge, kind,
			loopSamples(func(l *status.Loop, out *sink) {
				for _, kind := range strains() {
					n := 0
					for i := range l.Disturbed {
						if kind.of(&l.Disturbed[i].Excess) > control.Suffers {
							n++
						}
					}
					out.put(float64(n), kind.name)
				}
			})},
		{"sluice_interference_observed_pods", "LS pods whose waits are measured.", gauge, nil,
			oneLooked(func(l *status.Loop) float64 { return float64(len(l.Disturbed)) })},
		{"sluice_interference_learned_pods", "LS pods whose baseline is known.", gauge, nil,
			oneLooked(func(l *status.Loop) float64 {
				n := 0
				for i := range l.Disturbed {
					if l.Disturbed[i].Learned {
						n++
					}
				}
				return float64(n)
			})},
		{"sluice_interference_slowed_pods", "Pods whose cycles per instruction show that others take caches or memory bandwidth (control.culprit.cpi).", gauge, nil,
			cyclesCount(func(c *control.Cycles) bool { return c.Slowed() })},
		{"sluice_interference_cycles_known_pods", "Pods whose usual cycles per instruction are known.", gauge, nil,
			cyclesCount(func(c *control.Cycles) bool { return c.Learned })},
	}
}

// cyclesCount puts the number of pods, if any is counted, whose cycles per instruction are like that.
func cyclesCount(counts func(*control.Cycles) bool) func(*scrape, *sink) {
	return loopSamples(func(l *status.Loop, out *sink) {
		n, counted := 0, false
		for i := range l.Disturbed {
			if c := l.Disturbed[i].Cycles; c != nil {
				counted = true
				if counts(c) {
					n++
				}
			}
		}
		if counted {
			out.put(float64(n))
		}
	})
}

func bounds() []metric {
	labels := []struct {
		kind control.BoundKind
		name string
	}{{control.BoundCPU, "cpu"}, {control.BoundMemory, "memory"}, {control.BoundIO, "io"}, {control.BoundRunDelay, "run_delay"}}
	pods := func(counts func(*control.Bound) bool, objective func(*control.Objective) bool) func(*scrape, *sink) {
		return loopSamples(func(l *status.Loop, out *sink) {
			n, latency := map[control.BoundKind]int{}, 0
			for i := range l.Disturbed {
				if o := l.Disturbed[i].Objective; o != nil && objective(o) {
					latency++
				}
				for k := range l.Disturbed[i].Bounds {
					if b := &l.Disturbed[i].Bounds[k]; counts(b) {
						n[b.Kind]++
					}
				}
			}
			for _, label := range labels {
				out.put(float64(n[label.kind]), label.name)
			}
			out.put(float64(latency), "latency")
		})
	}
	kind := []string{"kind"}
	return []metric{
		{"sluice_slo_pods", "LS and pinned pods with a bound on their waiting, or with an objective for latency (slo.sluice.dev).", gauge, kind,
			pods(func(*control.Bound) bool { return true }, func(*control.Objective) bool { return true })},
		{"sluice_slo_broken_pods", "Pods that wait longer than their bound, or answer later than their objective.", gauge, kind,
			pods(func(b *control.Bound) bool { return !b.BrokenAt.IsZero() }, func(o *control.Objective) bool { return !o.BrokenAt.IsZero() })},
		{"sluice_slo_unread_pods", "Pods whose response times are not known, although they have an objective.", gauge, nil,
			oneLooked(func(l *status.Loop) float64 {
				n := 0
				for i := range l.Disturbed {
					if o := l.Disturbed[i].Objective; o != nil && !o.Measured {
						n++
					}
				}
				return float64(n)
			})},
		{"sluice_slo_batch_ratio", "Part of its CPU budget that the bounds leave batch work.", gauge, nil,
			oneLooked(func(l *status.Loop) float64 {
				if l.Batch.BoundsPercent == 0 {
					return 1
				}
				return float64(l.Batch.BoundsPercent) / 100
			})},
	}
}
