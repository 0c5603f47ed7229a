package control

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// floorSlack is the measuring error in percent of the floor. Batch work within it counts as
// being at its floor, since usage is measured over less than a quota period.
const floorSlack = 10

// Crowded appends the pools that are over their band where all pools share their CPUs (overlap
// mode) and batch work uses no more than its floor, so that it has nothing left to give. The
// load of a pool is its usage divided by the CPUs that the other services leave. What it lacks
// is the CPU that the others must give up to bring its load into the band. The interval is the
// longest time between two measurements.
func Crowded(short []Shortage, v *View, law []PoolConfig, floor workload.MilliCPU, interval time.Duration) []Shortage {
	last := len(v.Pools) - 1
	if v.Pools[last].Usage > perCent(floor, 100+floorSlack) {
		return short
	}
	services := workload.MilliCPU(0)
	for i := range v.Pools[:last] {
		services += v.Pools[i].Usage
	}
	for i := range v.Pools[:last] {
		p := &v.Pools[i]
		if p.Empty || !known(v.Now, p.At, interval) {
			continue
		}
		left := v.Shared - (services - p.Usage)
		if needs := p.Usage * 100 / workload.MilliCPU(law[i].High); needs > left {
			short = append(short, Shortage{Pool: i, Missing: needs - left, Crowded: true})
		}
	}
	return short
}
