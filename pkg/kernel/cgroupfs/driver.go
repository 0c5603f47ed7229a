// Package cgroupfs reads and writes cgroup files, v1 and v2; no other package does. It uses
// each controller in the hierarchy where it is mounted: on a hybrid machine, cpuset and cpu are
// v1. A Spec describes a knob's files on each version.
//
// The driver opens files below a root handle of their hierarchy, write-only, never creates or
// truncates them, and writes each value with one write(2): text from a pod can't reach a file
// outside the cgroup tree.
package cgroupfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// ErrNoCgroups says that a host root has no cgroup tree with the cpuset or the cpu controller:
// it is a synthetic machine, or a container that doesn't see the host's cgroups.
var ErrNoCgroups = errors.New("no cgroup tree with the cpuset or the cpu controller")

// Driver accesses the cgroup tree of a machine. Its only state is the root handles, the cached
// files and the inner levels that it has found (see Forget). It is safe for concurrent use.
type Driver struct {
	host  fs.FS        // for the kernel's switches in /proc and /sys
	trees []*hierarchy // all hierarchies in use

	// Each is nil if the controller isn't mounted.
	cpuset, cpu, cpuacct, memory, io, netCls *hierarchy
	unified                                  *hierarchy // v2, with or without controllers

	levels innerLevels
	ooms   oomWatches
}

// Mount is a mounted cgroup hierarchy, or a fake of one.
type Mount struct {
	Tree        Tree
	V2          bool
	Controllers []string // the names in the options of v1's mount or in v2's cgroup.controllers
}

// Open finds the cgroup hierarchies below hostRoot ("/" on the host itself): in its
// /proc/self/mountinfo, or in the usual places if that file doesn't exist. It returns
// ErrNoCgroups if there are none.
func Open(hostRoot string) (*Driver, error) {
	hostRoot, err := filepath.Abs(hostRoot)
	if err != nil {
		return nil, err
	}
	found, err := findMounts(hostRoot)
	if err != nil {
		return nil, fmt.Errorf("finding the cgroup mounts: %w", err)
	}
	var mounts []Mount
	var part error // of the last mount that shows only a part of a v2 tree
	for _, m := range found {
		mount, err := openMount(m)
		switch {
		case errors.Is(err, errPart):
			part = err
		case err != nil:
			return nil, errors.Join(err, closeAll(mounts))
		case mount.Tree != nil:
			mounts = append(mounts, mount)
		}
	}
	// A container has a mount of its own part, also below the runtime's folder if that is mounted
	// into it. The host's mount, which shows all, counts instead.
	if part != nil && !slices.ContainsFunc(mounts, func(m Mount) bool { return m.V2 }) {
		return nil, errors.Join(part, closeAll(mounts))
	}
	d, err := OpenTrees(os.DirFS(hostRoot), mounts...)
	if errors.Is(err, ErrNoCgroups) {
		return nil, fmt.Errorf("%w below %s", ErrNoCgroups, hostRoot)
	}
	return d, err
}

var errPart = errors.New("only a part of the cgroup tree")

// openMount opens a hierarchy. The returned Mount has no Tree if the hierarchy doesn't exist or
// has no controller that Sluice uses. The error is errPart if the mount shows only a part of a v2
// hierarchy with such a controller.
func openMount(m mount) (Mount, error) {
	if m.v2 {
		text, err := os.ReadFile(filepath.Join(m.point, "cgroup.controllers"))
		if err != nil {
			return Mount{}, nil //nolint:nilerr // there is no v2 hierarchy
		}
		m.controllers = strings.Fields(string(text))
		// Every v2 cgroup except the root has this file.
		if _, err := os.Lstat(filepath.Join(m.point, "cgroup.type")); err == nil {
			if !slices.Contains(m.controllers, "cpuset") && !slices.Contains(m.controllers, "cpu") {
				return Mount{}, nil
			}
			return Mount{}, fmt.Errorf("%s shows %w: run in the host's cgroup namespace, or mount the host's /sys/fs/cgroup", m.point, errPart)
		}
	} else if !slices.ContainsFunc(m.controllers, managed) {
		return Mount{}, nil
	}
	tree, err := openMounted(m.point)
	if errors.Is(err, os.ErrNotExist) {
		return Mount{}, nil
	}
	if err != nil {
		return Mount{}, fmt.Errorf("opening the cgroup hierarchy at %s: %w", m.point, err)
	}
	return Mount{tree, m.v2, m.controllers}, nil
}

func managed(controller string) bool {
	return slices.Contains([]string{"cpuset", "cpu", "cpuacct", "memory", "blkio", "net_cls"}, controller)
}

func closeAll(mounts []Mount) error {
	var errs []error
	for _, m := range mounts {
		errs = append(errs, m.Tree.Close())
	}
	return errors.Join(errs...)
}

// OpenTrees returns a driver of these hierarchies, which the driver closes. host is the root
// folder with the kernel's switches in proc and sys. OpenTrees returns ErrNoCgroups if no
// hierarchy has the cpuset or the cpu controller.
func OpenTrees(host fs.FS, mounts ...Mount) (*Driver, error) {
	d := &Driver{host: host}
	all := newHandles()
	var unused []Mount
	for _, m := range mounts {
		h := &hierarchy{tree: m.Tree, v2: m.V2, all: all, cgroups: map[string]*cgroup{}}
		used := false
		// A controller is in one hierarchy only: in v1's if it is mounted there.
		take := func(of **hierarchy, controller string) {
			if *of == nil && slices.Contains(m.Controllers, controller) {
				*of, used = h, true
			}
		}
		take(&d.cpuset, "cpuset")
		take(&d.cpu, "cpu")
		take(&d.memory, "memory")
		if m.V2 {
			take(&d.io, "io")
		} else {
			take(&d.io, "blkio")
			take(&d.netCls, "net_cls")
			take(&d.cpuacct, "cpuacct")
		}
		if m.V2 && d.unified == nil {
			d.unified, used = h, true
		}
		if used {
			d.trees = append(d.trees, h)
		} else {
			unused = append(unused, m)
		}
	}
	err := closeAll(unused)
	if d.cpuset == nil && d.cpu == nil {
		err = ErrNoCgroups
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close closes the root handles and all cached handles.
func (d *Driver) Close() error {
	var errs []error
	for _, h := range d.trees {
		errs = append(errs, h.close())
	}
	return errors.Join(errs...)
}

// String says where the CPU controllers are: "cpuset v1 at /sys/fs/cgroup/cpuset, cpu v2 at
// /sys/fs/cgroup".
func (d *Driver) String() string {
	return "cpuset " + d.cpuset.String() + ", cpu " + d.cpu.String()
}

func (h *hierarchy) String() string {
	switch {
	case h == nil:
		return "not mounted"
	case h.v2:
		return "v2 at " + h.tree.String()
	}
	return "v1 at " + h.tree.String()
}

// hierarchyOf returns the hierarchy of a controller, nil if the controller isn't mounted.
func (d *Driver) hierarchyOf(controller string) *hierarchy {
	switch controller {
	case "cpuset":
		return d.cpuset
	case "cpu":
		return d.cpu
	case "memory":
		return d.memory
	case "io":
		return d.io
	}
	return d.netCls
}

// at returns the description and the hierarchy of a knob.
func (d *Driver) at(knob knobs.Knob) (*Spec, *hierarchy, error) {
	if knob >= knobs.Knobs {
		return nil, nil, fmt.Errorf("%w: there is no knob %d", ErrUnsupported, knob)
	}
	s := specs[knob]
	h := d.hierarchyOf(s.Controller)
	switch {
	case h == nil:
		return nil, nil, fmt.Errorf("%w: the controller of %s is not mounted", ErrUnsupported, knob)
	case s.Files(h.v2) == nil:
		return nil, nil, fmt.Errorf("%w: %s is not on cgroup %s", ErrUnsupported, knob, version(h.v2))
	}
	return s, h, nil
}

func version(v2 bool) string {
	if v2 {
		return "v2"
	}
	return "v1"
}
