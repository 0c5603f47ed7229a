package cgroupfs

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/pkg/kernel/thread"
)

// open opens a cgroup; its first user must release it.
func (h *hierarchy) open(dir string) (*cgroup, error) {
	folder, err := h.tree.Open(relative(dir))
	if errors.Is(err, syscall.ENOENT) {
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	if err != nil {
		return nil, err
	}
	h.all.open.Add(1)
	c := &cgroup{in: h, dir: dir, folder: folder, files: map[string]File{}}
	c.uses.Store(1)
	return c, nil
}

// write writes a value to a file with one write(2), which it repeats if a signal interrupted
// it.
func (c *cgroup) write(file, value string) error {
	for {
		err := c.folder.Write(file, value)
		if !errors.Is(err, syscall.EINTR) {
			return c.missing(err)
		}
	}
}

// writeInTurns writes a value to a file for which the kernel may reclaim for seconds. A signal ends the write of a v1
// limit with EINTR, and what has been reclaimed stays so (mem_cgroup_resize_max in mm/memcontrol-v1.c).
func (c *cgroup) writeInTurns(file, value string) error {
	return c.missing(thread.InTurns(func() error { return c.folder.Write(file, value) }))
}

// writeFirst writes to the first of the files that exists, and returns its name.
func (c *cgroup) writeFirst(names []string, value string) error {
	var err error
	for _, name := range names {
		if err = c.write(name, value); !errors.Is(err, syscall.ENOENT) {
			return err
		}
	}
	return err
}

// first returns the name of the first of the files that exists.
func (c *cgroup) first(names []string) (string, error) {
	var err error
	for _, name := range names {
		var f File
		if f, err = c.folder.Open(name); err == nil {
			return name, f.Close()
		}
	}
	return "", c.missing(err)
}

// read returns the text of a file without its last newline. It doesn't keep the file open: v1's
// cgroup.procs shows an outdated list through an open file (cgroup_pidlist_start).
func (c *cgroup) read(file string) (string, error) {
	f, err := c.folder.Open(file)
	if err != nil {
		return "", c.missing(err)
	}
	defer f.Close() //nolint:errcheck // the file was opened for reading
	return c.text(f)
}

// readCached returns the text of the first of the files that exists, without its last newline, and
// keeps the file open.
func (c *cgroup) readCached(names ...string) (string, error) {
	f, temporary, err := c.openCached(names)
	if err != nil {
		return "", err
	}
	if temporary {
		defer f.Close() //nolint:errcheck // the file was opened for reading
	}
	return c.text(f)
}

func (c *cgroup) text(f File) (string, error) {
	var text string
	err := c.scan(f, func(b []byte) { text = string(b) })
	return strings.TrimSuffix(text, "\n"), err
}

// scan calls take with the whole text of a file, which is valid only during the call.
func (c *cgroup) scan(f File, take func([]byte)) error {
	buffer, _ := c.in.all.buffers.Get().(*[]byte)
	defer c.in.all.buffers.Put(buffer)
	for n := 0; ; {
		got, err := f.ReadAt((*buffer)[n:], int64(n))
		if err != nil && !errors.Is(err, io.EOF) {
			return c.missing(err)
		}
		// The kernel returns as much as fits, so a buffer that isn't full holds the whole text.
		if n += got; got == 0 || n < len(*buffer) {
			take((*buffer)[:n])
			return nil
		}
		*buffer = append(*buffer, make([]byte, len(*buffer))...)
	}
}

// children lists the direct children.
func (c *cgroup) children() ([]string, error) {
	names, err := c.folder.Children()
	if err != nil {
		return nil, c.missing(err)
	}
	for i, name := range names {
		names[i] = path.Join(c.dir, name)
	}
	return names, nil
}

// missing distinguishes the two meanings of ENOENT: the cgroup was removed after it was opened,
// or it never had the file. ENODEV has two meanings as well: the cgroup of an open file was
// removed, or a block device doesn't exist.
func (c *cgroup) missing(err error) error {
	switch {
	case err == nil:
	case errors.Is(err, syscall.ENODEV):
		if c.exists() {
			return fmt.Errorf("%w: %w", ErrNoDevice, err)
		}
		return fmt.Errorf("%w: %w", ErrGone, err)
	case errors.Is(err, syscall.ENOENT):
		if c.removed() {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	case errors.Is(err, syscall.EOPNOTSUPP):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

// removed reports whether the cgroup itself was removed, whatever is at its path now. Every cgroup
// has the file cgroup.procs.
func (c *cgroup) removed() bool {
	f, err := c.folder.Open("cgroup.procs")
	if err != nil {
		return errors.Is(err, syscall.ENOENT)
	}
	f.Close() //nolint:errcheck // the file was opened for reading
	return false
}

// exists reports whether a cgroup is at the path now.
func (c *cgroup) exists() bool {
	f, err := c.in.tree.Open(relative(c.dir))
	if err != nil {
		return false
	}
	f.Close() //nolint:errcheck // closing a folder loses no data
	return true
}

// relative returns a cgroup's path relative to the root of its hierarchy.
func relative(dir string) string {
	if dir == "/" {
		return "."
	}
	return strings.TrimPrefix(dir, "/")
}
