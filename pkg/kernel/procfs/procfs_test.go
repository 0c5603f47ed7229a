package procfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
)

// host returns a root folder with these files.
func host(t testing.TB, files map[string]string) (*FS, string) {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		put(t, root, name, text)
	}
	f, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, root
}

func put(t testing.TB, root, name, text string) {
	t.Helper()
	name = filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const stat = `cpu  880848 52322 270250 1431671 6084 0 2553 938 7 7
cpu0 100 10 20 1000 5 3 4 8 50 5
cpu2 1 0 0 0 0 0 0 0 0 0
intr 47094438 0 0 0
ctxt 127953936
`

const zoneinfo = `Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 2444
  pages free     3840
        boost    0
        min      9
        low      12
        high     15
  pagesets
    cpu: 0
              count:    0
              high:     0
              low:      7
Node 0, zone   Normal
  pages free     3558054
        min      10000
        low      20000
`

const swaps = "Filename Type Size Used Priority\n"

func TestParseStat(t *testing.T) {
	t.Parallel()
	want := []observe.CPUTime{
		{Online: true, Busy: 137 * tick, Idle: 1000 * tick, IOWait: 5 * tick, Steal: 8 * tick},
		{},
		{Online: true, Busy: tick},
	}
	if got := parseStat([]byte(stat), make([]observe.CPUTime, 5)); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, text := range []string{"", "cpu", "cpu\n", "cpu 1 2\n", "cpux 1\n", "cpu99999999999999999999 1\n", "intr 5"} {
		if got := parseStat([]byte(text), nil); len(got) != 0 {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	f, root := host(t, map[string]string{
		"proc/meminfo":                       "MemTotal: 1000 kB\nMemFree:  100 kB\nMemAvailable:   400 kB\nActive(file): 20 kB\nInactive(file): 30 kB\nAnonPages: 300 kB\nSwapTotal: 90 kB\nSwapFree: 80 kB\n",
		"proc/vmstat":                        "nr_free_pages 5\npswpin 8\npswpout 6\npgscan_kswapd 9\npgscan_direct 7\npgscan_direct_throttle 100\n",
		"proc/zoneinfo":                      zoneinfo,
		"sys/block/zram0/mm_stat":            "    20480     4096    12288        0    12288        0        0        0        0\n",
		"proc/swaps":                         swaps + "/dev/zram0 partition 90 10 100\n",
		nodesFolder + "/node0/meminfo":       "\nNode 0 MemTotal:   600 kB\nNode 0 MemFree:  60 kB\nNode 0 Active(file):  1 kB\nNode 0 Inactive(file):  2 kB\n",
		nodesFolder + "/node0/vmstat":        "nr_free_pages 5\n",
		nodesFolder + "/node2/meminfo":       "Node 2 MemTotal:  400 kB\nNode 2 MemFree:  40 kB\n",
		nodesFolder + "/node2/vmstat":        "pgscan_direct 3\n",
		nodesFolder + "/has_memory":          "0,2",
		nodesFolder + "/nodes/not-a-node":    "",
		nodesFolder + "/node-7/not-a-number": "",
	})
	low, err := f.Discover()
	if err != nil || low != 20012*int64(os.Getpagesize()) {
		t.Errorf("the low watermark is %d: %v", low, err)
	}
	want := observe.MemoryCounters{
		Total: 1000 << 10, Available: 400 << 10, Free: 100 << 10, Anon: 300 << 10, Cache: 50 << 10, Low: 1, DirectScans: 7,
		SwapTotal: 90 << 10, SwapFree: 80 << 10, SwapWritten: 6 * int64(os.Getpagesize()), SwapInMemory: true, SwapHeld: 12288,
		Nodes: []observe.NUMACounters{{Total: 600 << 10, Free: 60 << 10, Cache: 3 << 10}, {}, {Total: 400 << 10, Free: 40 << 10, DirectScans: 3}},
	}
	got := observe.MemoryCounters{Low: 1}
	if err := f.Memory(&got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	put(t, root, "proc/swaps", swaps+"/dev/zram0 partition 90 10 100\n/swapfile file 90 0 -2\n")
	if _, err := f.Discover(); err != nil {
		t.Fatal(err)
	}
	put(t, root, "proc/meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nActive(file): 20 kB\n")
	put(t, root, "proc/vmstat", "pgscan_direct_dma 1\npgscan_direct_normal 2\npgscan_direct_throttle 9\n")
	if err := f.Memory(&got); err != nil || got.Available != 120<<10 || got.SwapInMemory || got.DirectScans != 3 {
		t.Errorf("on an old kernel: %+v, %v", got, err)
	}
}

// TestHugePages checks that the pool of huge pages is subtracted from the memory for pods, on the
// node and on each NUMA node. Before Linux 4.16 /proc/meminfo lacks the sum over all page sizes.
func TestHugePages(t *testing.T) {
	t.Parallel()
	const node = "MemTotal: 100000 kB\nMemFree: 25000 kB\nMemAvailable: 24000 kB\n"
	const pages = "HugePages_Total:      30\nHugePages_Free:       10\nHugepagesize:       2048 kB\n"
	f, root := host(t, map[string]string{
		"proc/meminfo":                 node + pages + "Hugetlb:           71440 kB\n", // including pages of 10 MiB
		"proc/vmstat":                  "pgscan_direct 7\n",
		"proc/zoneinfo":                zoneinfo,
		nodesFolder + "/node0/meminfo": "Node 0 MemTotal: 100000 kB\nNode 0 MemFree: 25000 kB\nNode 0 HugePages_Total:    30\n",
		nodesFolder + "/node0/vmstat":  "nr_free_pages 5\n",
	})
	if _, err := f.Discover(); err != nil {
		t.Fatal(err)
	}
	var got observe.MemoryCounters
	if err := f.Memory(&got); err != nil || got.Total != (100000-71440)<<10 || got.HugePages != 71440<<10 || got.Available != 24000<<10 || got.Nodes[0].Total != (100000-30*2048)<<10 {
		t.Errorf("got %+v, %v", got, err)
	}
	put(t, root, "proc/meminfo", node+pages)
	if err := f.Memory(&got); err != nil || got.Total != (100000-30*2048)<<10 {
		t.Errorf("on an old kernel: %+v, %v", got, err)
	}
}

func TestMissingFiles(t *testing.T) {
	t.Parallel()
	f, root := host(t, nil)
	var p observe.PressureTotals
	var m observe.MemoryCounters
	_, stat := f.CPUTimes(nil)
	_, discover := f.Discover()
	_, thread := f.RunDelay(7)
	for name, err := range map[string]error{"stat": stat, "pressure": f.Pressure(&p), "memory": f.Memory(&m), "zones": discover, "thread": thread} {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if w, err := f.Arm(Trigger{Resource: "cpu", Stall: 1, Window: time.Second}); w != nil || err == nil || !strings.Contains(err.Error(), "at the next look") {
		t.Errorf("arming: %v, %v", w, err)
	}
	put(t, root, "proc/pressure/cpu", "some avg10=1.00 avg60=0.00 avg300=0.00 total=5\n")
	put(t, root, "proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=6\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n")
	put(t, root, "proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=8\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n")
	if err := f.Pressure(&p); err != nil || p.CPU.Total != 5000 || p.Memory.Total != 6000 || p.MemoryFull.Total != 7000 || p.IO.Total != 8000 || p.IOFull.Total != 9000 {
		t.Errorf("pressure is %+v, %v", p, err)
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "mount the host's /proc") {
		t.Errorf("a root without /proc: %v", err)
	}
}

func TestLongFile(t *testing.T) {
	t.Parallel()
	f, _ := host(t, map[string]string{"proc/stat": strings.Repeat("cpu1 1 1 1 1 1 1 1 1\n", 2000) + "intr 5\n"})
	if cpus, err := f.CPUTimes(nil); err != nil || len(cpus) != 2 || len(f.text) < 40000 {
		t.Errorf("%+v, %v", cpus, err)
	}
}

// TestReal reads the files of this machine.
func TestReal(t *testing.T) {
	f, err := Open("/")
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	defer f.Close()
	cpus, err := f.CPUTimes(nil)
	if err != nil || len(cpus) == 0 || cpus[0].Busy == 0 {
		t.Errorf("CPU times are %+v, %v", cpus, err)
	}
	low, err := f.Discover()
	if err != nil || low <= 0 {
		t.Errorf("the low watermark is %d: %v", low, err)
	}
	var m observe.MemoryCounters
	var p observe.PressureTotals
	read := func() {
		if cpus, err = f.CPUTimes(cpus); err == nil {
			err = f.Memory(&m)
		}
		if err == nil {
			if err = f.Pressure(&p); errors.Is(err, ErrUnsupported) {
				err = nil
			}
		}
		if err == nil {
			_, err = f.RunDelay(os.Getpid())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(10, read); n != 0 {
		t.Errorf("a look allocates %v times", n)
	}
	if m.Total <= 0 || m.Available <= 0 || m.Available > m.Total {
		t.Errorf("memory is %+v", m)
	}
}

func TestRealTrigger(t *testing.T) {
	t.Parallel()
	f, err := Open("/")
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	defer f.Close()
	// The trigger fires at the shortest possible stall, 1 ms. A process without CAP_SYS_RESOURCE
	// can't have a window this short, and gets the shortest allowed one.
	w, err := f.Arm(Trigger{Resource: "cpu", Stall: time.Millisecond, Window: time.Second}, Trigger{Resource: "none", Stall: 1, Window: time.Second})
	if w == nil {
		t.Skipf("SKIPPED, the kernel takes no triggers: %v", err)
	}
	if err == nil || !strings.Contains(err.Error(), `waking on none pressure by "some 0 1000000"`) || len(w.Armed()) != 1 {
		t.Errorf("armed %v, %v", w.Armed(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx, func(Trigger) {}) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLongerWindows(t *testing.T) {
	t.Parallel()
	for window, want := range map[time.Duration]string{
		500 * time.Millisecond: "some 400000 2000000", 2 * time.Second: "some 100000 2000000", 3 * time.Second: "some 133333 4000000",
	} {
		if got := (Trigger{Resource: "cpu", Stall: 100 * time.Millisecond, Window: window}).longer().String(); got != want {
			t.Errorf("%v: %s, want %s", window, got, want)
		}
	}
}

func FuzzParsers(f *testing.F) {
	for _, text := range []string{stat, zoneinfo, "Node 0 MemTotal:   600 kB\nMemFree: 99999999999999999999 kB\n", "pgscan_direct_a 9223372036854775807\npgscan_direct_b 7\n", "5 6 7\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var m observe.MemoryCounters
		parseMeminfo(text, &m)
		scans, _ := parseDirect(text)
		for _, n := range []int64{m.Total, m.Free, m.Available, m.Cache, m.Anon, scans, parseZoneinfo(text), int64(parseSchedstat(text))} {
			if n < 0 {
				t.Errorf("%q has a negative number: %+v, %d", text, m, scans)
			}
		}
		for _, c := range parseStat(text, nil) {
			if c.Busy < 0 || c.Idle < 0 || c.Steal < 0 || c.IOWait < 0 {
				t.Errorf("%q has a negative time: %+v", text, c)
			}
		}
	})
}

func BenchmarkLook(b *testing.B) {
	f, err := Open("/")
	if err != nil {
		b.Skipf("SKIPPED: %v", err)
	}
	defer f.Close()
	var m observe.MemoryCounters
	var p observe.PressureTotals
	var cpus []observe.CPUTime
	f.Discover()
	for name, read := range map[string]func() error{
		"Stat":     func() (err error) { cpus, err = f.CPUTimes(cpus); return err },
		"Memory":   func() error { return f.Memory(&m) },
		"Pressure": func() error { return f.Pressure(&p) },
		"Discover": func() error { _, err := f.Discover(); return err },
		"RunDelay": func() error { _, err := f.RunDelay(os.Getpid()); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
