package cgroupfs

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
)

// maxHandles bounds the open files and folders that a driver keeps. The kernel
// holds 4.7 KiB for each file that was read (seen on 6.18: seq_file's page, charged
// to this process' cgroup), so 75 MiB at most. 500 containers have 10,000: 5,000
// for their knobs, 5,000 for what they use. BenchmarkPass shows what more containers
// than that cost.
const maxHandles = 16384

// handles counts what a driver keeps open.
type handles struct {
	limit    int64
	open     atomic.Int64
	detached atomic.Int64 // writes of CPUs that are under way
	buffers  sync.Pool    // of *[]byte, for reading
}

// newHandles leaves at least half of the process' file descriptors to others.
func newHandles() *handles {
	h := &handles{limit: maxHandles}
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil && files.Cur/2 < maxHandles {
		h.limit = int64(files.Cur / 2)
	}
	h.buffers.New = func() any {
		b := make([]byte, 4096)
		return &b
	}
	return h
}

// hierarchy is a mounted cgroup tree with the cgroups that are kept open. A kept
// file can't show another cgroup than its own: once that is removed, it fails.
type hierarchy struct {
	tree Tree
	v2   bool
	all  *handles

	mu      sync.RWMutex
	cgroups map[string]*cgroup
}

// cgroup is an open cgroup.
type cgroup struct {
	in     *hierarchy
	dir    string // as plan.Object's Path
	folder Folder
	uses   atomic.Int32 // each user's, and one while it is kept; the last closes it
	stuck  atomic.Int32 // writes of its CPUs that have had no effect yet and were given up

	mu    sync.RWMutex
	files map[string]File // by the first of a file's possible names
}

// with calls do with the cgroup at dir. Where the one that was kept open turns
// out to be removed, it is dropped, and do called once more with what is there now.
func (h *hierarchy) with(dir string, do func(*cgroup) error) error {
	c, kept, err := h.acquire(dir)
	if err != nil {
		return err
	}
	err = do(c)
	c.release()
	if !kept || !errors.Is(err, syscall.ENODEV) && !errors.Is(err, syscall.ENOENT) {
		return err
	}
	h.drop(c)
	if c, _, err = h.acquire(dir); err != nil {
		return err
	}
	defer c.release()
	return do(c)
}

// acquire returns the cgroup at dir, to be released; kept says that it was open.
func (h *hierarchy) acquire(dir string) (c *cgroup, kept bool, err error) {
	h.mu.RLock()
	c, kept = h.cgroups[dir]
	if kept {
		c.uses.Add(1)
	}
	h.mu.RUnlock()
	if kept {
		return c, true, nil
	}
	if c, err = h.open(dir); err != nil {
		return nil, false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.cgroups[dir]; !there && h.room(dir) {
		h.cgroups[dir] = c
		c.uses.Add(1)
	}
	return c, false, nil
}

// room makes room for one more handle by closing any other cgroup, and reports
// whether there is some. No order of use is kept: a pass that reads more than fits
// would miss every time with the oldest going first.
func (h *hierarchy) room(keep string) bool {
	for h.all.open.Load() > h.all.limit {
		var victim *cgroup
		for dir, c := range h.cgroups {
			if dir != keep {
				victim = c
				break
			}
		}
		if victim == nil {
			return false
		}
		delete(h.cgroups, victim.dir)
		victim.release()
		if victim.uses.Load() > 0 {
			return false // in use: its handles are closed a little later
		}
	}
	return true
}

// drop forgets a cgroup that is kept.
func (h *hierarchy) drop(c *cgroup) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cgroups[c.dir] == c {
		delete(h.cgroups, c.dir)
		c.release()
	}
}

// forget closes what is kept of the cgroup at dir.
func (h *hierarchy) forget(dir string) {
	h.mu.RLock()
	c := h.cgroups[dir]
	h.mu.RUnlock()
	if c != nil {
		h.drop(c)
	}
}

func (h *hierarchy) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for dir, c := range h.cgroups {
		delete(h.cgroups, dir)
		c.release()
	}
	return h.tree.Close()
}

func (c *cgroup) release() {
	if c.uses.Add(-1) > 0 {
		return
	}
	for _, f := range c.files {
		f.Close() //nolint:errcheck // it was only read
	}
	c.folder.Close() //nolint:errcheck // a folder
	c.in.all.open.Add(-int64(len(c.files)) - 1)
}

// kept returns a file that stays open, the first of the names that is there;
// temporary says that it doesn't, for want of room, and is to be closed.
func (c *cgroup) kept(names []string) (f File, temporary bool, err error) {
	c.mu.RLock()
	f, ok := c.files[names[0]]
	c.mu.RUnlock()
	if ok {
		return f, false, nil
	}
	for _, name := range names {
		if f, err = c.folder.Open(name); !errors.Is(err, syscall.ENOENT) {
			break
		}
	}
	if err != nil {
		return nil, false, c.missing(err)
	}
	c.in.mu.Lock()
	room := c.in.room(c.dir)
	c.in.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.files[names[0]]; there || !room {
		return f, true, nil
	}
	c.files[names[0]] = f
	c.in.all.open.Add(1)
	return f, false, nil
}

// Forget closes what the driver keeps open of a cgroup.
func (d *Driver) Forget(dir string) {
	d.unnest(dir)
	for _, h := range d.trees {
		h.forget(dir)
	}
	d.ooms.forget(dir)
}
