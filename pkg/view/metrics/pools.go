package metrics

import "github.com/sluice-dev/sluice/pkg/status"

func pools() []metric {
	pool := []string{"pool"}
	each := func(value func(*status.Pool) float64) func(*scrape, *sink) {
		return func(s *scrape, out *sink) {
			for i := range s.Pools {
				out.put(value(&s.Pools[i]), s.Pools[i].Name)
			}
		}
	}
	loaded := func(value func(*status.PoolLoad) float64) func(*scrape, *sink) {
		return func(s *scrape, out *sink) {
			for i := range s.Pools {
				if p := &s.Pools[i]; p.Load != nil && !p.Load.MeasuredAt.IsZero() {
					out.put(value(p.Load), p.Name)
				}
			}
		}
	}
	sized := func(value func(*status.PoolLoad) float64) func(*scrape, *sink) {
		return func(s *scrape, out *sink) {
			for i := range s.Pools {
				if p := &s.Pools[i]; p.Load != nil && p.Load.BandHighPercent > 0 {
					out.put(value(p.Load), p.Name)
				}
			}
		}
	}
	return []metric{
		{"sluice_pool_cpus", "CPUs of the pool; in mode overlap pools share them.", gauge, pool, each(func(p *status.Pool) float64 { return float64(p.CPUs.Size()) })},
		{"sluice_pool_containers", "Containers in the pool.", gauge, pool, each(func(p *status.Pool) float64 { return float64(p.Containers) })},
		{"sluice_pool_requested_cpus", "CPUs that the pool's containers request.", gauge, pool, each(func(p *status.Pool) float64 { return cpus(p.Requested) })},
		{"sluice_pool_rcf_ratio", "RCF (requested-CPU fraction): CPUs of the pool divided by what its containers request.", gauge, pool,
			func(s *scrape, out *sink) {
				for i := range s.Pools {
					if p := &s.Pools[i]; p.RCFRatio > 0 {
						out.put(p.RCFRatio, p.Name)
					}
				}
			}},
		{"sluice_pool_spare_cpus", "CPUs of the pool that batch work may use too, because the pool does not need them now.", gauge, pool, each(func(p *status.Pool) float64 { return float64(p.Spare.Size()) })},
		{"sluice_pool_used_cpus", "CPUs that the pool's containers use.", gauge, pool, loaded(func(l *status.PoolLoad) float64 { return cpus(l.Usage) })},
		{"sluice_pool_load_ratio", "Share of the pool's CPUs that its containers use.", gauge, pool, loaded(func(l *status.PoolLoad) float64 { return l.LoadFraction })},
		{"sluice_pool_pressure_ratio", "Share of time in which some task of the pool waited for a CPU.", gauge, pool, loaded(func(l *status.PoolLoad) float64 { return l.PressureFraction })},
		{"sluice_pool_band_low_ratio", "Lower end of the pool's load band. This metric and the next four exist only if the loop sizes the pool.", gauge, pool, sized(func(l *status.PoolLoad) float64 { return float64(l.BandLowPercent) / 100 })},
		{"sluice_pool_band_high_ratio", "Upper end of the pool's load band.", gauge, pool, sized(func(l *status.PoolLoad) float64 { return float64(l.BandHighPercent) / 100 })},
		{"sluice_pool_wanted_cpus", "CPUs that the loop wants for the pool.", gauge, pool, sized(func(l *status.PoolLoad) float64 { return float64(l.WantedCPUs) })},
		{"sluice_pool_short_cpus", "CPUs that the pool lacks and no lower pool can give.", gauge, pool, sized(func(l *status.PoolLoad) float64 { return float64(l.ShortCPUs) })},
		{"sluice_pool_small", "1 if the load is too low for the band at any size.", gauge, pool, sized(func(l *status.PoolLoad) float64 { return truth(l.Small) })},
	}
}
