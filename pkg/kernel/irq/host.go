package irq

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

const (
	folder        = "proc/irq"
	defaultFile   = "proc/irq/default_smp_affinity"
	workqueueFile = "sys/devices/virtual/workqueue/cpumask"
)

// Host reads and writes the interrupt affinities of the machine below a root folder.
type Host struct {
	root *os.Root
}

// Open opens the folder that holds the host's /proc and /sys. It keeps a handle, so that no
// symbolic link leads outside.
func Open(hostRoot string) (*Host, error) {
	root, err := os.OpenRoot(hostRoot)
	if err != nil {
		return nil, fmt.Errorf("interrupts: %w", err)
	}
	return &Host{root: root}, nil
}

// Close closes the folders. The affinities stay.
func (h *Host) Close() error { return h.root.Close() }

// path returns the affinity's file; list reports whether it has Linux' list format instead of
// the mask format.
func (f File) path() (name string, list bool) {
	switch f {
	case Default:
		return defaultFile, false
	case Workqueues:
		return workqueueFile, false
	}
	return path.Join(folder, string(f), "smp_affinity_list"), true
}

// Read returns all affinities. It omits those that the kernel doesn't have or removes
// meanwhile. The error is about files that can't be read; the result has all others.
func (h *Host) Read() (map[File]cpuset.Set, error) {
	dir, err := h.root.Open(folder)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	files := []File{Default, Workqueues}
	for _, name := range names {
		if _, err := strconv.ParseUint(name, 10, 32); err == nil {
			files = append(files, File(name))
		}
	}
	found := make(map[File]cpuset.Set, len(files))
	var errs []error
	for _, f := range files {
		switch cpus, err := h.read(f); {
		case err == nil:
			found[f] = cpus
		case !errors.Is(err, ErrGone):
			errs = append(errs, err)
		}
	}
	return found, errors.Join(errs...)
}

func (h *Host) read(f File) (cpuset.Set, error) {
	name, list := f.path()
	file, err := h.root.Open(name)
	if err != nil {
		return cpuset.Set{}, h.gone(name, err)
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return cpuset.Set{}, h.gone(name, err)
	}
	parse := cpuset.ParseMask
	if list {
		parse = cpuset.Parse
	}
	cpus, err := parse(string(text))
	if err != nil {
		return cpuset.Set{}, fmt.Errorf("%s: %w", name, err)
	}
	return cpus, nil
}

// Write writes an affinity to a file and reads it back. The error is ErrGone, or names the
// file, the value and the kernel's reason. For interrupts that the kernel manages itself or
// that are bound to one CPU, the errno is EIO, or EPERM in newer kernels (write_irq_affinity,
// kernel/irq/proc.c).
func (h *Host) Write(w Write) (cpuset.Set, error) {
	name, list := w.File.path()
	value := w.CPUs.Mask()
	if list {
		value = w.CPUs.String()
	}
	file, err := h.root.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return cpuset.Set{}, h.gone(name, err)
	}
	_, err = file.WriteString(value)
	if err = errors.Join(err, file.Close()); err != nil {
		return cpuset.Set{}, fmt.Errorf("%q: %w", value, h.gone(name, err))
	}
	return h.read(w.File)
}

// gone distinguishes an interrupt that was freed from one whose affinity can't change: if the
// file was already open, the former is EIO as well (proc_reg_write, fs/proc/inode.c).
func (h *Host) gone(name string, err error) error {
	if _, stat := h.root.Stat(name); errors.Is(stat, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", name, ErrGone)
	}
	return err
}

// Balancer returns the process ID of a running irqbalance, "" if there is none. irqbalance
// moves interrupts back every few seconds.
func (h *Host) Balancer() string {
	proc, err := h.root.Open("proc")
	if err != nil {
		return ""
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	for _, name := range names {
		if _, err := strconv.ParseUint(name, 10, 32); err != nil {
			continue
		}
		if comm, err := h.root.ReadFile(path.Join("proc", name, "comm")); err == nil && strings.TrimSpace(string(comm)) == "irqbalance" {
			return name
		}
	}
	return ""
}
