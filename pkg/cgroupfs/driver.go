// Package cgroupfs reads and writes cgroup files, v1 and v2, and is the only
// package that does. Each controller is used where it is: on a hybrid machine
// cpuset and cpu are v1.
//
// Files are opened below a root handle of their hierarchy, write-only, never
// created or truncated, and get one write(2) a value: no text from a pod can
// reach a file outside the cgroup tree.
package cgroupfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/plan"
)

// ErrNoCgroups says that a host root has no cgroup tree with the cpuset or the
// cpu controller: a synthetic machine, or a container without the host's.
var ErrNoCgroups = errors.New("no cgroup tree with the cpuset or the cpu controller")

// Driver is the cgroup tree of a machine. It has no state but its root handles
// and may be used concurrently.
type Driver struct {
	cpuset, cpu *hierarchy // nil where the controller isn't mounted
}

// hierarchy is a mounted cgroup tree.
type hierarchy struct {
	root *os.Root
	v2   bool
}

// Open finds the cgroup hierarchies below hostRoot ("/" on the host itself) in
// its /proc/self/mountinfo, or in the usual places where that doesn't exist. It
// returns ErrNoCgroups where there are none.
func Open(hostRoot string) (*Driver, error) {
	hostRoot, err := filepath.Abs(hostRoot)
	if err != nil {
		return nil, err
	}
	mounts, err := findMounts(hostRoot)
	if err != nil {
		return nil, fmt.Errorf("finding the cgroup mounts: %w", err)
	}
	var d Driver
	if d.cpuset, err = openController(mounts, "cpuset"); err != nil {
		return nil, err
	}
	if d.cpu, err = openController(mounts, "cpu"); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if d.cpuset == nil && d.cpu == nil {
		return nil, fmt.Errorf("%w below %s", ErrNoCgroups, hostRoot)
	}
	return &d, nil
}

// openController opens the hierarchy that has the controller, nil if none. A
// controller is in one hierarchy only: v1's where it is mounted there.
func openController(mounts []mount, controller string) (*hierarchy, error) {
	for _, m := range mounts {
		if m.v2 {
			text, err := os.ReadFile(filepath.Join(m.point, "cgroup.controllers"))
			if err != nil || !slices.Contains(strings.Fields(string(text)), controller) {
				continue
			}
			// Every v2 cgroup but the root has this file.
			if _, err := os.Lstat(filepath.Join(m.point, "cgroup.type")); err == nil {
				return nil, fmt.Errorf("%s shows only a part of the cgroup tree: run in the host's cgroup namespace, or mount the host's /sys/fs/cgroup", m.point)
			}
		} else if !slices.Contains(m.controllers, controller) {
			continue
		}
		root, err := os.OpenRoot(m.point)
		if err == nil {
			return &hierarchy{root: root, v2: m.v2}, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("opening the %s controller's hierarchy: %w", controller, err)
		}
	}
	return nil, nil
}

// Close gives back the root handles.
func (d *Driver) Close() error {
	var errs []error
	for _, h := range []*hierarchy{d.cpuset, d.cpu} {
		if h != nil {
			errs = append(errs, h.root.Close())
		}
	}
	return errors.Join(errs...)
}

// String says where the controllers are: "cpuset v1 at /sys/fs/cgroup/cpuset,
// cpu v2 at /sys/fs/cgroup".
func (d *Driver) String() string {
	return "cpuset " + d.cpuset.String() + ", cpu " + d.cpu.String()
}

func (h *hierarchy) String() string {
	switch {
	case h == nil:
		return "not mounted"
	case h.v2:
		return "v2 at " + h.root.Name()
	}
	return "v1 at " + h.root.Name()
}

// open opens the cgroup that has a knob's files.
func (d *Driver) open(dir string, knob plan.Knob) (*cgroup, error) {
	h := d.cpuset
	if knob == plan.Quota {
		h = d.cpu
	}
	if h == nil {
		return nil, fmt.Errorf("%w: the controller of %s is not mounted", ErrUnsupported, knob)
	}
	return h.open(dir)
}
