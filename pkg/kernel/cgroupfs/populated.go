package cgroupfs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Populated reports whether the cgroup or one of its descendants has a process. A cgroup that
// doesn't exist has none.
func (d *Driver) Populated(dir string) (bool, error) {
	yes, err := d.members().populated(dir)
	if errors.Is(err, ErrGone) {
		return false, nil
	}
	return yes, err
}

func (h *hierarchy) populated(dir string) (bool, error) {
	var yes bool
	err := h.with(dir, func(c *cgroup) (err error) {
		if h.v2 {
			yes, err = c.populated2()
		} else {
			yes, err = c.populated1()
		}
		return err
	})
	return yes, err
}

func (c *cgroup) populated2() (bool, error) {
	text, err := c.read("cgroup.events")
	if err != nil {
		return false, err
	}
	fields := strings.Fields(text)
	at := slices.Index(fields, "populated")
	if at < 0 || at+1 == len(fields) {
		return false, fmt.Errorf("cgroup.events of %s has no line \"populated\"", c.dir)
	}
	return fields[at+1] == "1", nil
}

func (c *cgroup) populated1() (bool, error) {
	procs, err := c.read("cgroup.procs")
	if err != nil || procs != "" {
		return procs != "", err
	}
	if c.folder.Childless() {
		return false, nil
	}
	children, err := c.children()
	if err != nil {
		return false, err
	}
	for _, child := range children {
		yes, err := c.in.populated(child)
		if yes || err != nil && !errors.Is(err, ErrGone) {
			return yes, err
		}
	}
	return false, nil
}
