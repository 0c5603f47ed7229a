package cgroupfs

import (
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-dev/sluice/pkg/observe"
)

// Repeated reads allocate no memory. The v2 tree consists of plain files.
func TestUsageAllocatesNothing(t *testing.T) {
	withoutRace(t)
	k := realV1(t)
	v2, _ := fakeV2(t, map[string]string{
		ctr + "/cpu.stat":        "usage_usec 12\nuser_usec 1\nnr_periods 5\nnr_throttled 1\nthrottled_usec 3\n",
		ctr + "/memory.current":  "4096\n",
		ctr + "/memory.stat":     "anon 1\nfile 2\ninactive_file 3\nactive_file 4\npgscan_direct 5\n",
		ctr + "/memory.events":   "oom 1\noom_kill 1\n",
		ctr + "/cpu.pressure":    "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
		ctr + "/memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
		ctr + "/io.pressure":     "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
		ctr + "/io.stat":         "8:0 rbytes=1 wbytes=2\n",
		ctr + "/cgroup.threads":  "1\n2\n",
	})
	v2.memory, v2.io = v2.unified, v2.unified
	for name, on := range map[string]struct {
		d   *Driver
		dir string
	}{"v1": {k.Driver, k.dir}, "v2": {v2, ctr}} {
		var r observe.ContainerReading
		sum := 0
		look := func() {
			_, err := on.d.CPU(on.dir, &r.CPU, &r.Throttling)
			if err == nil {
				err = on.d.MemoryUse(on.dir, &r.Memory)
			}
			if err == nil {
				err = on.d.IOBytes(on.dir, &r.IO)
			}
			if err == nil && on.d == v2 {
				err = on.d.Stalls(on.dir, &r.Pressure)
			}
			if err == nil && on.d == v2 {
				err = on.d.Threads(on.dir, func(id int) { sum += id })
			}
			if err != nil {
				t.Fatal(name, err)
			}
		}
		if n := testing.AllocsPerRun(20, look); n != 0 {
			t.Errorf("%s: a look allocates %v times", name, n)
		}
		if name == "v2" && (r.CPU.Usage != 12000 || r.Throttling.Time != 3000 || r.Memory.Anon != 1 || sum == 0) {
			t.Errorf("v2: %+v", r)
		}
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

// The usage of a process in a real cgroup is counted.
func TestRealUsage(t *testing.T) {
	t.Parallel()
	k := realV1(t)
	if k.cpuacct == nil || k.cpuacct.v2 || k.memory == nil || k.memory.v2 {
		t.Skip("SKIPPED, no cpuacct or memory controller of v1")
	}
	pid, end := k.process(k.dir)
	text := strconv.Itoa(pid)
	for _, h := range k.trees {
		if h != k.unified {
			if err := write(h, k.dir, "cgroup.procs", text); err != nil {
				t.Fatal(err)
			}
		}
	}
	var r observe.ContainerReading
	threads := 0
	if err := k.Threads(k.dir, func(int) { threads++ }); err != nil || threads == 0 {
		t.Errorf("%d threads: %v", threads, err)
	}
	end()
	counted, err := k.CPU(k.dir, &r.CPU, &r.Throttling)
	if err != nil || !counted || r.CPU.Usage <= 0 {
		t.Errorf("CPU: %v, %v, %+v", counted, err, r.CPU)
	}
	if err := k.MemoryUse(k.dir, &r.Memory); err != nil {
		t.Error(err)
	}
	if err := k.IOBytes(k.dir, &r.IO); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("/sys/fs/cgroup/unified/cpu.pressure"); err == nil && k.unified != nil {
		if err := k.unified.tree.Mkdir(relative(k.dir)); err != nil {
			t.Fatal(err)
		}
		if err := k.Stalls(k.dir, &r.Pressure); err != nil {
			t.Error(err)
		}
	}
}

func FuzzUsage(f *testing.F) {
	f.Add([]byte("usage_usec 12\nnr_periods 5\nnr_throttled 1\nthrottled_usec 3\n"), false)
	f.Add([]byte("8:0 rbytes=99999999999999999999 wbytes=2\n8:0 Read 5\n8:0 rbytes=99999999999999999999"), true)
	f.Add([]byte("total_rss 5\ntotal_workingset_refault_file 9223372036854775807\ntotal_workingset_refault_anon 7\n"), true)
	f.Fuzz(func(t *testing.T, text []byte, v1 bool) {
		var r observe.ContainerReading
		parseCPUStat(text, &r.CPU, &r.Throttling)
		parseMemoryStat(text, v1, &r.Memory)
		r.IO.Read, r.IO.Written = parseIO(text)
		for _, n := range []int64{int64(r.CPU.Usage), int64(r.Throttling.Time), r.Throttling.Periods, r.Memory.Anon, r.Memory.Refaults, r.IO.Read, r.IO.Written} {
			if n < 0 {
				t.Errorf("%q has a negative count: %+v", text, r)
			}
		}
	})
}
