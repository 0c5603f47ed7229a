package colocation

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/observe"
)

// enterHosts enters the host applications whose cgroups exist.
func (v *NodeView) enterHosts(inv *Inventory) {
	v.HostApplications = v.HostApplications[:0]
	for _, a := range inv.HostApplications {
		v.HostApplications = append(v.HostApplications, control.HostUse{HostApplication: a.HostApplication})
	}
}

// observeHost records the CPU that the host application with that cgroup uses, if there is one.
func (v *NodeView) observeHost(cgroup string, sample *observe.Container) {
	at := slices.IndexFunc(v.HostApplications, func(a control.HostUse) bool { return a.Cgroup == cgroup })
	if at >= 0 {
		v.HostApplications[at].CPU = control.Use{At: sample.CPU.At, Usage: sample.CPU.Usage}
	}
}

// IsHostApart reports whether a cgroup is that of a host application whose memory is not part of the
// node's in the view, because that is the memory of all pods.
func (v *NodeView) IsHostApart(cgroup string) bool {
	return v.memoryOfPods && slices.Contains(v.BatchCgroups.Hosts, cgroup)
}

// holdHosts records the memory of host applications as far as the node's memory in the view
// includes it.
func (v *NodeView) holdHosts() {
	for i := range v.HostApplications {
		a := &v.HostApplications[i]
		if a.Memory = (control.Held{}); !v.memoryOfPods {
			a.Memory = v.Held[a.Cgroup]
		}
	}
}
