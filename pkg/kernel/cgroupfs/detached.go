package cgroupfs

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// ErrBusy says that the kernel doesn't get to the write. It may still be made.
var ErrBusy = errors.New("the kernel is busy with other changes of cpusets")

const (
	// usualWrite is more than a write of cpuset.cpus takes.
	usualWrite = 2 * time.Millisecond
	// detachedWrite is how long a write may take to have its effect.
	detachedWrite = 50 * time.Millisecond
	// maxDetached bounds the writes that have had their effect and are not back: each
	// holds a thread.
	maxDetached = 256
)

// writeCPUs writes cpuset.cpus, and returns when the kernel shows the value. The write
// itself takes longer where the pages of any process on the machine are being moved to
// other memory nodes: after its effect it waits for all of these (the flush of
// cpuset_migrate_mm_wq at the end of cpuset_write_resmask in kernel/cgroup/cpuset.c;
// seen on 6.1: 5 s for 700 MiB in an emulated machine). Nobody has to wait with it.
func (c *cgroup) writeCPUs(file string, want cpuset.Set) error {
	all := c.in.all
	if c.stuck.Load() > 0 || all.detached.Load() >= maxDetached {
		return ErrBusy // one that is behind another may come after it
	}
	done := make(chan error, 1)
	c.uses.Add(1)
	all.detached.Add(1)
	go func() {
		defer c.release()
		defer all.detached.Add(-1)
		done <- c.write(file, want.String())
	}()
	timer := time.NewTimer(usualWrite)
	defer timer.Stop()
	for waited := usualWrite; ; waited += usualWrite {
		select {
		case err := <-done:
			return err
		case <-timer.C:
		}
		if text, err := c.read(file); err == nil {
			if has, err := cpuset.Parse(text); err == nil && has == want {
				return nil
			}
		}
		if waited >= detachedWrite {
			c.stuck.Add(1)
			go func() { <-done; c.stuck.Add(-1) }() //nolint:errcheck // whoever waited was told that the kernel is busy
			return fmt.Errorf("%s: %w", file, ErrBusy)
		}
		timer.Reset(usualWrite)
	}
}

// writeText writes a set to a file of a cpuset.
func (c *cgroup) writeText(file string, set cpuset.Set) error {
	if file == cpusFile {
		return c.writeCPUs(file, set)
	}
	return c.write(file, set.String())
}
