package metrics

import (
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
)

// named is a container with its labels.
type named struct {
	*status.Container
	labels []string // namespace, pod, container
}

// longest is the maximum length of a Kubernetes name.
const longest = 253

// text makes a label value of an untrusted text: it becomes valid UTF-8 and short.
func text(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), longest)], "\uFFFD")
}

// labelsOf splits "namespace/pod/container", or "namespace/pod".
func labelsOf(ref string, parts int) []string {
	labels := strings.SplitN(ref, "/", parts)
	for i := range labels {
		labels[i] = text(labels[i])
	}
	return append(labels, make([]string, parts-len(labels))...)
}

// nameEach assigns labels to containers, each set of labels once: a container and its
// replacement have the same, and nameEach omits the older one.
func nameEach(all []status.Container) []named {
	list := make([]named, 0, len(all))
	seen := make(map[string]bool, len(all))
	for i := range slices.Backward(all) {
		labels := labelsOf(all[i].Ref, 3)
		if name := strings.Join(labels, "/"); !seen[name] {
			seen[name] = true
			list = append(list, named{&all[i], labels})
		}
	}
	return list
}

func containers() []metric {
	label := []string{"namespace", "pod", "container"}
	each := func(put func(named, *sink)) func(*scrape, *sink) {
		return func(s *scrape, out *sink) {
			for _, n := range s.named {
				put(n, out)
			}
		}
	}
	cpu := func(value func(*status.CPUUsage) float64) func(*scrape, *sink) {
		return each(func(n named, out *sink) {
			if n.Usage != nil && !n.Usage.CPU.MeasuredAt.IsZero() {
				out.put(value(&n.Usage.CPU), n.labels...)
			}
		})
	}
	limit := func(value func(*status.CPUUsage) float64) func(*scrape, *sink) {
		return each(func(n named, out *sink) {
			if n.Usage == nil {
				return
			}
			if v := value(&n.Usage.CPU); v > 0 {
				out.put(v, n.labels...)
			}
		})
	}
	return []metric{
		{"sluice_container_info", "Class and pool of a container.", gauge, append(slices.Clone(label), "class", "pool"),
			each(func(n named, out *sink) { out.put(1, append(slices.Clone(n.labels), n.Class.String(), n.Pool)...) })},
		{"sluice_container_cpus", "CPUs that the container may run on; absent if all.", gauge, label,
			each(func(n named, out *sink) {
				if !n.CPUs.IsEmpty() {
					out.put(float64(n.CPUs.Size()), n.labels...)
				}
			})},
		{"sluice_container_requested_cpus", "CPUs that the container requests.", gauge, label, each(func(n named, out *sink) { out.put(cpus(n.Requested), n.labels...) })},
		{"sluice_container_used_cpus", "CPUs that the container uses.", gauge, label, cpu(func(u *status.CPUUsage) float64 { return cpus(u.Usage) })},
		{"sluice_container_limit_cpus", "CPU limit as requested.", gauge, label, limit(func(u *status.CPUUsage) float64 { return cpus(u.Limit) })},
		{"sluice_container_loop_limit_cpus", "CPU limit that the loop set instead.", gauge, label, limit(func(u *status.CPUUsage) float64 { return cpus(u.LoopLimit) })},
		{"sluice_container_throttled_ratio", "Share of quota periods that were throttled.", gauge, label, cpu(func(u *status.CPUUsage) float64 { return u.ThrottledFraction })},
		{"sluice_container_pressure_ratio", "Share of time in which some task of the container waited.", gauge, append(slices.Clone(label), resourceLabel),
			each(func(n named, out *sink) {
				if n.Usage != nil {
					putPressure(out, &n.Usage.Pressure, n.labels...)
				}
			})},
		{"sluice_container_waiting_threads", "Threads that waited for a CPU, on average.", gauge, label,
			each(func(n named, out *sink) {
				if n.Usage != nil && !n.Usage.CPU.MeasuredAt.IsZero() {
					out.put(n.Usage.WaitingThreads, n.labels...)
				}
			})},
		{"sluice_container_memory_working_set_bytes", "Working set of the container.", gauge, label,
			each(func(n named, out *sink) {
				if n.Usage != nil && !n.Usage.Memory.MeasuredAt.IsZero() {
					out.put(float64(n.Usage.Memory.WorkingSetBytes), n.labels...)
				}
			})},
		{"sluice_container_drift_repairs_total", "Repairs of the container's settings that another program changed.", counter, label,
			each(func(n named, out *sink) {
				drift := n.Drift
				for i := range n.Settings {
					if n.Settings[i].Level == status.ContainerLevel {
						drift += n.Settings[i].Drift
					}
				}
				out.put(float64(drift), n.labels...)
			})},
		{"sluice_pod_excess_ratio", "Share of time that an LS pod waits beyond its baseline.", gauge, []string{"namespace", "pod", "kind"},
			eachWait(func(d *control.Disturbance) *control.Strain { return &d.Excess })},
		{"sluice_pod_calm_ratio", "Share of time that an LS pod waits without batch work (baseline).", gauge, []string{"namespace", "pod", "kind"},
			eachWait(func(d *control.Disturbance) *control.Strain { return &d.Calm })},
		{"sluice_pod_cycles_per_instruction", "Cycles per instruction of a service, and what is usual for it.", gauge, []string{"namespace", "pod", "kind"},
			eachPod(putCycles)},
	}
}

func putCycles(d *control.Disturbance, labels []string, out *sink) {
	if c := d.Cycles; c != nil {
		out.put(c.PerInstructionRatio, labels[0], labels[1], "now")
		if c.Learned {
			out.put(c.UsualRatio, labels[0], labels[1], "usual")
		}
	}
}

// eachWait puts a sample for each kind of wait of each LS pod.
func eachWait(of func(*control.Disturbance) *control.Strain) func(*scrape, *sink) {
	return eachPod(func(d *control.Disturbance, labels []string, out *sink) {
		for _, kind := range strains() {
			out.put(kind.of(of(d)), labels[0], labels[1], kind.name)
		}
	})
}

// eachPod puts samples of each LS pod; of pods with the same name it uses the later.
func eachPod(put func(d *control.Disturbance, labels []string, out *sink)) func(*scrape, *sink) {
	return loopSamples(func(l *status.Loop, out *sink) {
		seen := map[string]bool{}
		for i := range slices.Backward(l.Disturbed) {
			labels := labelsOf(l.Disturbed[i].Ref, 2)
			name := strings.Join(labels, "/")
			if seen[name] {
				continue
			}
			seen[name] = true
			put(&l.Disturbed[i], labels, out)
		}
	})
}
