package cgroupfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// oomWatches counts the kernel's notices of v1, one event counter for each cgroup.
type oomWatches struct {
	mu sync.Mutex
	by map[string]*oomWatch
}

type oomWatch struct {
	eventfd int
	count   int64
}

// OOMs counts how often the kernel had to kill since this cgroup was at its limit, and
// nothing could be reclaimed. On v2 it is the cgroup's own limit (memory.events.local,
// Linux 5.2). v1 has no such counter, and counts kills in the cgroup of who was killed,
// which is soon gone: there it counts notices since the first call, which the kernel
// gives for this cgroup's limit and for those above it (mem_cgroup_oom_notify).
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
	case !errors.Is(err, unix.EAGAIN): // which is none
		return one.count, fmt.Errorf("notices of OOM kills in %s: %w", c.dir, err)
	}
	return one.count, nil
}

// noticeOOMs asks the kernel for notices (Documentation/admin-guide/cgroup-v1/memory.rst,
// 10. OOM Control).
func (c *cgroup) noticeOOMs() (eventfd int, err error) {
	control, err := c.folder.Open("memory.oom_control")
	if err != nil {
		return 0, c.missing(err)
	}
	defer control.Close() //nolint:errcheck // the kernel keeps the cgroup, not the file
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

// forget ends the counting in a cgroup.
func (w *oomWatches) forget(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.by[dir]; one != nil {
		unix.Close(one.eventfd) //nolint:errcheck // there is nothing to lose
		delete(w.by, dir)
	}
}
