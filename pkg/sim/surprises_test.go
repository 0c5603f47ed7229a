package sim

import "testing"

// A day that is not as forecasts expect it costs no more lateness with forecasts than without: they
// only give services more CPUs. That is exact up to the moments at which pools move, which may differ
// by some steps.
func TestSurprisesCostNoLateness(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"holiday", "flash-crowd"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := Text(name)
			if err != nil {
				t.Fatal(err)
			}
			s := parsed(t, string(text))
			results, err := Compare(t.Context(), s, []Policy{Pools, Forecast})
			if err != nil {
				t.Fatal(err)
			}
			without, with := results[0], results[1]
			if bound := without.LateFraction + float64(s.Budget)/10; with.LateFraction > bound {
				t.Errorf("services are late %.4f of the time with forecasts, %.4f without", with.LateFraction, without.LateFraction)
			}
			if name == "holiday" && with.BatchCPUs >= without.BatchCPUs {
				t.Errorf("batch work has %.2f CPUs with forecasts, %.2f without: the rise that does not come was not expected", with.BatchCPUs, without.BatchCPUs)
			}
		})
	}
}
