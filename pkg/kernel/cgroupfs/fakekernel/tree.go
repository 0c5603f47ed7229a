package fakekernel

import (
	"io"
	"io/fs"
	"path"
	"syscall"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
)

func failed(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// String names the hierarchy.
func (t *tree) String() string { return "a fake " + t.name + " hierarchy of " + t.kernel.Name }

// Close does nothing, because a kernel can have several drivers.
func (t *tree) Close() error { return nil }

// Open opens a cgroup.
func (t *tree) Open(dir string) (cgroupfs.Folder, error) {
	t.kernel.mu.Lock()
	defer t.kernel.mu.Unlock()
	if !fs.ValidPath(dir) {
		return nil, failed("open", dir, syscall.EINVAL)
	}
	g := t.at(dir)
	if g == nil {
		return nil, failed("open", dir, syscall.ENOENT)
	}
	return folder{g, dir}, nil
}

// Mkdir makes a cgroup as the kernel does: a new v1 cpuset is empty.
func (t *tree) Mkdir(dir string) error {
	t.kernel.mu.Lock()
	defer t.kernel.mu.Unlock()
	parent := t.at(path.Dir(dir))
	if parent == nil {
		return failed("mkdir", dir, syscall.ENOENT)
	}
	if parent.children[path.Base(dir)] != nil {
		return failed("mkdir", dir, syscall.EEXIST)
	}
	parent.children[path.Base(dir)] = newGroup(t, parent)
	return nil
}

// Remove removes a cgroup that is empty.
func (t *tree) Remove(dir string) error {
	t.kernel.mu.Lock()
	defer t.kernel.mu.Unlock()
	switch g := t.at(dir); {
	case g == nil:
		return failed("rmdir", dir, syscall.ENOENT)
	case g.parent == nil, len(g.pids) > 0, len(g.children) > 0:
		return failed("rmdir", dir, syscall.EBUSY)
	default:
		g.die()
		delete(g.parent.children, path.Base(dir))
		return nil
	}
}

type folder struct {
	*group
	dir string
}

func (f folder) Close() error { return nil }

func (f folder) Open(name string) (cgroupfs.File, error) {
	f.in.kernel.mu.Lock()
	defer f.in.kernel.mu.Unlock()
	if !f.has(name) {
		return nil, failed("open", name, syscall.ENOENT)
	}
	return text{f.group, f.dir, name}, nil
}

func (f folder) Write(name, value string) error {
	if err := f.in.kernel.interfered(Access{Dir: "/" + f.dir, File: name, Value: value, Write: true}); err != nil {
		return failed("write", name, err)
	}
	f.in.kernel.mu.Lock()
	defer f.in.kernel.mu.Unlock()
	err := error(syscall.EPERM)
	if !f.namespace {
		err = f.write(name, value)
	}
	if err != nil {
		return failed("write", name, err)
	}
	return nil
}

func (f folder) Children() ([]string, error) {
	f.in.kernel.mu.Lock()
	defer f.in.kernel.mu.Unlock()
	if f.dead {
		return nil, failed("readdir", ".", syscall.ENOENT)
	}
	return sortedNames(f.children), nil
}

func (f folder) Childless() bool {
	f.in.kernel.mu.Lock()
	defer f.in.kernel.mu.Unlock()
	return len(f.children) == 0
}

// text is an open file.
type text struct {
	group *group
	dir   string
	name  string
}

func (t text) Close() error { return nil }

func (t text) ReadAt(p []byte, off int64) (int, error) {
	if err := t.group.in.kernel.interfered(Access{Dir: "/" + t.dir, File: t.name}); err != nil {
		return 0, failed("read", t.name, err)
	}
	t.group.in.kernel.mu.Lock()
	defer t.group.in.kernel.mu.Unlock()
	all, err := t.group.read(t.name)
	if err != nil {
		return 0, failed("read", t.name, err)
	}
	if off >= int64(len(all)) {
		return 0, io.EOF
	}
	n := copy(p, all[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
