package metrics

import "github.com/sluice-dev/sluice/pkg/status"

func hostApplications() []metric {
	name := []string{"application"}
	each := func(of func(*status.HostApplication) float64) func(*scrape, *sink) {
		return loopSamples(func(l *status.Loop, out *sink) {
			for i := range l.HostApplications {
				out.put(of(&l.HostApplications[i]), l.HostApplications[i].Name)
			}
		})
	}
	return []metric{
		{"sluice_host_application_managed", "1 if the host application is bounded as batch work; 0 for example while its cgroup does not exist.", gauge, name,
			each(func(a *status.HostApplication) float64 { return truth(a.Problem == "") })},
		{"sluice_host_application_used_cpus", "CPUs that the host application uses, as far as known.", gauge, name,
			each(func(a *status.HostApplication) float64 { return cpus(a.Used.CPU) })},
		{"sluice_host_application_used_memory_bytes", "Memory that the host application uses without page cache, as far as known.", gauge, name,
			each(func(a *status.HostApplication) float64 { return float64(a.Used.MemoryBytes) })},
		{"sluice_host_application_offered_cpus", "CPUs that the host application may use.", gauge, name,
			each(func(a *status.HostApplication) float64 { return cpus(a.Offer.CPU) })},
		{"sluice_host_application_offered_memory_bytes", "Memory that the host application may use.", gauge, name,
			each(func(a *status.HostApplication) float64 { return float64(a.Offer.MemoryBytes) })},
	}
}
