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

// StepPrediction learns the usage of the node, and writes into the view what it forecasts, and which
// forecasts the controllers that step after it count with.
func (c *Controllers) StepPrediction(v *NodeView, in *Inputs) {
	v.Forecasts, v.Expected = control.Forecasts{}, control.Forecasts{}
	mode := in.prediction()
	if mode == control.Off {
		return
	}
	demand, measured := c.Offering.Demand(&v.View)
	if v.Expected = *c.Prediction.Step(&v.View, demand, measured); mode == control.On {
		v.Forecasts = v.Expected
	}
}

// prediction returns the mode of forecasts. They change nothing on the node by themselves, so that
// Writes does not matter.
func (in *Inputs) prediction() control.Mode { return cmp.Or(in.Prediction.Mode, in.Loop) }

// StepNotices decides which notice batch work has: by a forecast, by a window or by the switch. It
// closes the node for new batch work if a forecast says so.
func (c *Controllers) StepNotices(v *NodeView, in *Inputs, s control.Switch) (control.Notice, Decided) {
	if !in.Decides("") {
		return control.Notice{}, Decided{}
	}
	evicts := in.Acts(in.Eviction.Mode) && in.Eviction.By != control.EvictReport
	notice := control.NoticeInputs{Evicts: evicts && in.Acts(in.Memory.Mode)}
	notice.Demand, notice.Measured = c.Offering.Demand(&v.View)
	if mode := in.prediction(); mode == control.On || mode == control.Preview && !in.Acts("") {
		notice.Forecast = c.Prediction
	}
	notice.Planned = c.Windows.Coming(&v.View, s, c.Notices.Within())
	if notice.Planned.Kind == control.NoticeEvict && !evicts {
		notice.Planned.Kind = control.NoticeSqueeze
	}
	active, decided := c.Notices.Step(&v.View, notice)
	if why := c.Notices.WhyClosed(); why != "" && s.To != control.SwitchOn && !v.Batch.Squeeze { // a window that squeezes says itself who may start
		v.Batch.Closed, v.Batch.Why = true, cmp.Or(v.Batch.Why, why)
	}
	return active, Decided{in.Of(""), decided}
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
