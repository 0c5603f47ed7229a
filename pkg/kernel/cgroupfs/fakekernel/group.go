package fakekernel

import (
	"maps"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// These constants describe the machine.
const (
	CPUs  = 8
	Nodes = 2
	page  = 4096
)

// none stands for the absence of a limit, both for a quota in µs and for memory.
const none = -1

// group is a cgroup with the values of its files in the kernel's units.
type group struct {
	in       *tree
	parent   *group
	children map[string]*group
	dead     bool
	// namespace says that the writer's cgroup namespace begins here: v2 refuses its writes.
	namespace bool
	pids      []int // of the processes in this cgroup

	cpus, mems cpuset.Set // in cgroup v2 the configured sets

	quota, period, burst int64 // in µs
	shares, btShares     int64
	idle                 int64
	bvt, identity        int64
	cpuPriority, qos     int64
	cgroupPriority       int64
	offline              int64

	usage, cache             int64
	limit, swap, soft        int64 // in bytes; none for no limit
	minimum, low, high       int64
	oomGroup                 int64
	swapMax, swappiness      int64
	wmarkRatio, wmarkScale   int64
	minAdj                   int64
	memPriority, priorityOOM int64
	memQoS                   int64
	cacheOn, cacheSize       int64
	cacheSync, cacheRatio    int64

	classID    int64
	weights    ioWeights
	bfqWeights ioWeights
	ioPolicy   int                  // index of the policy's name
	throttling map[string][4]uint64 // rbps, wbps, riops and wiops by device; 0 for no limit

	counters Counters
}

func newGroup(t *tree, parent *group) *group {
	g := &group{
		in: t, parent: parent, children: map[string]*group{},
		quota: none, period: 100000, shares: 1024, btShares: 1024,
		limit: none, swap: none, soft: none, high: none, swapMax: none, swappiness: 60, wmarkScale: 50, cacheRatio: 100,
		weights:    ioWeights{t.kernel.defaultWeight(), map[string]int64{}},
		bfqWeights: ioWeights{100, map[string]int64{}}, throttling: map[string][4]uint64{},
	}
	if parent != nil {
		// The kernel copies these values from the parent at creation.
		g.qos, g.cgroupPriority, g.memQoS = parent.qos, parent.cgroupPriority, parent.memQoS
		g.minAdj, g.classID, g.swappiness = parent.minAdj, parent.classID, parent.swappiness
	}
	return g
}

// die ends a cgroup. Accesses to its open files fail from now on.
func (g *group) die() {
	g.dead = true
	for _, child := range g.children {
		child.die()
	}
}

// all calls do with a cgroup and all below it until do returns false, and reports whether it never
// did.
func (g *group) all(do func(*group) bool) bool {
	if !do(g) {
		return false
	}
	for child := range maps.Values(g.children) {
		if !child.all(do) {
			return false
		}
	}
	return true
}

// file describes how a file is shown and stored.
type file struct {
	root  bool // the root cgroup has the file, too
	show  func(*group) string
	store func(*group, string) error // nil for a read-only file
}

func (g *group) has(name string) bool {
	f, ok := g.in.files[name]
	return ok && !g.dead && (f.root || g.parent != nil)
}

func (g *group) read(name string) (string, error) {
	if g.dead {
		return "", syscall.ENODEV
	}
	if !g.has(name) {
		return "", syscall.ENOENT
	}
	if g.in.files[name].show == nil {
		return "", syscall.EINVAL
	}
	return g.in.files[name].show(g) + "\n", nil
}

// write stores a value. An empty write has no effect (cgroup_file_write).
func (g *group) write(name, value string) error {
	switch {
	case !g.has(name):
		return syscall.ENOENT
	case g.in.files[name].store == nil:
		return syscall.EACCES
	case value == "":
		return nil
	}
	err := g.in.files[name].store(g, strings.TrimSpace(value))
	if err == nil {
		g.in.kernel.writes++
	}
	return err
}

// number parses an s64 as the kernel does. It accepts no surrounding blanks; write has already
// removed a trailing newline if the file allows one.
func number(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		return 0, syscall.EINVAL
	}
	return n, nil
}

// plain returns a file that holds one number in a range.
func plain(at func(*group) *int64, low, high int64, also ...func(*group, int64) error) file {
	return file{
		show: func(g *group) string { return strconv.FormatInt(*at(g), 10) },
		store: func(g *group, text string) error {
			n, err := number(text)
			if err != nil {
				return err
			}
			if n < low || n > high {
				return syscall.EINVAL
			}
			for _, check := range also {
				if err := check(g, n); err != nil {
					return err
				}
			}
			*at(g) = n
			return nil
		},
	}
}
