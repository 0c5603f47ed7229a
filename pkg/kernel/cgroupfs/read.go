package cgroupfs

import (
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Read returns the present value of a knob from the kernel's file, not the value written last.
// The file stays open for the next read (see Forget). For a v2 cpuset that was never set, Read
// returns the effective set, which comes from the parent. If a container has two levels (see
// Nest) with different values, Read returns the one that Apply did not write.
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
