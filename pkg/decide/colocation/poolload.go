package colocation

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// observePools computes the load of each pool: where pools share CPUs, from the usage of their
// containers, otherwise from that of their CPUs.
func (v *NodeView) observePools() {
	for i := range v.Pools {
		p := &v.Pools[i]
		p.At, p.Usage, p.Pressure = time.Time{}, 0, v.Node.Pressure.CPU
		p.Empty = v.inPool[i] == 0
		if v.rules.ExclusivePools {
			p.At, p.Usage, p.Pressure = v.Node.CPU.At, 0, 0
			// What the system runs on an empty pool's CPUs does not count as load of the pool.
			if !p.Empty {
				p.Usage = busy(v.CPUs, cpuset.Difference(v.sets[i], v.spares[i]))
			}
		}
	}
	for i := range v.Containers {
		c := &v.Containers[i]
		if c.Pool < 0 || c.CPU.At.IsZero() {
			continue
		}
		p := &v.Pools[c.Pool]
		if v.rules.ExclusivePools { // the node's pressure is that of batch work, which always waits
			p.Pressure = max(p.Pressure, c.Pressure.CPU)
			continue
		}
		p.Usage += c.CPU.Usage
		if c.CPU.At.After(p.At) {
			p.At = c.CPU.At
		}
	}
	if v.rules.ExclusivePools {
		v.observeSpare()
	}
}

// observeSpare adds what pools use of their spare CPUs, on which batch work runs too. The usage
// of batch work is exact, and what it does not have on the CPUs of its own pool it has on spare
// ones. How much of that is on which pool's is not measured: each counts with its part of what is
// busy there, and at least with the usage of its containers, which is up to a second older. That
// alone counts while the usage of batch work is not of the same time as that of the CPUs.
func (v *NodeView) observeSpare() {
	last := len(v.Pools) - 1
	onSpare := workload.MilliCPU(0)
	for i := range last {
		onSpare += busy(v.CPUs, v.spares[i])
	}
	if onSpare == 0 {
		return
	}
	ofBatch := onSpare
	if age := v.Node.CPU.At.Sub(v.BatchUse.At).Abs(); !v.BatchUse.At.IsZero() && age <= v.Node.CPU.Interval/2 {
		ofBatch = min(onSpare, max(0, v.BatchUse.Usage-v.Pools[last].Usage))
	}
	for i := range last {
		p := &v.Pools[i]
		if used := busy(v.CPUs, v.spares[i]); !p.Empty && used > 0 {
			p.Usage = max(p.Usage+used*(onSpare-ofBatch)/onSpare, v.usageOf(i))
		}
	}
}

// usageOf returns the sum of what the containers of a pool used when they were last measured.
func (v *NodeView) usageOf(pool int) workload.MilliCPU {
	sum := workload.MilliCPU(0)
	for i := range v.Containers {
		if c := &v.Containers[i]; c.Pool == pool {
			sum += c.CPU.Usage
		}
	}
	return sum
}

// busy returns the CPU time that is used on these CPUs.
func busy(cpus []observe.CPU, set cpuset.Set) workload.MilliCPU {
	sum := 0.0
	for id := range set.All() {
		if id < len(cpus) && cpus[id].Known {
			sum += cpus[id].Busy
		}
	}
	return workload.MilliCPU(sum * 1000)
}
