package cgroupfs

import (
	"github.com/sluice-dev/sluice/pkg/plan"
)

// Read returns what a cgroup has now. For a v2 cpuset that was never set it is
// the effective one, which the parent gives.
func (d *Driver) Read(dir string, knob plan.Knob) (plan.Value, error) {
	c, err := d.open(dir, knob)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if knob == plan.Quota {
		quota, err := c.readQuota()
		if err != nil {
			return nil, err
		}
		return quota, nil
	}
	set, err := c.readSet(setFile(knob))
	if err == nil && c.in.v2 && set.IsEmpty() {
		set, err = c.readSet(effective(setFile(knob)))
	}
	if err != nil {
		return nil, err
	}
	return plan.CPUSet(set), nil
}
