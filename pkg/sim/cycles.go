package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
)

// The constants are those of the real sampler, which counts for ten seconds of each minute, and an
// assumption: by how much equal work differs in its cycles per instruction from second to second.
const (
	countTime   = 10 * time.Second
	countEvery  = time.Minute
	cyclesNoise = 0.05
)

// count is a count of a container's cycles and instructions, both in seconds of work at full speed.
type count struct {
	since                time.Time // zero if none is made
	next                 time.Time // when the next one is due
	cycles, instructions float64
	noise                *rand.Rand
}

// add adds what the container did in a step.
func (n *count) add(cycles, instructions float64) {
	n.cycles, n.instructions = n.cycles+cycles, n.instructions+instructions
}

// tellCycles ends a count and begins one, if either is due. A count that goes on all the time is read
// as often as CPU usage.
func (sum *sums) tellCycles(now time.Time, c *container, always bool) {
	n, every := &sum.count, countTime
	if always {
		every = usageEvery
	}
	if n.noise == nil {
		n.noise = rand.New(rand.NewPCG(c.load.seed, 2))
	}
	over := now.Sub(n.since)
	if !n.since.IsZero() && over >= every {
		if n.instructions > 0 {
			noise := 1 + cyclesNoise*n.noise.NormFloat64()/math.Sqrt(over.Seconds())
			sum.reading.CPI = observe.CPI{At: now, Over: over, Cycles: n.cycles / n.instructions * noise, Usage: milli(n.cycles / over.Seconds())}
		}
		n.since = time.Time{}
	}
	if n.since.IsZero() && (always || !now.Before(n.next)) {
		n.since, n.next, n.cycles, n.instructions = now, now.Add(countEvery), 0, 0
	}
}
