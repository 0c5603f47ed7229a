package perf

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
)

// fake is a kernel that counts 3000 cycles and 1000 instructions on each CPU.
type fake struct {
	next    int
	events  map[int]int   // CPU by open file
	refuse  map[int]error // by CPU; -1 for all
	after   int           // files after which refuse applies
	running map[int]uint64
	reads   map[int]error
	gone    map[int]bool // CPUs that have gone offline since
	short   map[int]int  // bytes that reading a CPU's group gives
}

func (f *fake) open(attr *unix.PerfEventAttr, _, cpu, group int) (int, error) {
	if group < 0 != (attr.Config == unix.PERF_COUNT_HW_CPU_CYCLES) || attr.Size == 0 {
		return 0, syscall.EINVAL
	}
	err := f.refuse[cpu]
	if err == nil {
		err = f.refuse[-1]
	}
	if err != nil && len(f.events) >= f.after {
		return 0, err
	}
	f.next++
	f.events[f.next] = cpu
	return f.next, nil
}

func (f *fake) read(file int, into []byte) (int, error) {
	cpu := f.events[file]
	if err := f.reads[cpu]; err != nil {
		return 0, err
	}
	running, ok := f.running[cpu]
	if !ok {
		running = 100
	}
	values := []uint64{2, 100, running, 30 * running, 10 * running}
	if f.gone[cpu] {
		values[0] = 1 // the kernel dissolves the group
	}
	for i, v := range values {
		binary.NativeEndian.PutUint64(into[8*i:], v)
	}
	if n, ok := f.short[cpu]; ok {
		return n, nil
	}
	return len(into), nil
}

func (f *fake) close(file int) { delete(f.events, file) }

// newFake returns a host with four CPUs, a cgroup v2 hierarchy and the cgroup /pod.
func newFake(t *testing.T) (*Host, *fake) {
	t.Helper()
	root := t.TempDir()
	put(t, root, "sys/devices/system/cpu/online", "0-3\n")
	put(t, root, "proc/cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\nperf_event\t0\t1\t1\n")
	put(t, root, "proc/self/mountinfo", "38 31 0:38 / /tree rw - cgroup2 cgroup2 rw\n")
	put(t, root, "tree/pod/cgroup.procs", "")
	f := &fake{events: map[int]int{}, refuse: map[int]error{}, running: map[int]uint64{}, reads: map[int]error{}, gone: map[int]bool{}, short: map[int]int{}}
	h := New(root, Instructions())
	h.kernel = f
	return h, f
}

func put(t *testing.T, root, name, text string) {
	t.Helper()
	name = filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCount checks the sum over the CPUs, and that all files are closed at the end.
func TestCount(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*fake)
		want   Counts
		err    error
	}{
		"all CPUs":                         {func(*fake) {}, Counts{12000, 4000}, nil},
		"a counter that had to be shared":  {func(f *fake) { f.running[1] = 25 }, Counts{12000, 4000}, nil},
		"a counter that was never free":    {func(f *fake) { f.running[1] = 0 }, Counts{9000, 3000}, nil},
		"no counter was ever free":         {func(f *fake) { f.running = map[int]uint64{0: 0, 1: 0, 2: 0, 3: 0} }, Counts{}, syscall.EBUSY},
		"a CPU that is offline by now":     {func(f *fake) { f.gone[2] = true }, Counts{9000, 3000}, nil},
		"an event that the kernel gave up": {func(f *fake) { f.short[0] = 0 }, Counts{9000, 3000}, nil},
		"a read that fails":                {func(f *fake) { f.reads[3] = syscall.EIO }, Counts{}, syscall.EIO},
	} {
		h, f := newFake(t)
		if err := h.Start("/pod"); err != nil {
			t.Fatal(err)
		}
		if err := h.Start("/pod"); err != nil || len(f.events) != 8 || h.files != 8 {
			t.Errorf("%s: %v; %d files are open, %d by its own count; want 8", name, err, len(f.events), h.files)
		}
		test.change(f)
		got, err := h.Count("/pod")
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: counted %v, %v; want %v, %v", name, got, err, test.want, test.err)
		}
		h.Close()
		if len(f.events) > 0 || h.files != 0 {
			t.Errorf("%s: %d files stay open, %d by its own count", name, len(f.events), h.files)
		}
	}
}

// TestStartRefused checks that each refusal of the kernel has its own reason, and that no file stays open.
func TestStartRefused(t *testing.T) {
	t.Parallel()
	texts := map[string]error{}
	for _, test := range []struct {
		errno syscall.Errno
		after int
		kind  error
		text  string
	}{
		{syscall.ENOENT, 0, cgroupfs.ErrUnsupported, "no such counters"},
		{syscall.EACCES, 0, fs.ErrPermission, "perf_event_paranoid"},
		{syscall.EPERM, 0, fs.ErrPermission, "seccomp"},
		{syscall.ENOSYS, 0, cgroupfs.ErrUnsupported, "CONFIG_PERF_EVENTS"},
		{syscall.EINVAL, 0, cgroupfs.ErrUnsupported, "CONFIG_CGROUP_PERF"},
		{syscall.EMFILE, 5, syscall.EMFILE, "LimitNOFILE"},
		{syscall.ENODEV, 0, syscall.ENODEV, "no CPU is online"},
	} {
		h, f := newFake(t)
		f.refuse[-1], f.after = test.errno, test.after
		for what, err := range map[string]error{"Start": h.Start("/pod"), "Probe": h.Probe()} {
			if !errors.Is(err, test.errno) || !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s, %v: %v; want %v with %q", what, test.errno, err, test.kind, test.text)
			}
			if err != nil {
				texts[err.Error()] = err
			}
		}
		if len(f.events) > 0 || h.files != 0 {
			t.Errorf("%v: %d files stay open", test.errno, len(f.events))
		}
		f.refuse = nil
		if err := h.Start("/pod"); err != nil || len(f.events) != 8 {
			t.Errorf("after %v, %d files are open: %v", test.errno, len(f.events), err)
		}
	}
	if len(texts) != 7 {
		t.Errorf("seven refusals have %d texts", len(texts))
	}
}

// TestStartWhileThingsGo checks a CPU that goes offline, and a cgroup that ends, between two system calls.
func TestStartWhileThingsGo(t *testing.T) {
	t.Parallel()
	h, f := newFake(t)
	f.refuse[2] = syscall.ENODEV
	if err := h.Start("/pod"); err != nil || len(f.events) != 6 {
		t.Errorf("with a CPU that goes, %d files are open: %v", len(f.events), err)
	}
	if got, err := h.Count("/pod"); err != nil || got != (Counts{9000, 3000}) {
		t.Errorf("three CPUs counted %v, %v", got, err)
	}
	if err := os.RemoveAll(filepath.Join(h.hostRoot, "tree/pod")); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Count("/pod"); err != nil || got != (Counts{9000, 3000}) {
		t.Errorf("a cgroup that has ended counted %v, %v", got, err)
	}
	h.Stop("/pod")
	if err := h.Start("/pod"); !errors.Is(err, cgroupfs.ErrGone) || len(f.events) > 0 {
		t.Errorf("no cgroup: %v, %d files are open", err, len(f.events))
	}
	if _, err := h.Count("/pod"); err == nil {
		t.Error("nothing is counted, and that is no error")
	}
	put(t, h.hostRoot, "tree/late/cgroup.procs", "")
	h.kernel = &leaving{f, filepath.Join(h.hostRoot, "tree/late")}
	if err := h.Start("/late"); !errors.Is(err, cgroupfs.ErrGone) || errors.Is(err, cgroupfs.ErrUnsupported) {
		t.Errorf("a cgroup that ends meanwhile: %v", err)
	}
	if err := h.Start("/../../tree"); !errors.Is(err, cgroupfs.ErrGone) {
		t.Errorf("a path that leads out of the hierarchy: %v", err)
	}
}

// leaving is a kernel whose cgroup ends at the first event.
type leaving struct {
	*fake
	dir string
}

func (l *leaving) open(*unix.PerfEventAttr, int, int, int) (int, error) {
	os.RemoveAll(l.dir)
	return 0, syscall.ENOENT
}

// TestHierarchy checks which hierarchy the cgroup's folder is taken from.
func TestHierarchy(t *testing.T) {
	t.Parallel()
	const v2, v1 = "38 31 0:38 / /tree rw - cgroup2 cgroup2 rw\n", "39 31 0:39 / /first rw - cgroup cgroup rw,perf_event\n"
	const onV2, onV1 = "perf_event\t0\t1\t1\n", "perf_event\t4\t1\t1\n"
	for name, test := range map[string]struct{ mounts, cgroups, want, text string }{
		"v2":                       {v2, onV2, "tree", ""},
		"hybrid, the kernel's v1":  {v2 + v1, onV1, "first", ""},
		"hybrid, the kernel's v2":  {v1[:0] + v2, onV2, "tree", ""},
		"v1 that is not mounted":   {v2, onV1, "", "mount -t cgroup -o perf_event"},
		"no v2 is mounted":         {"", onV2, "", "no cgroup v2 hierarchy"},
		"a kernel without":         {v2, "cpu\t0\t1\t1\n", "", "CONFIG_CGROUP_PERF"},
		"a kernel that may not":    {v2, "perf_event\t0\t1\t0\n", "", "cgroup_disable"},
		"a kernel without v1 says": {v2, "-", "tree", ""},
	} {
		root := t.TempDir()
		put(t, root, "proc/self/mountinfo", test.mounts)
		if test.cgroups != "-" {
			put(t, root, "proc/cgroups", test.cgroups)
		}
		put(t, root, "tree/x", "")
		put(t, root, "first/x", "")
		got, err := cgroupfs.PerfEventRoot(root)
		switch {
		case test.text == "" && (err != nil || got != filepath.Join(root, test.want)):
			t.Errorf("%s: %s, %v; want %s", name, got, err, test.want)
		case test.text != "" && (!errors.Is(err, cgroupfs.ErrUnsupported) || !strings.Contains(err.Error(), test.text)):
			t.Errorf("%s: %v, want %q", name, err, test.text)
		}
	}
}

// TestManyCounts checks that counts of several cgroups are apart.
func TestManyCounts(t *testing.T) {
	t.Parallel()
	h, f := newFake(t)
	put(t, h.hostRoot, "tree/other/cgroup.procs", "")
	for _, dir := range []string{"/pod", "/other"} {
		if err := h.Start(dir); err != nil {
			t.Fatal(err)
		}
	}
	open := maps.Clone(f.events)
	h.Stop("/pod")
	h.Stop("/pod")
	if len(open) != 16 || len(f.events) != 8 || h.files != 8 {
		t.Errorf("%d files were open, and then %d", len(open), len(f.events))
	}
	if _, err := h.Count("/other"); err != nil {
		t.Error(err)
	}
}

// TestRoom checks that counts leave half of the files that the process may have open to others, and at most 4,096 files open.
func TestRoom(t *testing.T) {
	t.Parallel()
	h, _ := newFake(t)
	if h.most == 0 || mostOf(1024) != 512 || mostOf(1<<20) != mostFiles {
		t.Errorf("%d files may be open here, %d of 1024, %d of 1048576", h.most, mostOf(1024), mostOf(1<<20))
	}
	h.most = 15
	if !h.Room() {
		t.Error("there is no room for the first count")
	}
	if err := h.Start("/pod"); err != nil || h.Room() {
		t.Errorf("two counts of 8 files may be open at once, with 15 files: %v", err)
	}
	h.most = 16
	if !h.Room() {
		t.Error("there is no room for two counts of 8 files, with 16 files")
	}
	h.Close()
	h.most = 7
	if !h.Room() {
		t.Error("a count may not fail for want of files, which nobody would hear of")
	}
}

// TestSomeCPUs checks that a CPU without such counters beside others is named.
func TestSomeCPUs(t *testing.T) {
	t.Parallel()
	h, f := newFake(t)
	f.refuse[2] = syscall.ENOENT
	if err := h.Start("/pod"); !errors.Is(err, cgroupfs.ErrUnsupported) || !strings.Contains(err.Error(), "on CPU 2, and others have them") || len(f.events) > 0 {
		t.Errorf("%v; %d files are open", err, len(f.events))
	}
}
