package cgroupfs

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Processes lists the processes in a cgroup and in those below it; none where it
// is gone.
func (d *Driver) Processes(dir string) ([]int, error) {
	h := d.cpuset
	if h == nil {
		h = d.cpu
	}
	var pids []int
	err := h.processes(dir, &pids)
	if errors.Is(err, ErrGone) {
		err = nil
	}
	return pids, err
}

func (h *hierarchy) processes(dir string, pids *[]int) error {
	return h.with(dir, func(c *cgroup) error {
		text, err := c.list("cgroup.procs")
		if err != nil {
			return err
		}
		for field := range strings.FieldsSeq(text) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return fmt.Errorf("cgroup.procs of %s: %q is not a process", dir, field)
			}
			*pids = append(*pids, pid)
		}
		if c.folder.Childless() {
			return nil
		}
		children, err := c.children()
		if err != nil {
			return err
		}
		for _, child := range children {
			if err := h.processes(child, pids); err != nil && !errors.Is(err, ErrGone) {
				return err
			}
		}
		return nil
	})
}

// list reads a file of records to its end: the kernel hands out a page at a time.
func (c *cgroup) list(file string) (string, error) {
	f, err := c.folder.Open(file)
	if err != nil {
		return "", c.missing(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.NewSectionReader(f, 0, math.MaxInt64))
	return string(text), c.missing(err)
}
