package cgroupfs

import (
	"errors"
	"fmt"
)

// costFile has a line for each disk with io.cost. Only the root cgroup has it.
const costFile = "io.cost.qos"

// IOCost returns the text of io.cost.qos: how each disk divides its time by weight. The error is
// ErrUnsupported, with the reason, where there is none.
func (d *Driver) IOCost() (string, error) {
	var text string
	err := d.atRoot(func(c *cgroup) (err error) {
		text, err = c.read(costFile)
		if errors.Is(err, ErrUnsupported) {
			return fmt.Errorf("%w; it needs a kernel with CONFIG_BLK_CGROUP_IOCOST", err)
		}
		return err
	})
	return text, err
}

// SetIOCost writes a line of io.cost.qos. It returns ErrNoDevice if there is no such disk. It takes
// as long as the disk needs for all operations in its queue.
func (d *Driver) SetIOCost(line string) error {
	return d.atRoot(func(c *cgroup) error { return c.write(costFile, line) })
}

func (d *Driver) atRoot(do func(*cgroup) error) error {
	if d.io == nil || !d.io.v2 {
		return fmt.Errorf("%w: io.cost is part of cgroup v2, where this node has no io controller", ErrUnsupported)
	}
	return d.io.with("/", do)
}
