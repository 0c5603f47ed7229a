package cgroupfs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
)

// cgroup is an open cgroup: its path is walked once for all of its files.
type cgroup struct {
	in     *hierarchy
	dir    string // as plan.Object's Path
	folder *os.Root
}

func (h *hierarchy) open(dir string) (*cgroup, error) {
	folder, err := h.root.OpenRoot(relative(dir))
	if errors.Is(err, syscall.ENOENT) {
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	if err != nil {
		return nil, err
	}
	return &cgroup{in: h, dir: dir, folder: folder}, nil
}

func (c *cgroup) close() { c.folder.Close() }

// write sends a value to a file in one write(2).
func (c *cgroup) write(file, value string) error {
	f, err := c.folder.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return c.missing(err)
	}
	_, err = f.WriteString(value)
	return c.missing(errors.Join(err, f.Close()))
}

// read returns a file without its last newline.
func (c *cgroup) read(file string) (string, error) {
	text, err := c.folder.ReadFile(file)
	if err != nil {
		return "", c.missing(err)
	}
	return strings.TrimSuffix(string(text), "\n"), nil
}

// children lists the cgroups directly below.
func (c *cgroup) children() ([]string, error) {
	f, err := c.folder.Open(".")
	if err != nil {
		return nil, c.missing(err)
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, c.missing(err)
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, path.Join(c.dir, e.Name()))
		}
	}
	return dirs, nil
}

// childless reports whether surely no cgroup is below: kernfs counts folders in
// the link count (kernfs_refresh_inode, fs/kernfs/inode.c), 2 for none.
func (c *cgroup) childless() bool {
	info, err := c.folder.Stat(".")
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink == 2
}

// missing tells the two meanings of ENOENT apart: the cgroup was removed after
// it was opened, or it never had the file. ENODEV is the same for an open file.
func (c *cgroup) missing(err error) error {
	switch {
	case errors.Is(err, syscall.ENODEV):
		return fmt.Errorf("%w: %w", ErrGone, err)
	case errors.Is(err, syscall.ENOENT):
		if _, statErr := c.in.root.Stat(relative(c.dir)); statErr != nil {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	case errors.Is(err, syscall.EOPNOTSUPP):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

// relative is a cgroup's path as a name under its hierarchy's root.
func relative(dir string) string {
	if dir == "/" {
		return "."
	}
	return strings.TrimPrefix(dir, "/")
}
