package sampler

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/observe"
)

// bed is a sampler of made-up files and cgroups in virtual time.
type bed struct {
	*Sampler
	t      *testing.T
	root   string
	kernel *fakekernel.Kernel
	reads  *reads
	start  time.Time
	into   observe.Snapshot
	next   time.Duration
}

// reads counts the reads of containers' files.
type reads struct {
	Cgroups
	cpu, slow int
	stalls    map[string]int // reads of the pressure, by cgroup
	fail      error          // error of memory reads
	meanwhile func()         // called while memory is read; may be nil
}

func (r *reads) CPU(dir string, usage *observe.CPUCounters, quota *observe.ThrottlingCounters) (bool, error) {
	r.cpu++
	return r.Cgroups.CPU(dir, usage, quota)
}

func (r *reads) Stalls(dir string, into *observe.PressureTotals) error {
	r.stalls[dir]++
	return r.Cgroups.Stalls(dir, into)
}

func (r *reads) MemoryUse(dir string, into *observe.ContainerMemoryCounters) error {
	r.slow++
	if r.meanwhile != nil {
		r.meanwhile()
	}
	if r.fail != nil {
		return r.fail
	}
	return r.Cgroups.MemoryUse(dir, into)
}

// watched holds the counters of containers that resctrl monitors.
type watched map[string][]observe.L3

func (w watched) Usage(container string) ([]observe.L3, error) { return w[container], nil }

// in runs a test in virtual time.
func in(t *testing.T, test func(b *bed)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{t: t, root: t.TempDir(), kernel: fakekernel.New(fakekernel.MainlineV2()), start: time.Now()}
		b.put("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 500 kB\nMemAvailable: 600 kB\n")
		b.put("proc/vmstat", "pgscan_direct 0\n")
		b.put("proc/zoneinfo", "low 5\n")
		b.put("proc/loadavg", "0.50 0.40 0.30 1/99 1234\n")
		b.busy(0)
		b.pressure(0)
		d, err := b.kernel.Driver()
		if err != nil {
			t.Fatal(err)
		}
		b.reads = &reads{Cgroups: d, stalls: map[string]int{}}
		b.Sampler, err = Open(b.root, b.reads, watched{"c0": {{OccupancyBytes: 100, TotalBytes: 7, LocalBytes: -1}, {ID: 1, OccupancyBytes: 50, TotalBytes: -1, LocalBytes: -1}}}, DefaultIntervals())
		if err != nil {
			t.Fatal(err)
		}
		test(b)
		b.Close()
		d.Close()
	})
}

func (b *bed) put(name, text string) {
	b.t.Helper()
	name = filepath.Join(b.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		b.t.Fatal(err)
	}
}

// busy sets the time that each of 4 CPUs was busy since boot, in hundredths of a second; it was
// idle otherwise.
func (b *bed) busy(time100 int) {
	var text strings.Builder
	now := int(time.Since(b.start) / (10 * time.Millisecond))
	for cpu := range 4 {
		fmt.Fprintf(&text, "cpu%d %d 0 0 %d 0 0 0 0 0 0\n", cpu, time100, now-time100)
	}
	b.put("proc/stat", text.String()+"intr 5\n")
}

func (b *bed) pressure(total int) {
	for _, name := range []string{"cpu", "memory", "io"} {
		b.put("proc/pressure/"+name, fmt.Sprintf("some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", total))
	}
}

// containers makes n containers and returns their targets.
func (b *bed) containers(n int) []observe.Target {
	var all []observe.Target
	for i := range n {
		t := observe.Target{ID: fmt.Sprint("c", i), Path: fmt.Sprint("/pods/c", i)}
		b.kernel.Mkdir(t.Path)
		all = append(all, t)
	}
	return all
}

// sample waits and then measures.
func (b *bed) sample(after time.Duration, targets []observe.Target) error {
	time.Sleep(after)
	var err error
	b.next, err = b.Sample(time.Now(), targets, &b.into)
	return err
}

const fast = 100 * time.Millisecond

func TestFastTargetsAreLookedAtFast(t *testing.T) {
	in(t, func(b *bed) {
		targets := b.containers(2)
		targets[0].Fast = true
		for i := range 21 {
			b.kernel.Count("/pods/c0", fakekernel.Counters{CPU: int64(i) * 5e7})
			b.kernel.Count("/pods/c1", fakekernel.Counters{CPU: int64(i) * 1e7})
			b.busy(i * 5)
			if err := b.sample(fast, targets); err != nil {
				b.t.Fatal(err)
			}
		}
		c := b.into.Containers
		if c[0].CPU.Usage != 500 || c[0].CPU.Interval != fast || c[1].CPU.Usage != 100 || c[1].CPU.Interval != time.Second {
			b.t.Errorf("usage is %+v and %+v", c[0].CPU, c[1].CPU)
		}
		if got := b.into.Now.Sub(c[0].CPU.At); got != 0 {
			b.t.Errorf("the usage of a fast target is %v old", got)
		}
		if b.reads.cpu != 21+3 || b.reads.slow != 2 {
			b.t.Errorf("%d and %d reads in 2 s", b.reads.cpu, b.reads.slow)
		}
		if n := b.into.Node; n.CPU.Interval != fast || n.Memory.Total != 1000<<10 || n.Memory.Low == 0 || n.Pressure.At.IsZero() {
			b.t.Errorf("the node is %+v", n)
		}
		if c[0].Cache.Occupancy != 150 || !c[1].Cache.At.IsZero() {
			b.t.Errorf("the caches are %+v and %+v", c[0].Cache, c[1].Cache)
		}
	})
}

func TestThrottling(t *testing.T) {
	in(t, func(b *bed) {
		targets := b.containers(1)
		seen := func(c fakekernel.Counters) observe.ContainerCPU {
			c.CPU = int64(time.Since(b.start)) // a container that is never idle
			b.kernel.Count("/pods/c0", c)
			b.sample(time.Second, targets)
			return b.into.Containers[0].CPU
		}
		seen(fakekernel.Counters{})
		if c := seen(fakekernel.Counters{}); !c.StatAt.Equal(c.At) || c.Periods != 0 {
			b.t.Errorf("without a quota it is %+v", c)
		}
		for range 5 {
			seen(fakekernel.Counters{Periods: 7, Throttled: 1})
		}
		if c := seen(fakekernel.Counters{Periods: 17, Throttled: 6, ThrottledTime: 1e9}); c.Periods != 10 || c.Throttled != 5 || c.ThrottledTime != time.Second {
			b.t.Errorf("with a quota it is %+v", c)
		}
	})
}

func TestRunDelay(t *testing.T) {
	in(t, func(b *bed) {
		targets := b.containers(2)
		targets[0].LS = true
		seen := func(waited int, threads ...int) (observe.RunDelay, observe.RunDelay) {
			for _, dir := range []string{"/pods/c0", "/pods/c1"} {
				b.kernel.Count(dir, fakekernel.Counters{Threads: threads})
			}
			for _, id := range threads {
				b.put(fmt.Sprintf("proc/%d/schedstat", id), fmt.Sprintf("5 %d 7\n", waited*1e9))
			}
			b.Refresh()
			b.sample(time.Second, targets)
			return b.into.Containers[0].RunDelay, b.into.Containers[1].RunDelay
		}
		seen(100, 10, 11)
		if ls, be := seen(101, 10, 11, 999999); ls.Waiting != 103 || !be.At.IsZero() { // the third container is new
			b.t.Errorf("the delays are %+v and %+v", ls, be)
		}
		many := make([]int, mostThreads+1)
		for i := range many {
			many[i] = 10
		}
		before, _ := seen(102, 10, 11)
		if ls, _ := seen(103, many...); ls != before || ls.At.Equal(b.into.Now) {
			b.t.Errorf("with too many threads the delay is %+v", ls)
		}
		if ls, _ := seen(104); ls != before {
			b.t.Errorf("without threads the delay is %+v", ls)
		}
		seen(105, 10, 11)
		if ls, _ := seen(106, 10, 11); ls.Waiting != 2 {
			b.t.Errorf("the delay is %+v, want 2", ls)
		}
	})
}

func TestAContainerThatEndedIsNoError(t *testing.T) {
	in(t, func(b *bed) {
		targets := b.containers(2)
		targets[0].Fast = true
		b.sample(fast, targets)
		b.sample(time.Second, targets)
		b.kernel.Rmdir(targets[0].Path)
		at, reads := b.into.Containers[0].CPU.At, 0
		for range 20 {
			if err := b.sample(fast, targets); err != nil {
				b.t.Error(err)
			}
			reads++
		}
		if !b.into.Containers[0].CPU.At.Equal(at) || len(b.Failures()) != 0 {
			b.t.Errorf("it is seen at %v, after %v: %v", b.into.Containers[0].CPU.At, at, b.Failures())
		}
		b.sample(fast, targets[1:])
		if len(b.into.Containers) != 1 || b.into.Containers[0].ID != "c1" || len(b.byID) != 1 {
			b.t.Errorf("it is still there: %+v", b.into.Containers)
		}
	})
}

// Containers' memory in swap is read on nodes with swap alone.
func TestSwap(t *testing.T) {
	in(t, func(b *bed) {
		all := b.containers(2)
		all[0].Memory = true
		b.kernel.Count("/pods/c0", fakekernel.Counters{Swapped: 4096})
		b.sample(0, all)
		if s := b.into.Containers[0].Swap; s != (observe.ContainerSwap{}) {
			t.Errorf("without swap: %+v", s)
		}
		b.put("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 500 kB\nMemAvailable: 600 kB\nSwapTotal: 80 kB\nSwapFree: 70 kB\n")
		b.sample(time.Second, all)
		if s := b.into.Containers[0].Swap; s.Used != 4096 || s.At.IsZero() || !b.into.Containers[1].Swap.At.IsZero() {
			t.Errorf("after a second: %+v", b.into.Containers)
		}
		for range 10 {
			b.sample(time.Second, all)
		}
		if b.into.Containers[1].Swap.At.IsZero() {
			t.Error("the other container's is not known after ten seconds")
		}
	})
}

func TestFailuresAreToldOnce(t *testing.T) {
	in(t, func(b *bed) {
		targets := b.containers(3)
		b.reads.fail = errors.New("no")
		err := b.sample(fast, targets)
		if err == nil || strings.Count(err.Error(), "memory of containers") != 1 || !strings.Contains(err.Error(), "c0 (cgroup /pods/c0): no") {
			b.t.Errorf("told: %v", err)
		}
		for range 30 {
			if err := b.sample(time.Second, targets); err != nil {
				b.t.Error(err)
			}
		}
		if got := b.Failures(); len(got) != 1 || got[0].What != "memory of containers" || got[0].Count < 9 {
			b.t.Errorf("failures: %v", got)
		}
		if !b.into.Containers[0].Memory.At.IsZero() || b.into.Containers[0].Pressure.At.IsZero() {
			b.t.Errorf("known is %+v", b.into.Containers[0])
		}
	})
}

func TestANodeWithoutPressureFiles(t *testing.T) {
	in(t, func(b *bed) {
		os.RemoveAll(filepath.Join(b.root, "proc/pressure"))
		if err := b.sample(fast, nil); err == nil || !strings.Contains(err.Error(), "psi=1") {
			b.t.Errorf("told: %v", err)
		}
		for range 30 {
			if err := b.sample(fast, nil); err != nil {
				b.t.Error(err)
			}
		}
		if n := b.Failures(); len(n) != 1 || n[0].Count != 1 {
			b.t.Errorf("failures: %v", n)
		}
		b.pressure(0)
		if b.sample(time.Minute, nil); b.into.Node.Pressure.At.IsZero() {
			b.t.Error("pressure that is there now is not seen")
		}
	})
}

func TestTargetsComeAndGo(t *testing.T) {
	in(t, func(b *bed) {
		targets := b.containers(6)
		for i, pick := range [][]int{{0, 1, 2}, {2, 1, 0}, {5, 2}, {}, {3, 3, 4}, {4, 5, 0, 1, 2, 3}, {1}, {1, 0}} {
			var now []observe.Target
			want := map[string]bool{}
			for _, n := range pick {
				now = append(now, targets[n])
				want[targets[n].ID] = true
			}
			if err := b.sample(time.Second, now); err != nil {
				b.t.Error(err)
			}
			if len(b.into.Containers) != len(want) || len(b.byID) != len(want) {
				b.t.Errorf("look %d at %v: %d containers, %d remembered", i, pick, len(b.into.Containers), len(b.byID))
			}
			for _, c := range b.into.Containers {
				if !want[c.ID] || c.Memory.At.IsZero() {
					b.t.Errorf("look %d at %v: %+v", i, pick, c)
				}
			}
		}
	})
}

func TestNoCgroups(t *testing.T) {
	in(t, func(b *bed) {
		targets := b.containers(1)
		b.cgroups, b.rdt = nil, nil
		if err := b.sample(fast, targets); err != nil || len(b.into.Containers) != 1 || b.into.Node.Memory.Total == 0 {
			b.t.Errorf("%v, %+v", err, b.into)
		}
	})
}

var _ Cgroups = (*cgroupfs.Driver)(nil)

// A measurement that hangs in the kernel keeps its files open when the plugin ends.
func TestCloseDuringALook(t *testing.T) {
	in(t, func(b *bed) {
		closed := make(chan error)
		b.reads.meanwhile = func() {
			go func() { closed <- b.Close() }()
			if err := <-closed; err == nil {
				b.t.Error("the files are closed while a look reads them")
			}
		}
		targets := b.containers(1)
		if err := b.sample(fast, targets); err != nil || b.reads.slow == 0 {
			b.t.Errorf("%d looks at memory, %v", b.reads.slow, err)
		}
		b.reads.meanwhile = nil
		if err := b.Close(); err != nil {
			b.t.Error(err)
		}
	})
}

// TestFollow checks that the same list is followed again, and that another one of the same length
// replaces it: with other containers, other paths or other intervals.
func TestFollow(t *testing.T) {
	in(t, func(b *bed) {
		follow := func(targets []observe.Target, want ...string) {
			b.t.Helper()
			for range 2 { // the second sample has the same list
				b.sample(fast, targets)
				var got []string
				for i := range b.into.Containers {
					got = append(got, b.into.Containers[i].ID)
				}
				if !slices.Equal(got, want) || len(b.byID) != len(want) || len(b.targets) != len(want) {
					b.t.Errorf("follows %q, want %q", got, want)
				}
			}
		}
		all := b.containers(4)
		follow(all[:2], "c0", "c1")
		follow(all[:3], "c0", "c1", "c2")
		follow(all[1:3], "c1", "c2")
		follow([]observe.Target{all[2], all[1]}, "c2", "c1")
		follow([]observe.Target{all[3], all[1]}, "c3", "c1") // one ends while another comes
		follow([]observe.Target{all[3], all[3], all[1]}, "c3", "c1")
		follow(nil)
		follow(all[:1], "c0")

		b.kernel.Count("/pods/c3", fakekernel.Counters{CPU: int64(time.Hour)})
		moved := []observe.Target{{ID: "c0", Path: "/pods/c3", Fast: true}} // made again elsewhere
		follow(moved, "c0")
		if !b.fast || b.targets[0].Path != "/pods/c3" || b.into.Containers[0].CPU.Usage != 0 {
			b.t.Errorf("the container that moved: %+v; usage %v", b.targets[0].Target, b.into.Containers[0].CPU.Usage)
		}
	})
}
