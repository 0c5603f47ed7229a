package cgroupfs

import (
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Tree gives access to the files of one hierarchy: the kernel's below a mount point, or a fake
// (see the package fakekernel). Folders are named relative to the hierarchy's root; "." is the
// root itself. Errors wrap a syscall.Errno.
type Tree interface {
	Open(dir string) (Folder, error)
	Mkdir(dir string) error
	Remove(dir string) error
	Close() error
	String() string // where the hierarchy is: "/sys/fs/cgroup/cpu"
}

// Folder is an open cgroup, whose path is resolved once for all of its files.
type Folder interface {
	Open(file string) (File, error)
	// Write writes a value with one write(2) and returns its error, including EINTR and EAGAIN.
	// It neither creates nor truncates a file.
	Write(file, value string) error
	Children() ([]string, error)
	Childless() bool // false means that there may be child cgroups
	Close() error
}

// File is a cgroup file open for reading. Each read at offset 0 returns the present text. It
// fails with ENODEV once the cgroup is removed, even if another was created at the same path.
type File interface {
	io.ReaderAt
	io.Closer
}

// mounted is the kernel's own tree. os.Root resolves paths and confines them to the tree; file
// names come from this package only.
type mounted struct{ root *os.Root }

func openMounted(point string) (Tree, error) {
	root, err := os.OpenRoot(point)
	if err != nil {
		return nil, err
	}
	return mounted{root}, nil
}

func (m mounted) String() string          { return m.root.Name() }
func (m mounted) Close() error            { return m.root.Close() }
func (m mounted) Mkdir(dir string) error  { return m.root.Mkdir(dir, 0o755) }
func (m mounted) Remove(dir string) error { return m.root.Remove(dir) }

func (m mounted) Open(dir string) (Folder, error) {
	f, err := m.root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &folder{f, int(f.Fd())}, nil
}

// folder uses plain system calls for its files: the runtime's poller would watch an os.File,
// which takes two more calls to open, and on the EAGAIN of memory.reclaim it would wait for an
// event that never comes.
type folder struct {
	*os.File
	fd int
}

func (d *folder) Open(file string) (File, error) {
	fd, err := d.openat(file, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return reader(fd), nil
}

// Write opens the file with O_NONBLOCK: from Linux 6.16 on, lowering memory.max or memory.high
// then doesn't make the writer reclaim (memory_max_write in mm/memcontrol.c). All other files
// and kernels ignore the flag.
func (d *folder) Write(file, value string) error {
	fd, err := d.openat(file, unix.O_WRONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(value))
	if closed := unix.Close(fd); err == nil {
		err = closed
	}
	if err != nil {
		return &os.PathError{Op: "write", Path: file, Err: fmt.Errorf("%q: %w", value, err)}
	}
	return nil
}

func (d *folder) openat(file string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(d.fd, file, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			return fd, nil
		}
		if err != unix.EINTR {
			return 0, &os.PathError{Op: "open", Path: file, Err: err}
		}
	}
}

func (d *folder) Children() ([]string, error) {
	// The handle may be shared, and the read position of a folder belongs to the handle.
	own, err := unix.Openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: ".", Err: err}
	}
	f := os.NewFile(uintptr(own), ".")
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Childless reads the link count, in which kernfs counts folders (kernfs_refresh_inode in
// fs/kernfs/inode.c); it is 2 without children.
func (d *folder) Childless() bool {
	var stat unix.Stat_t
	return unix.Fstat(d.fd, &stat) == nil && stat.Nlink == 2
}

// reader reads from a file descriptor.
type reader int

// ReadAt makes one system call. A short read is not an error, because the kernel returns at
// most a page per read; an empty read is the end.
func (r reader) ReadAt(p []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(int(r), p, off)
		if n == 0 && err == nil && len(p) > 0 {
			return 0, io.EOF
		}
		if err == nil {
			return n, nil
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}

func (r reader) Close() error { return unix.Close(int(r)) }
