package cgroupfs

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"syscall"
)

// open opens a cgroup, which its first user releases.
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

// write sends a value to a file in one write(2), again where a signal broke it off.
func (c *cgroup) write(file, value string) error {
	for {
		err := c.folder.Write(file, value)
		if !errors.Is(err, syscall.EINTR) {
			return c.missing(err)
		}
	}
}

// writeFirst writes to the first of the files that is there, and says which.
func (c *cgroup) writeFirst(names []string, value string) error {
	var err error
	for _, name := range names {
		if err = c.write(name, value); !errors.Is(err, syscall.ENOENT) {
			return err
		}
	}
	return err
}

// first is the first of the files that is there.
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

// read returns a file without its last newline, and doesn't keep it open: v1's
// cgroup.procs shows an old list through an open file (cgroup_pidlist_start).
func (c *cgroup) read(file string) (string, error) {
	f, err := c.folder.Open(file)
	if err != nil {
		return "", c.missing(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	return c.text(f)
}

// look returns the first of the files that is there, without its last newline, and
// keeps it open.
func (c *cgroup) look(names ...string) (string, error) {
	f, temporary, err := c.kept(names)
	if err != nil {
		return "", err
	}
	if temporary {
		defer f.Close() //nolint:errcheck // it was only read
	}
	return c.text(f)
}

func (c *cgroup) text(f File) (string, error) {
	var text string
	err := c.scan(f, func(b []byte) { text = string(b) })
	return strings.TrimSuffix(text, "\n"), err
}

// scan hands over the whole text of a file, which is only lent.
func (c *cgroup) scan(f File, take func([]byte)) error {
	buffer, _ := c.in.all.buffers.Get().(*[]byte)
	defer c.in.all.buffers.Put(buffer)
	for n := 0; ; {
		got, err := f.ReadAt((*buffer)[n:], int64(n))
		if err != nil && !errors.Is(err, io.EOF) {
			return c.missing(err)
		}
		// The kernel hands out all that fits: a buffer that isn't full has it all.
		if n += got; got == 0 || n < len(*buffer) {
			take((*buffer)[:n])
			return nil
		}
		*buffer = append(*buffer, make([]byte, len(*buffer))...)
	}
}

// children lists the cgroups directly below.
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

// missing tells the two meanings of ENOENT apart: the cgroup was removed after
// it was opened, or it never had the file. ENODEV is the same for an open file,
// and for a file of block devices that there is no such device.
func (c *cgroup) missing(err error) error {
	switch {
	case err == nil:
	case errors.Is(err, syscall.ENODEV):
		if c.exists() {
			return fmt.Errorf("%w: %w", ErrNoDevice, err)
		}
		return fmt.Errorf("%w: %w", ErrGone, err)
	case errors.Is(err, syscall.ENOENT):
		if !c.exists() {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	case errors.Is(err, syscall.EOPNOTSUPP):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

// exists reports whether a cgroup is at the path now.
func (c *cgroup) exists() bool {
	f, err := c.in.tree.Open(relative(c.dir))
	if err != nil {
		return false
	}
	f.Close() //nolint:errcheck // a folder
	return true
}

// relative is a cgroup's path as a name under its hierarchy's root.
func relative(dir string) string {
	if dir == "/" {
		return "."
	}
	return strings.TrimPrefix(dir, "/")
}
