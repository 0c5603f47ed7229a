package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/sluice-dev/sluice/pkg/observe"
)

// Egress is what limits on what batch work sends (control.egress) need.
type Egress struct {
	Err error // why this process can limit nothing

	Devices []string        // the node's link; none if it is unknown
	Speed   observe.BitRate // of the link; 0 if it is unknown
	LinkErr error           // why the link or its speed is unknown
}

// egress checks whether what batch work sends can be limited, if the configuration asks for it.
func (n *node) egress() []Finding {
	if n.Egress == nil {
		return nil
	}
	return []Finding{n.egressLimits(), n.link()}
}

func (n *node) egressLimits() Finding {
	const name, grant = "egress limits", "the chart's value egress: true, or for a service the drop-in egress.conf (docs/install.md)"
	if lacks := n.service().lacks("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SYS_PTRACE"); lacks != nil {
		return warn(name, "the plugin runs without "+strings.Join(lacks, ", ")+": it can limit no pod", "grant it: "+grant)
	}
	switch err := n.Egress.Err; {
	case err == nil:
		return ok(name, "by a token bucket filter in the network namespace of each pod of batch work")
	case errors.Is(err, fs.ErrPermission):
		return warn(name, "it could not be tried: "+oneLine(err), "run sluice doctor as root; the plugin needs "+grant)
	default:
		return warn(name, "not possible: "+oneLine(err), "modprobe sch_tbf, on a kernel with CONFIG_NET_NS and CONFIG_NET_SCH_TBF; or control.egress: {mode: off}")
	}
}

// link checks whether the node's link and its speed are known.
func (n *node) link() Finding {
	const name = "link"
	e := n.Egress
	for _, device := range e.Devices {
		if !n.exists("sys/class/net/" + device) {
			return warn(name, "device "+device+" of control.egress.interfaces is not there", "name devices of ls /sys/class/net, or none for those of the default routes")
		}
	}
	if e.LinkErr != nil {
		return warn(name, oneLine(e.LinkErr), "control.egress.interfaces names the devices of the node's link, and control.egress.linkSpeed its speed, such as 10G")
	}
	return ok(name, fmt.Sprintf("%s, %s", strings.Join(e.Devices, ", "), e.Speed))
}
