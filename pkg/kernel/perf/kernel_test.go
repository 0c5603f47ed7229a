package perf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
)

// software is a pair that every machine counts: nanoseconds of CPU time, and switches of tasks.
func software() Pair {
	return Pair{
		"CPU time and switches",
		Event{unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK},
		Event{unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CONTEXT_SWITCHES},
	}
}

// realCgroup makes a cgroup of the test in the kernel's own hierarchy, or skips the test.
func realCgroup(t testing.TB) (dir, path string) {
	t.Helper()
	root, err := cgroupfs.PerfEventRoot("/")
	if err != nil {
		t.Skipf("SKIPPED, no cgroups by which the kernel counts: %v", err)
	}
	dir = fmt.Sprintf("/sluice-test-perf-%d-%s", os.Getpid(), t.Name())
	path = filepath.Join(root, dir)
	if err := os.Mkdir(path, 0o755); errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		t.Skipf("SKIPPED, root and a writable cgroup mount are needed: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	if err := New("/", software()).Probe(); errors.Is(err, fs.ErrPermission) || errors.Is(err, cgroupfs.ErrUnsupported) {
		t.Skipf("SKIPPED, perf events are needed: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return dir, path
}

// spin runs a busy process in a cgroup until stop is called.
func spin(t testing.TB, path string) (stop func()) {
	t.Helper()
	busy := exec.Command("/bin/sh", "-c", "read go; while :; do :; done")
	hold, err := busy.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = busy.Process.Kill()
		_ = busy.Wait()
	}
	t.Cleanup(stop)
	if err := os.WriteFile(filepath.Join(path, "cgroup.procs"), []byte(strconv.Itoa(busy.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := hold.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	return stop
}

// TestKernel counts with the real kernel, by events of its own that need no hardware: a busy process in a cgroup
// below has its CPU time counted, an idle cgroup has none, and a cgroup that is gone keeps its counts.
func TestKernel(t *testing.T) {
	dir, path := realCgroup(t)
	for _, name := range []string{"busy", "idle"} {
		child := filepath.Join(path, name)
		if err := os.Mkdir(child, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(child) })
	}
	h := New("/", software())
	defer h.Close()
	for _, of := range []string{dir, dir + "/idle"} {
		if err := h.Start(of); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	stop := spin(t, filepath.Join(path, "busy"))
	var got Counts
	for got.First < 100e6 && time.Since(began) < time.Minute {
		time.Sleep(20 * time.Millisecond)
		var err error
		if got, err = h.Count(dir); err != nil {
			t.Fatal(err)
		}
	}
	if got.First < 100e6 || got.First > 1.1*float64(time.Since(began)) {
		t.Errorf("the busy process ran %v of %v", time.Duration(got.First), time.Since(began))
	}
	if idle, err := h.Count(dir + "/idle"); err != nil || idle.First != 0 {
		t.Errorf("an idle cgroup ran %v: %v", time.Duration(idle.First), err)
	}
	stop()
	if err := os.Remove(filepath.Join(path, "idle")); err != nil {
		t.Fatal(err)
	}
	if idle, err := h.Count(dir + "/idle"); err != nil || idle.First != 0 {
		t.Errorf("a cgroup that is gone ran %v: %v", time.Duration(idle.First), err)
	}
	if err := h.Start(dir + "/gone"); !errors.Is(err, cgroupfs.ErrGone) {
		t.Errorf("a cgroup that never was: %v", err)
	}
}

// TestHardware says whether this machine counts cycles, and counts them if it does.
func TestHardware(t *testing.T) {
	dir, path := realCgroup(t)
	h := New("/", Instructions())
	defer h.Close()
	err := h.Start(dir)
	if errors.Is(err, cgroupfs.ErrUnsupported) {
		t.Skipf("SKIPPED, %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	spin(t, path)
	var got Counts
	for began := time.Now(); got.Second < 1e8 && time.Since(began) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if got, err = h.Count(dir); err != nil {
			t.Fatal(err)
		}
	}
	if cpi := got.First / got.Second; got.Second < 1e8 || cpi < 0.05 || cpi > 20 {
		t.Errorf("counted %v", got)
	}
}

// TestTooManyFiles checks that a count without enough files leaves none open.
func TestTooManyFiles(t *testing.T) {
	dir, _ := realCgroup(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	h := New("/", software())
	before := open()
	short := limit
	short.Cur = uint64(before + 2) // for the folder, and for less than both events of the first two CPUs
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &short); err != nil {
		t.Fatal(err)
	}
	err := h.Start(dir)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("without files: %v", err)
	}
	if after := open(); after != before || h.files != 0 {
		t.Errorf("%d files are open, %d were before", after, before)
	}
}

// BenchmarkStart measures what beginning and ending a count cost.
func BenchmarkStart(b *testing.B) {
	dir, _ := realCgroup(b)
	h := New("/", software())
	for b.Loop() {
		if err := h.Start(dir); err != nil {
			b.Fatal(err)
		}
		if _, err := h.Count(dir); err != nil {
			b.Fatal(err)
		}
		h.Stop(dir)
	}
}
