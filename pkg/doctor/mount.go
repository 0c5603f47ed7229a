package doctor

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// mount is a mounted cgroup hierarchy or resctrl.
type mount struct {
	at          string // path in the mount table
	dir         string // path below Host
	kind        string // "cgroup", "cgroup2", "resctrl"
	root        string // the part of the hierarchy that is visible; "/" is all of it
	readOnly    bool
	controllers []string
	options     string
}

// v1Names maps the controllers that Sluice uses to their names on v1.
var v1Names = map[string]string{"cpuset": "cpuset", "cpu": "cpu", "memory": "memory", "io": "blkio", "net_cls": "net_cls"}

// readMounts lists the mounts as this process sees them: proc/self is this process even if the
// host root is not "/".
func (n *node) readMounts() ([]mount, error) {
	text, err := fs.ReadFile(n.Host, "proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	mounts, err := parseMounts(text)
	if err != nil {
		return nil, fmt.Errorf("/proc/self/mountinfo: %w", err)
	}
	for i := range mounts {
		m := &mounts[i]
		m.dir = strings.TrimPrefix(m.at, "/")
		if rest, below := strings.CutPrefix(m.at, n.Root+"/"); below && n.Root != "/" {
			m.dir = rest
		}
		if m.kind == "cgroup2" {
			m.controllers = strings.Fields(n.text(path.Join(m.dir, "cgroup.controllers")))
		}
	}
	if n.Root != "/" { // the host's mounts come before those of this container
		slices.SortStableFunc(mounts, func(a, b mount) int {
			return n.foreign(a) - n.foreign(b)
		})
	}
	return mounts, nil
}

// foreign returns 1 for a mount outside the host's root and 0 for any other, for sorting.
func (n *node) foreign(m mount) int {
	if strings.HasPrefix(m.at, n.Root+"/") {
		return 0
	}
	return 1
}

func parseMounts(text []byte) ([]mount, error) {
	infos, err := mountinfo.GetMountsFromReader(bytes.NewReader(text), func(i *mountinfo.Info) (skip, stop bool) {
		return i.FSType != "cgroup" && i.FSType != "cgroup2" && i.FSType != "resctrl", false
	})
	if err != nil {
		return nil, err
	}
	mounts := make([]mount, len(infos))
	for i, info := range infos {
		options := strings.Split(info.VFSOptions, ",")
		mounts[i] = mount{
			at: path.Clean("/" + info.Mountpoint), kind: info.FSType, root: info.Root, options: info.VFSOptions,
			readOnly: slices.Contains(strings.Split(info.Options, ","), "ro") || slices.Contains(options, "ro"),
		}
		if info.FSType == "cgroup" {
			mounts[i].controllers = options
		}
	}
	return mounts, nil
}

func (m *mount) v2() bool { return m.kind == "cgroup2" }

func (m *mount) String() string {
	if m.v2() {
		return "v2 at " + m.at
	}
	return "v1 at " + m.at
}

// hierarchy returns the mount of a controller, by its v2 name; it is nil if there is none.
func (n *node) hierarchy(controller string) *mount {
	for i := range n.mounts {
		m := &n.mounts[i]
		if m.kind == "cgroup" && slices.Contains(m.controllers, v1Names[controller]) || m.v2() && slices.Contains(m.controllers, controller) {
			return m
		}
	}
	return nil
}

// unified returns the v2 hierarchy, with or without controllers; it is nil if there is none.
func (n *node) unified() *mount {
	i := slices.IndexFunc(n.mounts, func(m mount) bool { return m.v2() })
	if i < 0 {
		return nil
	}
	return &n.mounts[i]
}

// controllerV2 reports whether a controller is on cgroup v2.
func (n *node) controllerV2(controller string) bool {
	m := n.hierarchy(controller)
	return m != nil && m.v2()
}
