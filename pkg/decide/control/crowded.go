package control

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// floorSlack is the measuring error, in percent of the floor, within which batch work counts
// as being at its floor: usage is measured over less than a period of its quota.
const floorSlack = 10

// Crowded appends the pools that are over their band where all share their CPUs (overlap
// mode) and batch work has nothing more to give, since it uses no more than floor. A
// pool's load is what it uses of the CPUs that the other services leave it; it lacks what
// the others would have to leave besides for its load to be in the band. Interval is the
// longest from one measurement to the next.
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
