package control

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// outlook is what a demand of all others leaves to batch work.
type outlook struct {
	within time.Duration // for which it was forecast
	// needed is what the others need; 0 where it is not known. With exclusive pools, the CPU is that
	// of the pools.
	needed Amount
	// left is the CPU above what batch work always has, and the memory beside what it holds. What
	// batch work would lack is negative. What is not known leaves all.
	left Amount
}

// isShort reports whether something is missing.
func (a Amount) isShort() bool { return a.CPU < 0 || a.MemoryBytes < 0 }

// outlook returns what a demand leaves: of the pools, if they are exclusive, otherwise of all but
// batch work.
func (n *Notices) outlook(v *View, pools []workload.MilliCPU, all Amount) outlook {
	o := outlook{needed: all, left: Amount{v.Capacity, v.MemoryTotal}}
	if all.MemoryBytes > 0 {
		o.left.MemoryBytes = bytesPart(v.MemoryTotal, n.evictPercent) - all.MemoryBytes
		if known(v.Now, v.BatchMemory.At, n.interval) {
			o.left.MemoryBytes -= v.BatchMemory.NonCache()
		}
	}
	if n.exclusive {
		o.needed.CPU = n.neededBy(v, pools)
		if o.needed.CPU > 0 {
			o.left.CPU = v.Shared - o.needed.CPU - n.always(v)
		}
	} else if all.CPU > 0 {
		o.left.CPU = n.batch.leaves(v, all.CPU) - n.always(v)
	}
	return o
}

// always returns the CPU that batch work always has.
func (n *Notices) always(v *View) workload.MilliCPU {
	if n.exclusive && len(n.law) > 0 {
		return workload.MilliCPU(max(n.law[len(n.law)-1].Min, v.ThreadsPerCore, 1)) * 1000
	}
	return n.batch.Floor(v)
}

// neededBy returns the whole cores that have these loads of the pools at the upper ends of their
// bands. Without any load it returns 0.
func (n *Notices) neededBy(v *View, loads []workload.MilliCPU) (sum workload.MilliCPU) {
	for i, load := range loads[:min(len(loads), len(n.law))] {
		cpus := ceil(load * 100 / workload.MilliCPU(max(n.law[i].High, 1)))
		sum += workload.MilliCPU(roundUp(cpus, max(v.ThreadsPerCore, 1))) * 1000
	}
	return sum
}

// used returns the present load of each pool but the last, or its requests where that is not known.
func (n *Notices) used(v *View) []workload.MilliCPU {
	n.pools = n.pools[:0]
	for i := range max(0, len(v.Pools)-1) {
		p := &v.Pools[i]
		if known(v.Now, p.At, n.interval) {
			n.pools = append(n.pools, p.Usage)
		} else {
			n.pools = append(n.pools, p.Request)
		}
	}
	return n.pools
}

// expect returns what the expected peaks of some time leave. Of several pools, those without a
// forecast count with their present load.
func (n *Notices) expect(v *View, f Forecaster, within time.Duration) outlook {
	if f == nil {
		return n.outlook(v, nil, Amount{})
	}
	loads, forecast := n.used(v), false
	for i := range loads {
		if peak := milli(f.peak(v.Now, poolKey(v.Pools[i].Name), within)); peak > 0 {
			loads[i], forecast = peak, true
		}
	}
	if !forecast {
		loads = nil
	}
	o := n.outlook(v, loads, f.demand(v.Now, within))
	o.within = within
	return o
}

// why says what is expected.
func (n *Notices) why(v *View, o *outlook) string {
	switch {
	case o.left.CPU >= 0:
		return fmt.Sprintf("within %s, all others are expected to hold %s of the memory, beside which %s are missing for what batch work holds",
			o.within, MemoryText(o.needed.MemoryBytes), MemoryText(-o.left.MemoryBytes))
	case n.exclusive:
		return fmt.Sprintf("within %s, the other pools are expected to need %s of %s CPUs, beside which the batch pool has its minimum of %s",
			o.within, cpus(o.needed.CPU), cpus(v.Shared), cpus(n.always(v)))
	}
	return fmt.Sprintf("within %s, all others are expected to need %s CPUs, beside which batch work has its floor of %s", o.within, cpus(o.needed.CPU), cpus(n.always(v)))
}

// text says what the others need.
func (o *outlook) text() string {
	if o.needed == (Amount{}) {
		return "there is no forecast to be trusted any more"
	}
	return fmt.Sprintf("all others are expected to need at most %s CPUs and %s in the next %s", cpus(o.needed.CPU), MemoryText(o.needed.MemoryBytes), o.within)
}
