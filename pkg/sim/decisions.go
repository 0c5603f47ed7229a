package sim

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// Dropped implements decisionlog.Audit: the report loses nothing.
func (r *report) Dropped() int { return 0 }

// Record implements decisionlog.Audit and counts a decision. A movement counts at its first step,
// not again at its end.
func (r *report) Record(_ time.Time, _ control.Mode, d *control.Decision) {
	if d.Steps > 1 {
		return
	}
	r.decisions[d.Controller+" "+d.Action]++
	r.squeezes.note(d, r.batchPool())
}

// batchPool returns the name of the last pool.
func (r *report) batchPool() string { return r.series.Pools[len(r.series.Pools)-2].Name }

// squeezes counts how often online work took CPU from batch work.
type squeezes struct {
	possible      bool // batch work runs
	all, expected int
}

// note counts the decision if it is a squeeze: less of a budget, or the growth of a pool above the
// batch pool. A growth is expected if the load that caused it is no higher than the forecast.
func (s *squeezes) note(d *control.Decision, batchPool string) {
	grows := d.Controller == "pools" && d.Action == "grow" && d.Object != "pool "+batchPool
	if !s.possible || !grows && (d.Controller != "batch" || d.Action != "squeeze") {
		return
	}
	s.all++
	if forecast := fact(d, "forecast_cpus"); grows && forecast > 0 && fact(d, "load_cpus") <= forecast {
		s.expected++
	}
}

// fact returns a measurement behind a decision; 0 without it.
func fact(d *control.Decision, name string) float64 {
	for _, f := range d.Facts {
		if f.Name == name {
			return f.Value
		}
	}
	return 0
}
