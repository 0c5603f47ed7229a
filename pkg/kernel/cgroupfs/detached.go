package cgroupfs

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// ErrBusy says that a write has not taken effect in time. It may still take effect later.
var ErrBusy = errors.New("the kernel is busy with other changes of cpusets")

const (
	// usualWrite is longer than a write of cpuset.cpus normally takes.
	usualWrite = 2 * time.Millisecond
	// detachedWrite is how long to wait for a write to take effect.
	detachedWrite = 50 * time.Millisecond
	// maxDetached limits the number of writes that have taken effect but not returned: each
	// occupies a thread.
	maxDetached = 256
)

// writeCPUs writes cpuset.cpus and returns as soon as the kernel shows the value. The write(2)
// itself takes longer while the kernel migrates pages of any process on the machine to other
// memory nodes: after it has taken effect, it waits for all those migrations (the flush of
// cpuset_migrate_mm_wq at the end of cpuset_write_resmask in kernel/cgroup/cpuset.c; observed
// on 6.1: 5 s for 700 MiB in an emulated machine). Callers need not wait for those migrations.
func (c *cgroup) writeCPUs(file string, want cpuset.Set) error {
	all := c.in.all
	if c.stuck.Load() > 0 || all.detached.Load() >= maxDetached {
		return ErrBusy // a second write could overtake the pending one
	}
	done := make(chan error, 1)
	c.uses.Add(1)
	all.detached.Add(1)
	go func() {
		defer all.detached.Add(-1)
		defer c.release()
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
			go func() { <-done; c.stuck.Add(-1) }() //nolint:errcheck // the caller has received ErrBusy
			return fmt.Errorf("%s: %w", file, ErrBusy)
		}
		timer.Reset(usualWrite)
	}
}

// writeText writes a set to a cpuset file.
func (c *cgroup) writeText(file string, set cpuset.Set) error {
	if file == cpusFile {
		return c.writeCPUs(file, set)
	}
	return c.write(file, set.String())
}
