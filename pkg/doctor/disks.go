package doctor

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/kernel/iocost"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// disks checks whether the disks heed I/O weights. It returns nothing if the kernel has no weights,
// which ioFeatures reports.
func (n *node) disks() []Finding {
	if !n.probed() || len(n.Disks) == 0 || !n.Features.Has(knobs.IOWeight) && !n.Features.Has(knobs.BFQWeight) {
		return nil
	}
	const name, scheduler = "disks", "the bfq scheduler: echo bfq > /sys/block/DISK/queue/scheduler"
	var heed, deaf, unnamed []string
	for _, d := range n.Disks {
		if d.ByWeight() || n.IOCost[d.Number].Enabled {
			heed = append(heed, d.Name)
			continue
		}
		deaf = append(deaf, d.Name)
		if !n.wants(d) {
			unnamed = append(unnamed, d.Name)
		}
	}
	slices.Sort(heed)
	slices.Sort(deaf)
	slices.Sort(unnamed)
	if deaf == nil {
		return []Finding{ok(name, "I/O weights have an effect on "+some(heed)+", by io.cost or bfq")}
	}
	what := "I/O weights have no effect on " + some(deaf) + ": io.cost is off there, and the scheduler is not bfq"
	switch {
	case n.IOCostErr != nil:
		return []Finding{note(name, what+"; "+oneLine(n.IOCostErr), scheduler)}
	case n.Config == nil || n.Config.IOCost.Mode != config.IOCostOn:
		return []Finding{note(name, what, "ioCost: {mode: on} in the configuration; or "+scheduler)}
	case n.Config.Mode != config.On:
		return []Finding{note(name, what+"; Sluice changes nothing in preview", "mode: on in the configuration; or "+scheduler)}
	case unnamed != nil:
		return []Finding{note(name, what, "name "+some(unnamed)+" in ioCost.disks of the configuration; or "+scheduler)}
	}
	return []Finding{warn(name, what+", although the configuration has ioCost: {mode: on}", "start the plugin; if it runs, its log says why it has not enabled io.cost")}
}

// idleIO tells which disks heed the idle class of I/O, which only mq-deadline does between cgroups.
func (n *node) idleIO() []Finding {
	if len(n.Disks) == 0 {
		return nil
	}
	const name = "idle I/O"
	var heed []string
	for _, d := range n.Disks {
		if d.Scheduler == "mq-deadline" {
			heed = append(heed, d.Name)
		}
	}
	slices.Sort(heed)
	if heed == nil {
		return []Finding{ok(name, "io: {priority: idle} has no effect here: no disk has the scheduler mq-deadline")}
	}
	return []Finding{ok(name, "io: {priority: idle} has an effect on "+some(heed)+", by mq-deadline")}
}

// wants reports whether the configuration enables io.cost on a disk.
func (n *node) wants(d iocost.Disk) bool {
	if n.Config == nil {
		return false
	}
	_, wanted := n.Config.IOCost.QoS(d)
	return wanted
}
