package cgroupfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// oomWatches counts v1's OOM notifications, with one eventfd for each cgroup.
type oomWatches struct {
	mu sync.Mutex
	by map[string]*oomWatch
}

type oomWatch struct {
	eventfd int
	count   int64
}

// OOMs returns how often the kernel had to kill because this cgroup was at its limit and
// nothing could be reclaimed. v2 counts this for the cgroup's own limit (memory.events.local,
// Linux 5.2). v1 has no such counter: it counts kills in the victim's cgroup, which soon
// disappears. On v1, OOMs counts notifications since its first call, which the kernel sends for
// the limits of this cgroup and its ancestors (mem_cgroup_oom_notify).
func (d *Driver) OOMs(dir string) (kills int64, err error) {
	if d.memory == nil {
		return 0, fmt.Errorf("%w: the memory controller is not mounted", ErrUnsupported)
	}
	err = d.memory.with(dir, func(c *cgroup) error {
		if c.in.v2 {
			return c.scanFile("memory.events.local", func(b []byte) { kills = count(field(b, "oom")) })
		}
		kills, err = d.ooms.read(c)
		return err
	})
	return kills, err
}

func (w *oomWatches) read(c *cgroup) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.by[c.dir]
	if one == nil {
		eventfd, err := c.noticeOOMs()
		if err != nil {
			return 0, err
		}
		if w.by == nil {
			w.by = map[string]*oomWatch{}
		}
		one = &oomWatch{eventfd: eventfd}
		w.by[c.dir] = one
	}
	var buffer [8]byte
	n, err := unix.Read(one.eventfd, buffer[:])
	switch {
	case n == len(buffer):
		one.count += int64(binary.NativeEndian.Uint64(buffer[:]) & (1<<62 - 1))
	case !errors.Is(err, unix.EAGAIN): // EAGAIN: there was no notification
		return one.count, fmt.Errorf("notices of OOM kills in %s: %w", c.dir, err)
	}
	return one.count, nil
}

// noticeOOMs subscribes to OOM notifications (Documentation/admin-guide/cgroup-v1/memory.rst,
// 10. OOM Control).
func (c *cgroup) noticeOOMs() (eventfd int, err error) {
	control, err := c.folder.Open("memory.oom_control")
	if err != nil {
		return 0, c.missing(err)
	}
	defer control.Close() //nolint:errcheck // the subscription doesn't need the file
	file, ok := control.(reader)
	if !ok {
		return 0, ErrUnsupported
	}
	eventfd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return 0, fmt.Errorf("a counter of OOM kills: %w", err)
	}
	if err := c.write("cgroup.event_control", strconv.Itoa(eventfd)+" "+strconv.Itoa(int(file))); err != nil {
		return 0, errors.Join(err, unix.Close(eventfd))
	}
	return eventfd, nil
}

// forget cancels the subscription of a cgroup.
func (w *oomWatches) forget(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.by[dir]; one != nil {
		unix.Close(one.eventfd) //nolint:errcheck // closing an eventfd loses no data
		delete(w.by, dir)
	}
}
