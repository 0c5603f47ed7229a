package metrics

import (
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func node() []metric {
	ofCPU := func(value func(*status.NodeUsage) float64) func(*scrape, *sink) {
		return loopSamples(func(l *status.Loop, out *sink) {
			if !l.Node.CPU.MeasuredAt.IsZero() {
				out.put(value(&l.Node))
			}
		})
	}
	ofMemory := func(value func(*status.NodeMemory) float64) func(*scrape, *sink) {
		return loopSamples(func(l *status.Loop, out *sink) {
			if m := &l.Node.Memory; !m.MeasuredAt.IsZero() {
				out.put(value(m))
			}
		})
	}
	return []metric{
		{"sluice_machine_cpus", "CPUs that are online or offline; of the online ones, pinned, reserved, for class SYSTEM, or not assignable (external).", gauge, []string{"set"},
			func(s *scrape, out *sink) {
				m := &s.Machine
				for _, part := range []struct {
					name string
					cpus cpuset.Set
				}{{"online", m.Online}, {"offline", m.Offline}, {"pinned", m.Pinned}, {"reserved", m.Reserved}, {"system", m.System}, {"external", m.External}} {
					out.put(float64(part.cpus.Size()), part.name)
				}
			}},
		{"sluice_node_used_cpus", "CPUs that the whole node uses.", gauge, nil, ofCPU(func(n *status.NodeUsage) float64 { return cpus(n.CPU.Usage) })},
		{"sluice_node_allocatable_cpus", "CPUs that pods may have.", gauge, nil, ofCPU(func(n *status.NodeUsage) float64 { return cpus(n.CPU.Limit) })},
		{"sluice_node_requested_cpus", "CPUs that the containers on the node request, of every class and with batch resources.", gauge, nil,
			one(func(s *status.Status) float64 { return cpus(s.Scheduling.Requested) })},
		{"sluice_node_overcommit_ratio", "CPUs that the containers request, divided by the CPUs that pods may have.", gauge, nil,
			one(func(s *status.Status) float64 { return s.Scheduling.OvercommitRatio })},
		{"sluice_node_room_cpus", "CPUs that new containers can request beside what the pools need: the pools' CPUs, less each pool's RCF times its requests. It exists only if the loop sizes exclusive pools.", gauge, nil,
			func(s *scrape, out *sink) {
				if room := s.Scheduling.Room; room != nil {
					out.put(cpus(*room))
				}
			}},
		{"sluice_node_steal_cpus", "CPU time that a hypervisor withheld, in CPUs.", gauge, nil, ofCPU(func(n *status.NodeUsage) float64 { return n.StealCPUs })},
		{"sluice_node_runnable_tasks", "Load average of one minute.", gauge, nil, ofCPU(func(n *status.NodeUsage) float64 { return n.LoadAverage })},
		{"sluice_node_pressure_ratio", "Share of time in which some task of the node waited (PSI).", gauge, []string{resourceLabel},
			loopSamples(func(l *status.Loop, out *sink) { putPressure(out, &l.Node.Pressure) })},
		{"sluice_node_memory_total_bytes", "Memory of the node, or the limit of all pods together if lower.", gauge, nil, ofMemory(func(m *status.NodeMemory) float64 { return float64(m.TotalBytes) })},
		{"sluice_node_memory_available_bytes", "Memory available without swapping.", gauge, nil, ofMemory(func(m *status.NodeMemory) float64 { return float64(m.AvailableBytes) })},
		{"sluice_node_memory_free_bytes", "Memory that nothing uses.", gauge, nil, ofMemory(func(m *status.NodeMemory) float64 { return float64(m.FreeBytes) })},
		{"sluice_node_direct_reclaim_pages_per_second", "Pages scanned in direct reclaim.", gauge, nil, ofMemory(func(m *status.NodeMemory) float64 { return m.DirectReclaimPagesPerSecond })},
		{"sluice_node_disk_used_ratio", "Used share of the fullest file system with pods' data.", gauge, nil, ofCPU(func(n *status.NodeUsage) float64 { return n.DiskUsedFraction })},
	}
}
