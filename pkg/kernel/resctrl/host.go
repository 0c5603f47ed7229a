// Package resctrl divides caches and memory bandwidth among groups of processes with the
// kernel's resctrl file system. No other package touches it.
//
// A control group takes one of a few CLOSIDs. The names of all groups that this package creates
// start with its prefix, so that it recognizes them after a restart. It changes no other group
// except the default one, if a class asks for that.
package resctrl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/schemata"
)

const (
	statusFile   = "info/last_cmd_status"
	schemataFile = "schemata"
	tasksFile    = "tasks"
)

// Host is the resctrl tree of a machine. It is safe for concurrent use.
type Host struct {
	tree, proc Files
	close      func() error
	monitors   monitors

	mu   sync.Mutex // held for a whole command, because the status file describes only the last one
	info schemata.Info
}

// Open finds the resctrl mount below hostRoot ("/" on the host itself). It returns
// ErrNone where there is none, and mounts nothing.
func Open(hostRoot string) (*Host, error) {
	hostRoot, err := filepath.Abs(hostRoot)
	if err != nil {
		return nil, err
	}
	point, mbps, err := findMount(hostRoot)
	if err != nil {
		return nil, err
	}
	tree, err := os.OpenRoot(point)
	if err != nil {
		return nil, fmt.Errorf("opening resctrl: %w", err)
	}
	proc, err := os.OpenRoot(filepath.Join(hostRoot, "proc"))
	if err != nil {
		tree.Close()
		return nil, fmt.Errorf("opening /proc beside resctrl: %w", err)
	}
	h, err := New(folder{tree}, folder{proc}, mbps)
	if err == nil {
		h.monitors, err = newMonitors(point)
	}
	if err != nil {
		tree.Close()
		proc.Close()
		return nil, err
	}
	h.close = func() error { proc.Close(); return tree.Close() }
	return h, nil
}

// New returns a Host for trees of resctrl and /proc; mbps says whether resctrl is mounted with
// mba_MBps. Such a host can't monitor.
func New(tree, proc Files, mbps bool) (*Host, error) {
	h := &Host{tree: tree, proc: proc, close: func() error { return nil }}
	root, err := h.read("")
	if err != nil {
		return nil, err
	}
	h.info, err = schemata.ParseInfo(func(file string) (string, bool) {
		text, err := tree.Read("info/" + file)
		return text, err == nil
	}, root, mbps)
	if err != nil {
		return nil, fmt.Errorf("reading what resctrl can do: %w", err)
	}
	return h, nil
}

// Close closes the handles. It changes nothing.
func (h *Host) Close() error { return h.close() }

// Info returns what this machine can control and monitor.
func (h *Host) Info() schemata.Info { return h.info }

// read returns a group's schemata.
func (h *Host) read(group string) (schemata.Schemata, error) {
	text, err := h.tree.Read(within(group, schemataFile))
	if err != nil {
		return nil, failed(group, "reading its schemata", err)
	}
	s, err := schemata.Parse(text)
	if err != nil {
		return nil, &Error{Group: group, Action: "reading its schemata", Err: err}
	}
	return s, nil
}

// write writes lines to a group's schemata file in one write: the kernel checks all lines before
// it applies any (rdtgroup_schemata_write, fs/resctrl/ctrlmondata.c).
func (h *Host) write(group, lines string) error {
	if lines == "" {
		return nil
	}
	action := "setting its schemata to " + strings.ReplaceAll(strings.TrimSpace(lines), "\n", " ")
	file, err := h.tree.Writer(within(group, schemataFile))
	if err != nil {
		return failed(group, action, err)
	}
	_, err = io.WriteString(file, lines)
	return h.refused(group, action, errors.Join(err, file.Close()))
}

// within returns the path of a group's file.
func within(group, file string) string { return filepath.Join(group, file) }
