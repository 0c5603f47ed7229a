// Package resctrl tests the product's resctrl package through system calls, on the fake kernel's
// tree mounted with FUSE.
package resctrl

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/fake"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/schemata"
	"github.com/sluice-dev/sluice/pkg/observe"
)

// node serves the fake through FUSE, so that the product and goresctrl use system calls.
type node struct {
	fusefs.Inode
	tree *fake.Kernel
	name string
}

type file struct{ node }

func errno(err error) syscall.Errno {
	var e syscall.Errno
	errors.As(err, &e)
	return e
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	below := path.Join(n.name, name)
	if _, err := n.tree.List(below); err == nil {
		out.Mode = syscall.S_IFDIR | 0o755
		return n.NewInode(ctx, &node{tree: n.tree, name: below}, fusefs.StableAttr{Mode: syscall.S_IFDIR}), 0
	}
	if _, err := n.tree.Read(below); err != nil {
		return nil, errno(err)
	}
	out.Mode = syscall.S_IFREG | 0o644
	return n.NewInode(ctx, &file{node{tree: n.tree, name: below}}, fusefs.StableAttr{Mode: syscall.S_IFREG}), 0
}

func (n *node) Readdir(context.Context) (fusefs.DirStream, syscall.Errno) {
	names, err := n.tree.List(n.name)
	if err != nil {
		return nil, errno(err)
	}
	var entries []fuse.DirEntry
	for _, name := range names {
		mode := uint32(syscall.S_IFREG)
		if _, err := n.tree.List(path.Join(n.name, name)); err == nil {
			mode = syscall.S_IFDIR
		}
		entries = append(entries, fuse.DirEntry{Name: name, Mode: mode})
	}
	return fusefs.NewListDirStream(entries), 0
}

func (n *node) Mkdir(ctx context.Context, name string, _ uint32, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	if err := n.tree.Mkdir(path.Join(n.name, name)); err != nil {
		return nil, errno(err)
	}
	return n.Lookup(ctx, name, out)
}

func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	return errno(n.tree.Rmdir(path.Join(n.name, name)))
}

func (f *file) Open(context.Context, uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (f *file) Read(_ context.Context, _ fusefs.FileHandle, _ []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	text, err := f.tree.Read(f.name)
	if err != nil {
		return nil, errno(err)
	}
	return fuse.ReadResultData([]byte(text)[min(off, int64(len(text))):]), 0
}

func (f *file) Write(_ context.Context, _ fusefs.FileHandle, data []byte, _ int64) (uint32, syscall.Errno) {
	return uint32(len(data)), errno(f.tree.Write(f.name, string(data)))
}

func (f *file) Setattr(context.Context, fusefs.FileHandle, *fuse.SetAttrIn, *fuse.AttrOut) syscall.Errno {
	return 0 // truncating changes nothing
}

// bed runs the product on a fake kernel.
type bed struct {
	*fake.Kernel
	*resctrl.Host
	t testing.TB
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// setUp makes the group of class BE.
func (b *bed) setUp() {
	b.t.Helper()
	_, err := b.Setup([]schemata.Class{be()}, 0)
	b.must(err)
}

func be() schemata.Class {
	return schemata.Class{
		Name: "BE",
		L3:   map[int]schemata.Cache{schemata.All: {Range: schemata.Range{To: 30}}},
		MB:   map[int]schemata.Bandwidth{schemata.All: {Percent: 85}},
	}
}

func (b *bed) wantGroups(names ...string) {
	b.t.Helper()
	if got := b.Groups(); !slices.Equal(got, names) {
		b.t.Errorf("the groups are %q, want %q", got, names)
	}
}

func (b *bed) wantIn(group string, tids ...int) {
	b.t.Helper()
	for _, tid := range tids {
		if got, _ := b.Of(tid); got != group {
			b.t.Errorf("thread %d is in %q, want %q", tid, got, group)
		}
	}
}

// mounted returns a host root with a resctrl mount.
func mounted(t testing.TB, m fake.Machine) (b *bed, root string) {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Getuid() != 0 {
		t.Skip("this needs root and /dev/fuse")
	}
	root = t.TempDir()
	point := filepath.Join(root, "sys/fs/resctrl")
	info := "40 25 0:38 / /sys/fs/resctrl rw - resctrl resctrl rw\n"
	if err := errors.Join(os.MkdirAll(point, 0o755), os.MkdirAll(filepath.Join(root, "proc/self"), 0o755),
		os.WriteFile(filepath.Join(root, "proc/self/mountinfo"), []byte(info), 0o644)); err != nil {
		t.Fatal(err)
	}
	b = &bed{Kernel: fake.New(m), t: t}
	var none time.Duration
	server, err := fusefs.Mount(point, &node{tree: b.Kernel, name: "."}, &fusefs.Options{
		EntryTimeout: &none, AttrTimeout: &none, NegativeTimeout: &none,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "sluice-test-" + strconv.Itoa(os.Getpid())},
	})
	if err != nil {
		t.Skipf("FUSE can't be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
		}
	})
	b.reopen(root)
	return b, root
}

func (b *bed) reopen(root string) {
	b.t.Helper()
	if b.Host != nil {
		b.must(b.Close())
	}
	h, err := resctrl.Open(root)
	b.must(err)
	b.Host = h
	b.t.Cleanup(func() { h.Close() })
}

// run adds a process with threads, in the kernel and in /proc.
func (b *bed) run(root string, pid int, tids ...int) {
	b.t.Helper()
	b.Start(pid, tids...)
	for _, tid := range tids {
		b.must(os.MkdirAll(filepath.Join(root, "proc", strconv.Itoa(pid), "task", strconv.Itoa(tid)), 0o755))
	}
}

func TestMounted(t *testing.T) {
	t.Parallel()
	b, root := mounted(t, fake.CDP())
	b.run(root, 5, 5, 6)
	b.setUp()
	if text, err := b.Read("sluice-BE/schemata"); err != nil || strings.ReplaceAll(text, " ", "") != "L3CODE:0=f;1=f\nL3DATA:0=f;1=f\nL2:0=ffff;1=ffff;2=ffff;3=ffff\nMB:0=90;1=90\n" {
		t.Errorf("the group has %q, %v", text, err)
	}
	b.must(b.Assign(resctrl.Place{Group: resctrl.ClassGroup("BE")}, 5))
	b.wantIn("sluice-BE", 5, 6)
	b.reopen(root)
	b.Writes()
	b.setUp()
	if again := b.Writes(); again != nil {
		t.Errorf("what is right was written again: %q", again)
	}
	_, err := b.Setup([]schemata.Class{{Name: "a"}, {Name: "b"}, {Name: "c"}}, 0)
	if !errors.Is(err, resctrl.ErrNoCLOSID) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("out of CLOSIDs: %v", err)
	}
	b.wantGroups("sluice-BE", "sluice-a", "sluice-b")
	b.must(b.Restore(resctrl.Originals{}))
	b.wantGroups()
	b.wantIn("", 5, 6)
}

func TestWatch(t *testing.T) {
	t.Parallel()
	b, root := mounted(t, fake.Intel())
	b.run(root, 5, 5, 6)
	b.setUp()
	b.must(b.Mkdir("mon_groups/c1")) // a monitoring group of runc's
	b.must(b.Watch("sluice-BE", "c1"))
	b.must(b.Assign(resctrl.Place{Group: "sluice-BE", Watch: "c1"}, 5))
	if group, watch := b.Of(6); group != "sluice-BE" || watch != "sluice-c1" {
		t.Errorf("thread 6 is in %q, %q", group, watch)
	}
	b.Count("sluice-BE", "sluice-c1", "mon_L3_00/llc_occupancy", "65536")
	b.Count("sluice-BE", "sluice-c1", "mon_L3_00/mbm_local_bytes", "Error")
	b.Count("sluice-BE", "sluice-c1", "mon_L3_01/mbm_total_bytes", "Unavailable")
	want := []observe.L3{{ID: 0, OccupancyBytes: 65536, LocalBytes: -1}, {ID: 1, TotalBytes: -1}}
	usage := func() {
		t.Helper()
		if got, err := b.Usage("c1"); err != nil || !slices.Equal(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	usage()

	b.reopen(root) // finds the group
	b.must(b.Watch("sluice-BE", "c1"))
	b.must(b.Watch("sluice-BE", "c1"))
	usage()
	b.must(b.Watch("sluice-BE", "gone"))
	b.must(b.PruneWatches([]string{"c1"}))
	b.must(b.Unwatch("gone"))
	usage()
	if all, err := b.Usage("gone"); len(all) > 0 || err != nil {
		t.Errorf("what was pruned is still watched: %v, %v", all, err)
	}
	b.reopen(root)
	b.must(b.PruneWatches(nil)) // found, and of no container
	if group, watch := b.Of(6); group != "sluice-BE" || watch != "" {
		t.Errorf("after the watch, thread 6 is in %q, %q", group, watch)
	}

	b.must(b.Watch("", "c2"))
	b.must(b.Restore(resctrl.Originals{}))
	names, err := b.List("mon_groups")
	if b.must(err); !slices.Equal(names, []string{"c1"}) {
		t.Errorf("monitoring groups left are %q, want runc's c1", names)
	}
}

func TestWatchFails(t *testing.T) {
	t.Parallel()
	m := fake.Intel()
	m.RMIDs = 3
	b, _ := mounted(t, m)
	b.setUp()
	b.must(b.Watch("sluice-BE", "c1"))
	err := b.Watch("sluice-BE", "c2")
	if !errors.Is(err, resctrl.ErrNoRMID) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("out of RMIDs: %v", err)
	}
	b.Limbo(true)
	b.must(b.Unwatch("c1"))
	if err := b.Watch("sluice-BE", "c2"); !errors.Is(err, resctrl.ErrLimbo) {
		t.Errorf("limbo: %v", err)
	}
	b.Limbo(false)
	b.must(b.Watch("sluice-BE", "c2"))
	if err := b.Watch("sluice-none", "c3"); !errors.Is(err, resctrl.ErrNoGroup) {
		t.Errorf("no such group: %v", err)
	}
	if err := b.Watch("sluice-BE", "../c3"); err == nil {
		t.Error("a container named ../c3 is watched")
	}
	blind, _ := mounted(t, fake.Haswell())
	if err := blind.Watch("", "c1"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a machine that can't: %v", err)
	}
}
