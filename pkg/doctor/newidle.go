package doctor

import (
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/kernel/newidle"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// newidle checks whether CPUs that have nothing left to run look for waiting threads each time, which
// matters where batch work is in the idle class.
func (n *node) newidle() []Finding {
	if !n.probed() || !n.Features.Has(knobs.Idle) {
		return nil
	}
	const name = "newidle balance"
	const what = "a CPU that has nothing left to run often does not look for threads that wait on others: beside batch work of the idle class, some percent of the node idle"
	wanted := n.Config != nil && n.Config.NewidleBalance == config.NewidleAlways
	switch {
	case n.NewidleErr != nil && wanted:
		return []Finding{warn(name, "newidleBalance: always has no effect", oneLine(n.NewidleErr))}
	case n.NewidleErr != nil:
		return []Finding{note(name, "whether CPUs that have nothing left to run look for waiting threads is not known", oneLine(n.NewidleErr))}
	case n.Newidle == newidle.Always, n.Newidle == newidle.Plain:
		return []Finding{ok(name, "a CPU that has nothing left to run looks for waiting threads each time")}
	case n.Newidle == newidle.Rated && !wanted:
		return []Finding{ok(name, "a CPU that has nothing left to run looks for waiting threads, unless that happens often and without success")}
	case !wanted:
		return []Finding{note(name, what, "newidleBalance: always in the configuration")}
	case n.Config.Mode != config.On:
		return []Finding{note(name, what+"; Sluice changes nothing in preview", "mode: on in the configuration")}
	}
	return []Finding{warn(name, what+", although the configuration has newidleBalance: always", "start the plugin; if it runs, its log says why it has not set it")}
}
