package cgroupfs

import (
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Read returns what a cgroup has now: the kernel's file, not what was written
// last. The file stays open for the next time (see Forget). For a v2 cpuset that
// was never set it is the effective one, which the parent gives. Where a container has two
// levels (see Nest) that have different values, it is the one that Apply was not asked for.
func (d *Driver) Read(dir string, knob knobs.Knob) (knobs.Value, error) {
	s, h, err := d.at(knob)
	if err != nil {
		return nil, err
	}
	var v knobs.Value
	err = h.with(dir, func(c *cgroup) (err error) {
		v, err = s.read(c, s)
		return err
	})
	if err == nil && knob.Local() {
		if inner, _ := d.inner(dir); inner != "" {
			v = d.readNested(h, s, dir, knob, v, inner)
		}
	}
	return v, err
}
