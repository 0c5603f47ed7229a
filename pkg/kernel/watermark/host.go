package watermark

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	scaleFile = "proc/sys/vm/watermark_scale_factor" // Linux 4.6
	minFile   = "proc/sys/vm/min_free_kbytes"
)

// Host reads and writes the watermarks of the machine below a root folder.
type Host struct {
	root *os.Root
}

// Open opens the folder that holds the host's /proc. It keeps a handle, so that no symbolic
// link leads outside.
func Open(hostRoot string) (*Host, error) {
	root, err := os.OpenRoot(hostRoot)
	if err != nil {
		return nil, fmt.Errorf("watermarks: %w", err)
	}
	return &Host{root}, nil
}

// Close closes the handle.
func (h *Host) Close() error { return h.root.Close() }

// Read returns the values in force; a setting that this kernel doesn't have is 0.
func (h *Host) Read() (Values, error) {
	scale, scaleErr := h.read(scaleFile)
	least, leastErr := h.read(minFile)
	return Values{scale, least}, errors.Join(scaleErr, leastErr)
}

func (h *Host) read(name string) (int64, error) {
	text, err := h.root.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("watermarks: %w", err)
	}
	return parse(name, string(text))
}

func parse(name, text string) (int64, error) {
	value, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || value < 0 {
		return 0, fmt.Errorf("watermarks: /%s is %.40q, not a number; it is left alone", name, text)
	}
	return value, nil
}

// Write writes the settings that differ from the values in force, and returns the values in
// force afterwards.
//
// The kernel treats a written min_free_kbytes as set by the user: from then on khugepaged and
// memory hotplug raise it and never lower it (user_min_free_kbytes). This lasts beyond a
// restore, until the next reboot.
func (h *Host) Write(to Values) (Values, error) {
	found, err := h.Read()
	if err != nil {
		return found, err
	}
	var errs []error
	for _, s := range settings(found, to) {
		errs = append(errs, h.write(s))
	}
	now, err := h.Read()
	return now, errors.Join(append(errs, err)...)
}

// setting is the value of one file.
type setting struct {
	file      string
	found, to int64
}

// settings returns the values to write, in order. The step is widened before min is raised, and
// narrowed after min is lowered, so that kswapd works before tasks have to reclaim directly.
func settings(found, to Values) []setting {
	all := []setting{{scaleFile, found.ScaleFactor, to.ScaleFactor}, {minFile, found.MinFreeKB, to.MinFreeKB}}
	if to.ScaleFactor < found.ScaleFactor {
		slices.Reverse(all)
	}
	return slices.DeleteFunc(all, func(s setting) bool { return s.to == 0 || s.to == s.found })
}

func (h *Host) write(s setting) error {
	f, err := h.root.OpenFile(s.file, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(strconv.FormatInt(s.to, 10))
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		return nil
	}
	next := "it stays as it is; the next pass tries again"
	switch {
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		next = "it stays as it is; run Sluice as root of the host, with a writable /proc/sys"
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ERANGE):
		next = "it stays as it is: this kernel takes no such value"
	}
	return fmt.Errorf("watermarks: /%s from %d to %d: %w; %s", s.file, s.found, s.to, err, next)
}
