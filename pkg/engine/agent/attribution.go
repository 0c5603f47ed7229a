package agent

import (
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
)

// suspect names who is likely to have changed a setting.
func (a *Agent) suspect(o knobs.Object, k knobs.Knob, found knobs.Value) string {
	d := knobs.Drift{
		Object: o, Knob: k, Found: found, Default: cgroupfs.Describe(k).Default,
		Koordlet:  a.neighbour(peers.Koordlet) != nil,
		Katalyst:  a.neighbour(peers.Katalyst) != nil,
		StaticCPU: a.authority().Foreign,
		Systemd:   strings.HasSuffix(o.Path, ".slice"),
	}
	for _, c := range a.order {
		if o.Level != knobs.ContainerLevel || c.path != o.Path {
			continue
		}
		d.Systemd = c.scoped()
		d.Recorded = c.inRecord(k)
		if d.Recorded != nil && a.Kernel.Same(k, d.Recorded, found) {
			d.Recorded = found // as the kernel rounds it
		}
	}
	return d.Suspect()
}

// inRecord is what the runtime's record of a container holds, nil where that is
// not known.
func (c *container) inRecord(k knobs.Knob) knobs.Value {
	r := c.Resources
	switch {
	case k == knobs.CPUs && !c.recorded.CPUs.IsEmpty():
		return knobs.CPUSet(c.recorded.CPUs)
	case k == knobs.Mems && !c.recorded.Mems.IsEmpty():
		return knobs.CPUSet(c.recorded.Mems)
	case k == knobs.Quota && (c.recorded.Unlimited || r.Quota < 0):
		return unlimited
	case k == knobs.Quota && c.recorded.Quota.Quota > 0:
		return c.recorded.Quota
	case k == knobs.Quota && r.Quota > 0 && r.Period > 0:
		return knobs.CPUQuota{Quota: time.Duration(r.Quota) * time.Microsecond, Period: time.Duration(r.Period) * time.Microsecond}
	case k == knobs.Weight && c.recorded.Shares > 0:
		return c.recorded.Shares
	case k == knobs.Weight && r.Shares > 0:
		return knobs.Shares(r.Shares)
	case k == knobs.MemoryMax && c.recorded.Memory > 0:
		return c.recorded.Memory
	case k == knobs.MemoryMax && r.MemoryLimit > 0:
		return knobs.Bytes(r.MemoryLimit)
	}
	return nil
}

// suspectOf names who is likely to have moved a container from what it was known
// to have to what it is seen to have.
func (a *Agent) suspectOf(c *container, known placement.Assignment) string {
	switch {
	case c.has.CPUs != known.CPUs:
		return a.suspect(c.object(), knobs.CPUs, knobs.CPUSet(c.has.CPUs))
	case c.has.Mems != known.Mems:
		return a.suspect(c.object(), knobs.Mems, knobs.CPUSet(c.has.Mems))
	}
	return a.suspect(c.object(), knobs.Quota, c.quota)
}
