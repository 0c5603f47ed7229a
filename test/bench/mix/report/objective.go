package report

import "time"

// Objective holds how often a service's objective was held in one setting, with what the cells of
// the comparison have.
type Objective struct {
	Cell
	Bound         time.Duration // on the p99 of its latency
	Time          time.Duration // of each measurement, of which the second half was counted
	Windows, Held int           // times between two looks of Sluice at the objective, and those in which the p99 was below the bound
}

// HeldFraction returns the fraction of the time in which the objective was held; 0 if none was counted.
func (o *Objective) HeldFraction() float64 { return float64(o.Held) / float64(max(o.Windows, 1)) }
