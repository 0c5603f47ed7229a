package metrics

import (
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const classCount = workload.System + 1

// class sums the usage of all containers of a class.
type class struct {
	containers                 int
	requested, used            workload.MilliCPU
	workingSet, memoryRequest  int64
	oomKills                   int
	waiting                    float64
	raised, lowered, throttled int
	worstThrottled             float64
	pressure                   status.PressureUsage // the highest of all containers
}

func (k *class) add(c *status.Container) {
	k.containers++
	k.requested += c.Requested
	u := c.Usage
	if u == nil {
		return
	}
	switch limit, own := u.CPU.LoopLimit, u.CPU.Limit; {
	case limit <= 0:
	case own > 0 && limit > own:
		k.raised++
	case own <= 0 || limit < own:
		k.lowered++
	}
	if !u.CPU.MeasuredAt.IsZero() {
		k.used += u.CPU.Usage
		k.waiting += max(0, u.WaitingThreads)
		k.worstThrottled = max(k.worstThrottled, u.CPU.ThrottledFraction)
		if u.CPU.ThrottledFraction > 0 {
			k.throttled++
		}
	}
	if m := &u.Memory; !m.MeasuredAt.IsZero() {
		k.workingSet += m.WorkingSetBytes
		k.memoryRequest += m.RequestedBytes
		k.oomKills += m.OOMKills
	}
	if p := &u.Pressure; !p.MeasuredAt.IsZero() {
		k.pressure.MeasuredAt = p.MeasuredAt
		k.pressure.CPUFraction = max(k.pressure.CPUFraction, p.CPUFraction)
		k.pressure.MemoryFraction = max(k.pressure.MemoryFraction, p.MemoryFraction)
		k.pressure.IOFraction = max(k.pressure.IOFraction, p.IOFraction)
	}
}

func classes() []metric {
	label := []string{"class"}
	each := func(put func(*class, string, *sink)) func(*scrape, *sink) {
		return func(s *scrape, out *sink) {
			for c := workload.LSE; c < classCount; c++ {
				put(&s.classes[c], c.String(), out)
			}
		}
	}
	value := func(of func(*class) float64) func(*scrape, *sink) {
		return each(func(k *class, name string, out *sink) { out.put(of(k), name) })
	}
	used := func(of func(*class) float64) func(*scrape, *sink) {
		all := value(of)
		return func(s *scrape, out *sink) {
			if s.loop != nil {
				all(s, out)
			}
		}
	}
	return []metric{
		{"sluice_class_containers", "Containers of the class.", gauge, label, value(func(k *class) float64 { return float64(k.containers) })},
		{"sluice_class_requested_cpus", "CPUs that the class's containers request.", gauge, label, value(func(k *class) float64 { return cpus(k.requested) })},
		{"sluice_class_used_cpus", "CPUs that the class's containers use.", gauge, label, used(func(k *class) float64 { return cpus(k.used) })},
		{"sluice_class_requested_memory_bytes", "Memory that the class's containers request, as far as known.", gauge, label, used(func(k *class) float64 { return float64(k.memoryRequest) })},
		{"sluice_class_memory_working_set_bytes", "Working sets of the class's containers.", gauge, label, used(func(k *class) float64 { return float64(k.workingSet) })},
		{"sluice_class_oom_kills", "Processes in the class's running containers that the kernel killed for memory.", gauge, label, used(func(k *class) float64 { return float64(k.oomKills) })},
		{"sluice_class_waiting_threads", "Threads that waited for a CPU, on average.", gauge, label, used(func(k *class) float64 { return k.waiting })},
		{"sluice_class_worst_pressure_ratio", "Share of time in which some task of the class's worst container waited.", gauge, []string{"class", resourceLabel},
			each(func(k *class, name string, out *sink) { putPressure(out, &k.pressure, name) })},
		{"sluice_class_worst_throttled_ratio", "Share of throttled periods of the class's most throttled container.", gauge, label, used(func(k *class) float64 { return k.worstThrottled })},
		{"sluice_class_throttled_containers", "Containers throttled by their CPU limit.", gauge, label, used(func(k *class) float64 { return float64(k.throttled) })},
		{"sluice_class_raised_containers", "Containers whose CPU limit the loop has raised.", gauge, label, used(func(k *class) float64 { return float64(k.raised) })},
		{"sluice_class_lowered_containers", "Containers whose CPU limit the loop has lowered or set.", gauge, label, used(func(k *class) float64 { return float64(k.lowered) })},
	}
}
