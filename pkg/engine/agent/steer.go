package agent

import (
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/kernel/iocost"
	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// steer starts moving interrupts and unbound work queues where the CPUs that they may use have
// changed. Preview gives back what was moved before, because it belongs to no container and so
// would stay for good.
func (a *Agent) steer() {
	if !a.Synced {
		return
	}
	want := a.steered()
	a.steering.Steer(want, func() bool {
		return a.Authority().Writes || a.Config.Mode == config.Preview && want.IsEmpty()
	})
}

// steered lists the interrupts and work queues that the configuration keeps off LSE containers'
// CPUs.
func (a *Agent) steered() irq.Desire {
	want := irq.Desire{Online: a.Ledger.Machine().Online}
	if a.Config.Mode == config.Preview || !a.Config.Steer.IRQs && !a.Config.Steer.Workqueues {
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

// raiseWatermarks sets the node's memory watermarks by the size of its memory if the
// configuration enables that, and restores the originals of an earlier run otherwise.
func (a *Agent) raiseWatermarks() {
	switch m := a.Ledger.Machine(); {
	case !a.Authority().Writes:
	case a.Config.Memory.GlobalWatermark == config.WatermarkAuto:
		a.watermarks.Raise(m.Memory(m.MemoryNodes()), m.MemoryNodes().Size())
	default:
		a.leaveWatermarks()
	}
}

// leaveWatermarks restores the original watermarks, also when koordlet has started since.
func (a *Agent) leaveWatermarks() {
	if a.Config.Mode == config.On {
		a.watermarks.Restore()
	}
}

// setNewidle lets CPUs that have nothing left to run look for waiting threads each time if the
// configuration says so, and restores what an earlier run found otherwise.
func (a *Agent) setNewidle() {
	switch {
	case !a.Authority().Writes:
	case a.Config.NewidleBalance == config.NewidleAlways:
		a.newidle.Always()
	default:
		a.leaveNewidle()
	}
}

// leaveNewidle restores what was found, also when koordlet has started since.
func (a *Agent) leaveNewidle() {
	if a.Config.Mode == config.On {
		a.newidle.Restore()
	}
}

// setDisks lets disks divide their time by weight if the configuration enables that. Otherwise it gives back
// what an earlier run or configuration has set. watchNeighbours repeats it for disks that have been added.
func (a *Agent) setDisks() {
	var want iocost.Want
	if a.Config.IOCost.Mode == config.IOCostOn {
		want = a.Config.IOCost.QoS
	}
	if allowed := func() bool { return a.Authority().Writes }; allowed() {
		a.disks.Set(want, allowed)
	}
}

// weighDisks gives containers their weights of single disks where the disks heed them now.
func (a *Agent) weighDisks(withCost []string) {
	a.QoS.CostDisks = withCost
	if a.Synced && a.ctx.Err() == nil {
		a.podsettings.ReconcileAll(a.loop.Memory.Owns)
	}
}

// leaveDisks gives back what the disks had, also when koordlet has started since.
func (a *Agent) leaveDisks() {
	if a.Config.Mode == config.On {
		a.disks.Set(nil, func() bool { return true })
	}
}
