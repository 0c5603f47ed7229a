package agent

import (
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/neighbour"
	"github.com/sluice-dev/sluice/pkg/plan"
	"github.com/sluice-dev/sluice/pkg/policy"
)

// suspect names who is likely to have changed a setting.
func (a *Agent) suspect(o plan.Object, k plan.Knob, found plan.Value) string {
	d := plan.Drift{
		Object: o, Knob: k, Found: found, Default: cgroupfs.Describe(k).Default,
		Koordlet:  a.neighbour(neighbour.Koordlet) != nil,
		Katalyst:  a.neighbour(neighbour.Katalyst) != nil,
		StaticCPU: a.authority().Foreign,
		Systemd:   strings.HasSuffix(o.Path, ".slice"),
	}
	for _, c := range a.order {
		if o.Level != plan.ContainerLevel || c.path != o.Path {
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
func (c *container) inRecord(k plan.Knob) plan.Value {
	r := c.Resources
	switch {
	case k == plan.CPUs && !c.recorded.CPUs.IsEmpty():
		return plan.CPUSet(c.recorded.CPUs)
	case k == plan.Mems && !c.recorded.Mems.IsEmpty():
		return plan.CPUSet(c.recorded.Mems)
	case k == plan.Quota && (c.recorded.Unlimited || r.Quota < 0):
		return unlimited
	case k == plan.Quota && c.recorded.Quota.Quota > 0:
		return c.recorded.Quota
	case k == plan.Quota && r.Quota > 0 && r.Period > 0:
		return plan.CPUQuota{Quota: time.Duration(r.Quota) * time.Microsecond, Period: time.Duration(r.Period) * time.Microsecond}
	case k == plan.Weight && c.recorded.Shares > 0:
		return c.recorded.Shares
	case k == plan.Weight && r.Shares > 0:
		return plan.Shares(r.Shares)
	case k == plan.MemoryMax && c.recorded.Memory > 0:
		return c.recorded.Memory
	case k == plan.MemoryMax && r.MemoryLimit > 0:
		return plan.Bytes(r.MemoryLimit)
	}
	return nil
}

// suspectOf names who is likely to have moved a container from what it was known
// to have to what it is seen to have.
func (a *Agent) suspectOf(c *container, known policy.Assignment) string {
	switch {
	case c.has.CPUs != known.CPUs:
		return a.suspect(c.object(), plan.CPUs, plan.CPUSet(c.has.CPUs))
	case c.has.Mems != known.Mems:
		return a.suspect(c.object(), plan.Mems, plan.CPUSet(c.has.Mems))
	}
	return a.suspect(c.object(), plan.Quota, c.quota)
}
