package cgroupfs

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
)

// maxHandles limits the number of files and folders that a driver keeps open. The kernel
// allocates 4.7 KiB for each file that has been read (measured on 6.18: the page of seq_file,
// charged to this process' cgroup), so the limit costs at most 75 MiB. 500 containers need
// 10,000 handles: 5,000 for their knobs and 5,000 for their usage counters. BenchmarkPass shows
// the cost of exceeding the limit.
const maxHandles = 16384

// handles counts the open files and folders of a driver.
type handles struct {
	limit    int64
	open     atomic.Int64
	detached atomic.Int64 // writes of cpuset.cpus in progress
	buffers  sync.Pool    // of *[]byte, for reading
}

// newHandles leaves at least half of the process' file descriptors to the rest of the process.
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

// hierarchy is a mounted cgroup tree with a cache of open cgroups. A cached file never shows a
// cgroup other than its own: once that cgroup is removed, reads fail.
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
	dir    string // the cgroup's path, as in knobs.Object
	folder Folder
	uses   atomic.Int32 // one for each user and one for the cache; whoever drops the last one closes the cgroup
	stuck  atomic.Int32 // abandoned writes of cpuset.cpus that have not taken effect yet

	mu    sync.RWMutex
	files map[string]File // open files, by the first of a file's possible names
}

// with calls do with the cgroup at dir. If the cached cgroup turns out to have been removed,
// with drops it from the cache and calls do once more with the cgroup that is at dir now. A file
// that the kernel lacks leaves the cgroup in the cache.
func (h *hierarchy) with(dir string, do func(*cgroup) error) error {
	c, kept, err := h.acquire(dir)
	if err != nil {
		return err
	}
	err = do(c)
	c.release()
	if !kept || !errors.Is(err, syscall.ENODEV) && !errors.Is(err, ErrGone) {
		return err
	}
	h.drop(c)
	if c, _, err = h.acquire(dir); err != nil {
		return err
	}
	defer c.release()
	return do(c)
}

// acquire returns the cgroup at dir, which the caller must release; kept reports whether it was
// in the cache.
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

// room makes room for one more handle by closing any other cgroup, and reports whether it
// succeeded. The choice is arbitrary and not the least recently used cgroup: a pass that reads
// more cgroups than fit would then miss the cache every time.
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
			return false // the cgroup is in use: its last user closes the handles
		}
	}
	return true
}

// drop removes a cgroup from the cache.
func (h *hierarchy) drop(c *cgroup) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cgroups[c.dir] == c {
		delete(h.cgroups, c.dir)
		c.release()
	}
}

// forget closes the cached handles of the cgroup at dir.
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
		f.Close() //nolint:errcheck // the file was opened for reading
	}
	c.folder.Close() //nolint:errcheck // closing a folder loses no data
	c.in.all.open.Add(-int64(len(c.files)) - 1)
}

// openCached opens the first of the names that exists and caches the file. temporary reports that the
// cache had no room, so that the caller must close the file.
func (c *cgroup) openCached(names []string) (f File, temporary bool, err error) {
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

// Forget closes the handles that the driver has cached for a cgroup.
func (d *Driver) Forget(dir string) {
	d.unnest(dir)
	for _, h := range d.trees {
		h.forget(dir)
	}
	d.ooms.forget(dir)
}
