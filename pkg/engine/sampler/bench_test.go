package sampler

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/test/bench/cgroups"
)

// bench is a sampler of this host with its own containers: a tenth of them is measured at the fast
// interval, a fifth is LS with a process.
type bench struct {
	*Sampler
	targets []observe.Target
	files   [3][]string // read at the fast interval, of all containers, and at the slow interval
	into    observe.Snapshot
}

func newBench(tb testing.TB, n int) *bench {
	tb.Helper()
	tree := cgroups.New(tb, tb.TempDir())
	d, err := cgroupfs.Open("/")
	if err != nil {
		tb.Skipf("SKIPPED, no real cgroups: %v", err)
	}
	tb.Cleanup(func() { d.Close() })
	s, err := Open("/", d, nil, DefaultIntervals())
	if err != nil {
		tb.Skipf("SKIPPED: %v", err)
	}
	tb.Cleanup(func() { s.Close() })
	r := &bench{Sampler: s}
	r.files[0] = []string{"/proc/stat", "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io"}
	r.files[1] = []string{"/proc/meminfo", "/proc/vmstat", "/sys/devices/system/node/node0/meminfo"}
	for i := range n {
		dir := fmt.Sprintf("/burstable/pod%d/c%d", i/2, i)
		tree.Make(dir)
		t := observe.Target{ID: fmt.Sprintf("%064d", i), Path: tree.Below(dir), Fast: i%10 == 0, LS: i%5 == 0}
		unified := filepath.Join("/sys/fs/cgroup/unified", t.Path)
		os.MkdirAll(unified, 0o755) // there is no pressure without it
		if t.LS {
			process(tb, append(tree.Files(dir, "tasks"), "/sys/fs/cgroup/cpu"+t.Path+"/tasks", unified+"/cgroup.procs"))
		}
		r.targets = append(r.targets, t)
		usage := tree.Files(dir, "cpuacct.usage")
		if t.Fast {
			r.files[0] = append(r.files[0], usage...)
		}
		r.files[1] = append(r.files[1], append(usage, "/sys/fs/cgroup/cpu"+t.Path+"/cpu.stat")...)
		r.files[2] = append(r.files[2], tree.Files(dir, "memory.usage_in_bytes", "memory.stat", "memory.oom_control", "blkio.throttle.io_service_bytes_recursive")...)
		for _, name := range []string{"cpu.pressure", "memory.pressure", "io.pressure"} {
			if name = filepath.Join(unified, name); exists(name) {
				r.files[2] = append(r.files[2], name)
			}
		}
	}
	for range 20 {
		r.sample(tb) // opens the files
	}
	return r
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// process starts a process in cgroups and ends it when the test ends.
func process(tb testing.TB, files []string) {
	tb.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		tb.Skipf("SKIPPED, no process can be started: %v", err)
	}
	tb.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for _, file := range files {
		os.WriteFile(file, []byte(strconv.Itoa(cmd.Process.Pid)), 0) // hosts have different hierarchies
	}
}

func (r *bench) sample(tb testing.TB) time.Duration {
	next, err := r.Sample(time.Now(), r.targets, &r.into)
	if err != nil {
		tb.Fatal(err)
	}
	return next
}

// Measuring containers of this host's kernel allocates no memory.
func TestSampleAllocatesNothing(t *testing.T) {
	withoutRace(t)
	r := newBench(t, 20)
	for name, prepare := range map[string]func(){
		"a fast look": func() {}, "a look at all": func() { r.allAt = 0 }, "a look at everything": r.Refresh,
	} {
		if n := testing.AllocsPerRun(10, func() { prepare(); r.sample(t) }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	c := r.into.Containers[0]
	if c.Memory.At.IsZero() || len(r.into.Containers) != 20 || r.into.Node.Memory.Total == 0 {
		t.Errorf("seen is %+v", c)
	}
}

// withoutRace skips a test of allocations under the race detector, with which a sync.Pool drops
// some of its items.
func withoutRace(t *testing.T) {
	t.Helper()
	info, _ := debug.ReadBuildInfo()
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("SKIPPED, the race detector makes pools allocate")
	}
}

func BenchmarkSample(b *testing.B) {
	r := newBench(b, 500)
	run := func(name string, look func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				look()
			}
		})
	}
	run("Fast", func() { r.sample(b) })
	run("FastReadFile", func() { readAll(b, r.files[0]) })
	run("All", func() { r.allAt = 0; r.sample(b) })
	run("AllReadFile", func() { readAll(b, r.files[0]); readAll(b, r.files[1]) })
	run("Everything", func() { r.Refresh(); r.sample(b) })
	run("EverythingReadFile", func() { readAll(b, r.files[0]); readAll(b, r.files[1]); readAll(b, r.files[2]) })
}

// BenchmarkLoop measures the CPU time and the longest measurement of the sampler with default
// intervals.
func BenchmarkLoop(b *testing.B) {
	r := newBench(b, 500)
	r.loop(b, func(int) { r.sample(b) })
}

// BenchmarkLoopReadFile reads the same files at the same intervals by their paths.
func BenchmarkLoopReadFile(b *testing.B) {
	r := newBench(b, 500)
	slow := r.files[2]
	r.loop(b, func(i int) {
		readAll(b, r.files[0])
		if i%10 == 0 {
			readAll(b, r.files[1])
		}
		part := i % 100
		readAll(b, slow[len(slow)*part/100:len(slow)*(part+1)/100])
	})
}

// loop measures at the default interval for 20 s.
func (r *bench) loop(b *testing.B, look func(i int)) {
	var used, longest time.Duration
	looks := 0
	for b.Loop() {
		before, start := cpuTime(b), time.Now()
		for time.Since(start) < 20*time.Second {
			at := time.Now()
			look(looks)
			longest = max(longest, time.Since(at))
			looks++
			time.Sleep(r.every.Fast - time.Since(at))
		}
		used += cpuTime(b) - before
	}
	b.ReportMetric(100*used.Seconds()/b.Elapsed().Seconds(), "%core")
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest")
}

func readAll(b *testing.B, files []string) {
	for _, name := range files {
		if _, err := os.ReadFile(name); err != nil {
			b.Fatal(err)
		}
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
