// Package sysfs reads the machine from /sys and /proc, and watches for hotplug.
//
// Each file reads one area of the kernel's tree; the documents are
// Documentation/ABI/stable/sysfs-devices-{system-cpu,node} and
// Documentation/admin-guide/cputopology.rst.
package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// attempts bounds the reads of a machine that changes while it is read.
const attempts = 4

// Read reads the machine whose host root is fsys ("sys/devices/system/cpu/online",
// "proc/meminfo"), normally os.DirFS("/").
//
// CPUs and nodes may appear and disappear meanwhile, so that files vanish or disagree. A failed
// or inconsistent read is repeated a few times, some 10 ms apart, before its error, which names
// the file, is returned.
func Read(fsys fs.FS) (*topology.Machine, error) {
	for attempt := 1; ; attempt++ {
		m, err := readOnce(fsys)
		if err == nil || attempt == attempts {
			return m, err
		}
		time.Sleep(time.Duration(attempt) * 10 * time.Millisecond)
	}
}

func readOnce(fsys fs.FS) (*topology.Machine, error) {
	t := tree{fsys}
	before := t.stamp()
	var m topology.Machine
	for _, read := range []func(*topology.Machine) error{
		t.cpus, t.domains, t.kinds, t.nodes, t.caches, t.devices,
	} {
		if err := read(&m); err != nil {
			return nil, fmt.Errorf("read the machine's topology: %w", err)
		}
	}
	if t.stamp() != before {
		return nil, errors.New("read the machine's topology: CPUs or NUMA nodes kept going on- and offline meanwhile (" + strings.Join(stampFiles[:], ", ") + ")")
	}
	return topology.New(m), nil
}

// stampFiles are cheap to read, and change whenever a CPU, a node or the first memory of a node
// appears or disappears.
var stampFiles = [...]string{
	"sys/devices/system/cpu/online",
	"sys/devices/system/cpu/present",
	"sys/devices/system/node/online",
	"sys/devices/system/node/has_memory",
}

func (t tree) stamp() (texts [len(stampFiles)]string) {
	for i, name := range stampFiles {
		texts[i], _, _ = t.text(name)
	}
	return texts
}

// tree reads values from the files below a host's root. The second result of each method is
// false if the file does not exist. Errors name the file.
type tree struct {
	fsys fs.FS
}

func (t tree) text(name string) (string, bool, error) {
	content, err := fs.ReadFile(t.fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return strings.TrimSpace(string(content)), true, nil
}

func (t tree) list(name string) (cpuset.Set, bool, error) {
	text, ok, err := t.text(name)
	if err != nil || !ok {
		return cpuset.Set{}, false, err
	}
	set, err := cpuset.Parse(text)
	if err != nil {
		return cpuset.Set{}, false, fmt.Errorf("%s: %w", name, err)
	}
	return set, true, nil
}

// firstList reads the first of the named lists that exists. It is an error if none does.
func (t tree) firstList(names ...string) (cpuset.Set, error) {
	for _, name := range names {
		if set, ok, err := t.list(name); ok || err != nil {
			return set, err
		}
	}
	return cpuset.Set{}, fmt.Errorf("%s does not exist", strings.Join(names, " or "))
}

// number reads a decimal number; it returns missing if the file does not exist.
func (t tree) number(name string, missing int) (int, error) {
	text, ok, err := t.text(name)
	if err != nil || !ok {
		return missing, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %.40q is not a number", name, text)
	}
	return n, nil
}
