package agent

import (
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// steer begins a change of where interrupts and unbound work may run, if one is needed.
func (a *Agent) steer() {
	if a.Synced {
		a.steering.Steer(a.steered(), func() bool { return a.Authority().Writes })
	}
}

// steered is what the configuration wants kept off the CPUs of LSE containers.
func (a *Agent) steered() irq.Desire {
	want := irq.Desire{Online: a.Ledger.Machine().Online}
	if !a.Config.Steer.IRQs && !a.Config.Steer.Workqueues {
		return want
	}
	var lse cpuset.Set
	for _, c := range a.Order {
		if h, ok := a.Ledger.Holder(c.ID); ok && h.Request.Class == workload.LSE {
			lse = cpuset.Union(lse, h.CPUs)
		}
	}
	if a.Config.Steer.IRQs {
		want.IRQs = lse
	}
	if a.Config.Steer.Workqueues {
		want.Workqueues = lse
	}
	return want
}

// raiseWatermarks brings the node's watermarks to the size of its memory where the
// configuration says so, else those of an earlier run back.
func (a *Agent) raiseWatermarks() {
	switch m := a.Ledger.Machine(); {
	case !a.Authority().Writes:
	case a.Config.Memory.GlobalWatermark == config.WatermarkAuto:
		a.watermarks.Raise(m.Memory(m.MemoryNodes()), m.MemoryNodes().Size())
	default:
		a.leaveWatermarks()
	}
}

// leaveWatermarks gives the originals back, beside koordlet too that came later.
func (a *Agent) leaveWatermarks() {
	if a.Config.Mode == config.On {
		a.watermarks.Restore()
	}
}
