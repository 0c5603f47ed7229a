package node

import (
	"strings"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
)

// Suspect names the program that probably changed a setting.
func (n *Node) Suspect(o knobs.Object, k knobs.Knob, found knobs.Value) string {
	d := knobs.Drift{
		Object: o, Knob: k, Found: found, Default: cgroupfs.Describe(k).Default,
		Koordlet:  n.Neighbour(peers.Koordlet) != nil,
		Katalyst:  n.Neighbour(peers.Katalyst) != nil,
		StaticCPU: n.Authority().Foreign,
		Systemd:   strings.HasSuffix(o.Path, ".slice"),
	}
	for _, c := range n.Order {
		if o.Level != knobs.ContainerLevel || c.Path != o.Path {
			continue
		}
		d.Systemd = c.Scoped()
		d.Recorded = c.inRecord(k)
		if d.Recorded != nil && n.Kernel.Same(k, d.Recorded, found) {
			d.Recorded = found // the kernel may round the value
		}
	}
	return d.Suspect()
}

// inRecord is the value of a knob in the runtime's record of a container, or nil if it is
// unknown.
func (c *Container) inRecord(k knobs.Knob) knobs.Value {
	r := c.Resources
	switch {
	case k == knobs.CPUs && !c.Recorded.CPUs.IsEmpty():
		return knobs.CPUSet(c.Recorded.CPUs)
	case k == knobs.Mems && !c.Recorded.Mems.IsEmpty():
		return knobs.CPUSet(c.Recorded.Mems)
	case k == knobs.Quota && (c.Recorded.Unlimited || r.Quota < 0):
		return knobs.UnlimitedQuota()
	case k.Recorded() && c.Recorded.Carried[k] != nil:
		return c.Recorded.Carried[k]
	case k == knobs.Quota && r.Quota > 0 && r.Period > 0:
		return knobs.MicroQuota(r.Quota, r.Period)
	case k == knobs.Weight && r.Shares > 0:
		return knobs.Shares(r.Shares)
	case k == knobs.MemoryMax && r.MemoryLimit > 0:
		return knobs.Bytes(r.MemoryLimit)
	}
	return nil
}
