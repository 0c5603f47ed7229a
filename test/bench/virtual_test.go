package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/engine/memorylimit"
	"github.com/sluice-dev/sluice/pkg/engine/sampler"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/synth"
)

// BenchmarkVirtualLoop measures the control loop as a whole: ten minutes of virtual time beside
// 250 pods, a fifth of them batch work, whose load rises and falls every minute. Sampler, agent
// and cgroup driver are the product's; below them are a kernel in memory and a folder with /proc.
//
// CPU time and allocations are those of samples, ticks and passes, including the fake kernel's
// part in reads and writes. "nothing" is the node without Sluice: it shows what the measurement
// takes, and the resident memory of the fakes. "sampling" reads all counters and decides nothing.
func BenchmarkVirtualLoop(b *testing.B) {
	for _, what := range []string{"nothing", "sampling", "off", "preview", "on"} {
		b.Run(what, func(b *testing.B) {
			n := newVirtual(b, what)
			n.run(time.Minute) // each container is read in full, and decided on
			n.cost, n.written = cost{}, n.kernel.Writes()
			for b.Loop() {
				n.run(10 * time.Minute)
			}
			hours := (time.Duration(n.steps) * virtualTick).Hours()
			b.ReportMetric(n.cpu.Seconds()/hours, "cpu-s/h")
			b.ReportMetric(float64(n.mallocs)/float64(n.steps), "allocs/tick")
			b.ReportMetric(float64(n.bytes)/float64(n.steps), "B/tick")
			b.ReportMetric(float64(n.kernel.Writes()-n.written)/hours, "writes/h")
			b.ReportMetric((float64(heap())-float64(n.fakes))/(1<<20), "heap-MiB")
			b.ReportMetric(measure(b, 0, os.Getpid())[0].MiB(), "rss-MiB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

const virtualTick = 100 * time.Millisecond // control.fastInterval as shipped

// virtual is a node in virtual time.
type virtual struct {
	b      *testing.B
	root   string // folder with /proc
	kernel *fakekernel.Kernel
	specs  []workload.Container
	batch  []bool                // whether specs[i] is batch work
	total  []fakekernel.Counters // of specs[i], since the node's boot
	busy   float64               // CPU seconds since the node's boot
	began  time.Time             // of the node
	now    time.Time

	sampler  *sampler.Sampler // nil: nothing is measured
	agent    *agent.Agent     // nil: there is none
	ticks    bool             // the agent has a loop
	targets  []observe.Target
	seen     observe.Snapshot
	sampleAt time.Time
	passAt   time.Time
	every    time.Duration // between two passes

	fakes   uint64 // bytes of the heap that the fakes take
	written int    // writes to cgroups before the measured time
	cost
}

// cost is what samples, ticks and passes took.
type cost struct {
	cpu            time.Duration
	mallocs, bytes uint64
	steps          uint64 // of virtualTick
}

func newVirtual(b *testing.B, what string) *virtual {
	b.Helper()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	n := &virtual{b: b, root: b.TempDir(), kernel: fakekernel.New(fakekernel.MainlineV2()), began: time.Now()}
	n.now = n.began
	pods := n.populate(250)
	n.load()
	driver, err := n.kernel.Driver()
	must(err)
	b.Cleanup(func() { driver.Close() })
	n.fakes = heap()
	if what == "nothing" {
		return n
	}
	if what != "off" {
		n.sampler, err = sampler.Open(n.root, driver, nil, sampler.DefaultIntervals())
		must(err)
		n.sampler.Now = func() time.Time { return n.now }
		b.Cleanup(func() { n.sampler.Close() })
	}
	if what == "sampling" {
		for i := range n.specs {
			n.targets = append(n.targets, observe.Target{ID: n.specs[i].ID, Path: n.specs[i].CgroupsPath, Fast: n.batch[i], LS: !n.batch[i]})
		}
		return n
	}
	n.ticks = what != "off"
	n.manage(driver, what, pods)
	return n
}

// populate makes running pods of one container each; every fifth is batch work.
func (n *virtual) populate(count int) (pods []*workload.Pod) {
	n.total = make([]fakekernel.Counters, count)
	for i := range count {
		pod, c := podNumber(i), containerNumber(i)
		batch := i%5 == 0
		if batch {
			pod.CgroupParent = strings.Replace(pod.CgroupParent, "burstable", "besteffort", 1)
			c.CgroupsPath = pod.CgroupParent + "/" + c.ID
			c.Resources = workload.Resources{Shares: 2}
			pod.Annotations = map[string]string{"class.sluice.dev": "BE"}
		}
		c.State = workload.Running
		n.kernel.Mkdir(c.CgroupsPath)
		if err := n.kernel.Populate(c.CgroupsPath, 1); err != nil {
			n.b.Fatal(err)
		}
		pods, n.specs, n.batch = append(pods, pod), append(n.specs, c), append(n.batch, batch)
	}
	return pods
}

// manage starts an agent, whose loop has that mode.
func (n *virtual) manage(driver *cgroupfs.Driver, mode string, pods []*workload.Pod) {
	n.b.Helper()
	machine, err := synth.Machine("2 nodes 4 cores memory 64G")
	if err != nil {
		n.b.Fatal(err)
	}
	features, err := driver.Probe()
	if err != nil {
		n.b.Fatal(err)
	}
	cfg, err := config.Parse(fmt.Appendf(nil, "recordUpdates: {enabled: false}\ncontrol: {mode: %s}\n", mode))
	if err != nil {
		n.b.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	n.every = cfg.DriftInterval
	n.agent = agent.New(agent.Options{
		Config: cfg, Machine: machine, Host: fstest.MapFS{"proc/1/comm": {Data: []byte("init\n")}}, Kernel: driver,
		Node: qos.Node{Features: features, Memory: 64 << 30}, Memory: memorylimit.Host{Use: driver.MemoryUse},
		Log: log, Clock: func() time.Time { return n.now },
	})
	ended := make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	go func() { defer close(ended); n.agent.Run(ctx) }()
	n.b.Cleanup(func() { stop(); <-ended })
	if _, err := n.agent.Synchronize(ctx, pods, n.specs); err != nil {
		n.b.Fatal(err)
	}
}

// run lets time pass, and measures what is Sluice's.
func (n *virtual) run(d time.Duration) {
	var before, after runtime.MemStats
	for end := n.now.Add(d); n.now.Before(end); n.steps++ {
		n.now = n.now.Add(virtualTick)
		n.load()
		runtime.ReadMemStats(&before)
		began := processTime(n.b)
		n.step()
		n.cpu += processTime(n.b) - began
		runtime.ReadMemStats(&after)
		n.mallocs, n.bytes = n.mallocs+after.Mallocs-before.Mallocs, n.bytes+after.TotalAlloc-before.TotalAlloc
	}
}

// step samples, ticks and passes if that is due.
func (n *virtual) step() {
	if n.sampler != nil && !n.now.Before(n.sampleAt) {
		if n.ticks && n.targets == nil {
			n.targets = n.agent.Targets()
		}
		wait, err := n.sampler.Sample(n.now, n.targets, &n.seen)
		if err != nil {
			n.b.Fatal(err)
		}
		n.sampleAt = n.now.Add(wait)
		if n.ticks {
			n.targets = n.agent.Tick(&n.seen)
		}
	}
	if n.agent != nil && !n.now.Before(n.passAt) {
		n.agent.Pass()
		n.passAt = n.now.Add(n.every)
	}
}

// load moves the counters of the kernel on. The services together use between 1 and 5 of the 8
// CPUs, up and down in a minute, and batch work uses what they leave, up to its quota.
func (n *virtual) load() {
	const cpus = 8
	services := 3 + 2*math.Sin(2*math.Pi*n.now.Sub(n.began).Minutes())
	batch := min(cpus-services, n.quota())
	fifth := len(n.specs) / 5
	for i := range n.specs {
		share := services / float64(len(n.specs)-fifth)
		if n.batch[i] {
			share = batch / float64(fifth)
		}
		n.total[i].CPU += int64(share * float64(virtualTick))
		n.kernel.Count(n.specs[i].CgroupsPath, n.total[i])
	}
	n.busy += (services + batch) * virtualTick.Seconds()
	const perSecond = 100 // the unit of /proc/stat
	busy, all := int(n.busy/cpus*perSecond), int(n.now.Sub(n.began).Seconds()*perSecond)
	var stat strings.Builder
	for cpu := range cpus {
		fmt.Fprintf(&stat, "cpu%d %d 0 0 %d 0 0 0 0 0 0\n", cpu, busy, all-busy)
	}
	n.put("stat", stat.String()+"intr 5\n")
	if n.now.Equal(n.began) {
		n.put("meminfo", "MemTotal: 67108864 kB\nMemFree: 30000000 kB\nMemAvailable: 40000000 kB\n")
		n.put("vmstat", "pgscan_direct 0\n")
		n.put("zoneinfo", "low 5\n")
		n.put("loadavg", "0.50 0.40 0.30 1/99 1234\n")
		for _, name := range []string{"cpu", "memory", "io"} {
			n.put("pressure/"+name, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
		}
	}
}

// quota is the CPU time that batch work may use, in CPUs.
func (n *virtual) quota() float64 {
	text, err := n.kernel.ReadFile("/kubepods/besteffort", "cpu.max")
	if err != nil {
		n.b.Fatal(err)
	}
	var quota, period float64
	if _, err := fmt.Sscan(text, &quota, &period); err != nil {
		return math.Inf(1) // "max"
	}
	return quota / period
}

// put writes a file of /proc.
func (n *virtual) put(name, text string) {
	name = filepath.Join(n.root, "proc", name)
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = os.WriteFile(name, []byte(text), 0o644)
	}
	if err != nil {
		n.b.Fatal(err)
	}
}

// processTime is the CPU time of this process.
func processTime(b *testing.B) time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &at); err != nil {
		b.Fatal(err)
	}
	return time.Duration(at.Nano())
}

// heap is the memory of reachable objects, in bytes. It returns the rest to the system.
func heap() uint64 {
	debug.FreeOSMemory() // which collects garbage, too
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
