package colocation

import (
	"cmp"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// StepWindows decides by the time windows and the operator's switch whether the node does batch
// work now. It writes the answer into the view for the controllers that step after it.
func (c *Controllers) StepWindows(v *NodeView, in *Inputs, s control.Switch) Decided {
	state, decided := c.Windows.Step(&v.View, s)
	v.Batch = state
	v.Batch.Evict = state.Evict && in.Heeds(in.Eviction.Mode, "")
	return Decided{in.Of(""), decided}
}

// StepPrediction learns the usage of the node, and writes into the view which forecasts the
// controllers that step after it count with.
func (c *Controllers) StepPrediction(v *NodeView, in *Inputs) {
	v.Forecasts = control.Forecasts{}
	mode := cmp.Or(in.Prediction.Mode, in.Loop)
	if mode == control.Off {
		return
	}
	demand, measured := c.Offering.Demand(&v.View)
	if f := c.Prediction.Step(&v.View, demand, measured); mode == control.On {
		v.Forecasts = *f
	}
}

// StepPools decides the sizes of exclusive pools. It appends to short the shortages of CPUs
// that demotion must make up for.
func (c *Controllers) StepPools(v *NodeView, in *Inputs, short []control.Shortage) (control.PoolSizes, []control.Shortage, Decided) {
	mode := in.Pools.Mode
	sizes, decided := c.Pools.Step(&v.View)
	if in.Heeds(in.Demotion.Mode, mode) {
		for i, missing := range sizes.Short {
			if missing > 0 {
				short = append(short, control.Shortage{Pool: i, Missing: workload.MilliCPU(missing) * 1000, Apart: true})
			}
		}
	}
	return sizes, short, Decided{in.Of(mode), decided}
}

// fewCPUs is the size of a node on which whole CPUs are too coarse a unit.
const fewCPUs = 8

// Mechanism returns how batch work that shares CPUs is kept to its budget. If the configuration
// leaves it open, cgroup v1 (nestedQuotas) uses CPU sets where there are enough shared CPUs,
// since it refuses quotas in many orders of writing. CPU sets that belong to the kubelet's
// static CPU manager (foreignCPUs) are never written.
func Mechanism(configured control.Mechanism, nestedQuotas bool, sharedCPUs int, foreignCPUs bool) control.Mechanism {
	by := configured
	if by == control.ByAuto {
		by = control.ByQuota
		if nestedQuotas && sharedCPUs >= fewCPUs {
			by = control.ByCPUSet
		}
	}
	if by != control.ByQuota && foreignCPUs {
		return control.ByQuota
	}
	return by
}

// PoolSizesFor appends the sizes of the pools, the batch pool last, that give batch work the
// CPUs of its budget. A size of 0 stands for the configured one. Nothing is appended if no pool
// is resized.
func PoolSizesFor(into []int, b *control.Budget, by control.Mechanism, pools int) []int {
	if by == control.ByQuota || b.Unlimited {
		return into
	}
	for range pools - 1 {
		into = append(into, 0)
	}
	return append(into, b.CPUs)
}
