// Package fakekernel is a cgroup tree in memory for tests. It accepts and refuses what a kernel
// does: mainline's, or a vendor's with files that no test machine has. It lies below a
// cgroupfs.Driver. The package's tests compare its mainline v1 with the kernel of the test
// machine. The vendors' rules come from their documentation and sources; the errors while one of
// their switches is off are assumptions.
package fakekernel

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing/fstest"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Kernel holds a machine's cgroups. It is safe for concurrent use.
type Kernel struct {
	Flavour

	mu      sync.Mutex
	trees   []*tree
	host    fstest.MapFS
	writes  int
	lastPID int
	before  func(Access) error // see Interfere
}

// tree is a mounted hierarchy.
type tree struct {
	kernel      *Kernel
	name        string // "cpu", or "unified"
	controllers []string
	files       map[string]file
	root        *group
}

// New returns a freshly booted kernel with 8 CPUs and two memory nodes. All vendor switches are
// on.
func New(f Flavour) *Kernel {
	k := &Kernel{Flavour: f, host: fstest.MapFS{"sys/block/sda/dev": {Data: []byte("8:0\n")}, "sys/block/sdb/dev": {Data: []byte("8:16\n")}}}
	for _, gate := range f.gates() {
		k.host[gate] = &fstest.MapFile{Data: []byte("1\n")}
	}
	if f.V2 {
		k.mount("unified", "cpuset", "cpu", "memory", "io")
	} else {
		for _, controller := range []string{"cpuset", "cpu", "cpuacct", "memory", "blkio", "net_cls"} {
			k.mount(controller, controller)
		}
	}
	return k
}

func (k *Kernel) mount(name string, controllers ...string) {
	t := &tree{kernel: k, name: name, controllers: controllers, files: k.files(controllers)}
	t.root = newGroup(t, nil)
	t.root.cpus, t.root.mems = cpuset.Range(0, CPUs-1), cpuset.Range(0, Nodes-1)
	k.trees = append(k.trees, t)
}

// Driver opens the cgroups with the product's driver.
func (k *Kernel) Driver() (*cgroupfs.Driver, error) {
	var mounts []cgroupfs.Mount
	for _, t := range k.trees {
		mounts = append(mounts, cgroupfs.Mount{Tree: t, V2: k.V2, Controllers: t.controllers})
	}
	return cgroupfs.OpenTrees(hostFS{k}, mounts...)
}

// Switch sets one of the vendor's switches, for example "proc/sys/kernel/cpu_qos".
func (k *Kernel) Switch(name, value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.host[name] = &fstest.MapFile{Data: []byte(value + "\n")}
}

// on reports whether a switch is on. A switch that this kernel lacks counts as on.
func (k *Kernel) on(name string) bool {
	f := k.host[name]
	return f == nil || strings.TrimSpace(string(f.Data)) == "1"
}

// Mkdir makes a cgroup and its missing parents in every hierarchy. As a runtime does, it copies
// the parent's CPUs and memory nodes into a new v1 cpuset.
func (k *Kernel) Mkdir(dir string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.trees {
		g := t.root
		for name := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
			if g.children[name] == nil {
				child := newGroup(t, g)
				if !k.V2 {
					child.cpus, child.mems = g.cpus, g.mems
				}
				g.children[name] = child
			}
			g = g.children[name]
		}
	}
}

// Namespace makes a cgroup the root of the driver's own cgroup namespace, as it is that of the
// container in which the plugin runs. Unnamespace ends that.
func (k *Kernel) Namespace(dir string) { k.setNamespace(dir, k.V2) }

// Unnamespace makes a cgroup one like others again.
func (k *Kernel) Unnamespace(dir string) { k.setNamespace(dir, false) }

func (k *Kernel) setNamespace(dir string, begins bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.trees {
		t.at(dir).namespace = begins
	}
}

// Rmdir removes a cgroup and those below it from every hierarchy.
func (k *Kernel) Rmdir(dir string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.trees {
		if g := t.at(dir); g != nil && g.parent != nil {
			g.die()
			delete(g.parent.children, path.Base(dir))
		}
	}
}

// Populate replaces the processes of a cgroup by that many new ones, in every hierarchy. It fails
// if a v1 cpuset is empty.
func (k *Kernel) Populate(dir string, processes int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var pids []int
	for range processes {
		k.lastPID++
		pids = append(pids, k.lastPID)
	}
	for _, t := range k.trees {
		g := t.at(dir)
		switch {
		case g == nil:
			return syscall.ENOENT
		case processes > 0 && g.takesNone():
			return syscall.ENOSPC
		}
		g.pids = slices.Clone(pids)
	}
	return nil
}

// Plug takes all CPUs but these offline.
func (k *Kernel) Plug(online cpuset.Set) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.trees {
		if !k.V2 && t.name == "cpuset" {
			t.root.unplugged(online)
		}
		t.root.cpus = online
	}
}

// Access is a read or a write of a file through a driver.
type Access struct {
	Dir, File string
	Write     bool
	Value     string // of a write
}

// Interfere calls before with each access through a driver before it is made, which fails if before
// returns an error. before may change the tree; nil ends the interference.
func (k *Kernel) Interfere(before func(Access) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.before = before
}

func (k *Kernel) interfered(a Access) error {
	k.mu.Lock()
	before := k.before
	k.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(a)
}

// Use sets how much memory in bytes a cgroup uses, and how much of it is page cache.
func (k *Kernel) Use(dir string, bytes, cache int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.trees {
		if g := t.at(dir); g != nil {
			g.usage, g.cache = bytes, min(cache, bytes)
		}
	}
}

// WriteFile writes a file of a cgroup as another program would.
func (k *Kernel) WriteFile(dir, name, value string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.trees {
		if _, ok := t.files[name]; ok {
			g := t.at(dir)
			if g == nil {
				return syscall.ENOENT
			}
			return g.write(name, value)
		}
	}
	return syscall.ENOENT
}

// ReadFile returns the text of a file of a cgroup without the last newline.
func (k *Kernel) ReadFile(dir, name string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.trees {
		if _, ok := t.files[name]; ok {
			g := t.at(dir)
			if g == nil {
				return "", syscall.ENOENT
			}
			text, err := g.read(name)
			return strings.TrimSuffix(text, "\n"), err
		}
	}
	return "", syscall.ENOENT
}

// Dump returns the text of every file, by "hierarchy/path/file".
func (k *Kernel) Dump() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[string]string{}
	for _, t := range k.trees {
		t.root.dump(t.name, all)
	}
	return all
}

func (g *group) dump(at string, all map[string]string) {
	for name, f := range g.in.files {
		if text, err := g.read(name); err == nil && f.store != nil && name != procs {
			all[at+"/"+name] = text
		}
	}
	for name, child := range g.children {
		child.dump(at+"/"+name, all)
	}
}

// Writes returns the number of writes that the kernel has accepted.
func (k *Kernel) Writes() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.writes
}

func (t *tree) at(dir string) *group {
	g := t.root
	for name := range strings.SplitSeq(strings.Trim(path.Clean("/"+dir), "/"), "/") {
		if name == "" {
			continue
		}
		if g = g.children[name]; g == nil {
			return nil
		}
	}
	return g
}

// hostFS is the part of /proc and /sys that the driver reads.
type hostFS struct{ *Kernel }

func (h hostFS) Open(name string) (fs.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.host).Open(name)
}

// Glob and ReadFile implement the interfaces of io/fs on the map.
func (h hostFS) Glob(pattern string) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.host.Glob(pattern)
}

func sortedNames(children map[string]*group) []string {
	return slices.Sorted(maps.Keys(children))
}
