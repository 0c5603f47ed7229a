package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/bench/cgroups"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// These are the configurations of two nodes with cgroup v1 of a mainline kernel: usualKnobs sets no
// I/O throttles, benchKnobs sets every knob.
const (
	usualKnobs = `
recordUpdates: {enabled: false}
classes:
  LS: {cpu-burst: 100%, weight: 200%, memory-qos: {highPercent: 80}, io: {weight: 200}}
  BE: {cpu-identity: -1, memory-qos: {highPercent: 20}, io: {weight: 20}}
`
	benchKnobs = `
recordUpdates: {enabled: false}
pools: {mode: exclusive, list: [{name: online}, {name: batch, cpus: 1}]}
classes:
  LS: {cpu-burst: 100%, weight: 200%, memory-qos: {highPercent: 80}, io: {weight: 200, readBPS: 900Mi, writeBPS: 100Mi, readIOPS: 90000, writeIOPS: 10000}}
  BE: {cpu-identity: -1, memory-qos: {highPercent: 20}, io: {weight: 20, readBPS: 90Mi, writeBPS: 10Mi, readIOPS: 9000, writeIOPS: 1000}}
`
)

// bed is an agent that works on cgroups of this host's kernel, with two containers per pod.
type bed struct {
	*Agent
	b      *testing.B
	tree   *cgroups.Tree
	driver *recorder
	pods   []*workload.Pod
	specs  []workload.Container
	ran    chan struct{} // receives one value for each event that the loop has processed
}

// recorder is a kernel that records the changes.
type recorder struct {
	*cgroupfs.Driver
	changes []knobs.Change
	took    time.Duration
}

func (r *recorder) Apply(changes []knobs.Change) error {
	began := time.Now()
	err := r.Driver.Apply(changes)
	r.took += time.Since(began)
	r.changes = append(r.changes, changes...)
	return err
}

func newBed(b *testing.B, text string, containers int) *bed {
	b.Helper()
	root := b.TempDir()
	tree := cgroups.New(b, root)
	driver, err := cgroupfs.Open(root)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { driver.Close() })
	here := os.DirFS("/")
	machine, err := sysfs.Read(here)
	if err != nil {
		b.Fatal(err)
	}
	features, err := driver.Probe()
	if err != nil {
		b.Fatal(err)
	}
	disks, err := sysfs.Disks(here)
	if err != nil {
		b.Fatal(err)
	}
	has := qos.Node{Features: features, Memory: machine.Memory(machine.MemoryNodes())}
	for _, number := range disks {
		has.Disks = []string{number} // only one, because machines have different numbers of disks
	}
	cfg, err := config.Parse([]byte(text))
	if err != nil {
		b.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	h := &bed{b: b, tree: tree, driver: &recorder{Driver: driver}, ran: make(chan struct{}, 2)}
	h.Agent = New(Options{
		Config: cfg, Machine: machine, Host: fstest.MapFS{"proc/1/comm": {Data: []byte("init\n")}},
		Kernel: h.driver, Originals: filepath.Join(b.TempDir(), "originals"), Node: has, Log: log,
	})
	for i := range containers {
		h.add(i)
	}
	h.load()
	go h.serve()
	h.sync(workload.LS)
	return h
}

// serve runs the event loop without the timers of Run.
func (h *bed) serve() {
	after := h.events.After
	h.events.After = func() {
		after()
		select {
		case h.ran <- struct{}{}:
		default: // nobody waits
		}
	}
	h.events.Run(h.b.Context(), nil, nil)
}

// add makes the cgroups of a container and its pod, as the kubelet and a runtime do.
func (h *bed) add(i int) (*workload.Pod, workload.Container) {
	if i%2 == 0 {
		uid := fmt.Sprintf("uid-%d", i/2)
		p := &workload.Pod{ID: "pod-" + uid, UID: uid, Namespace: "default", Name: uid, CgroupParent: "/kubepods/burstable/pod" + uid}
		h.pods = append(h.pods, p)
		h.tree.Make(p.CgroupParent)
		h.tree.Write(p.CgroupParent, "cpu.cfs_quota_us", "200000")
		h.tree.Write(p.CgroupParent, "cpu.shares", "1024")
	}
	p := h.pods[len(h.pods)-1]
	id := fmt.Sprintf("%064d", i)
	c := workload.Container{
		ID: id, PodID: p.ID, Name: "c", CgroupsPath: p.CgroupParent + "/" + id, State: workload.Running,
		Resources: workload.Resources{Shares: 512, Quota: 100000, Period: 100000, MemoryLimit: 1 << 30}, OOMScoreAdj: 990, CreatedNanos: int64(i),
	}
	h.specs = append(h.specs, c)
	h.tree.Make(c.CgroupsPath)
	h.tree.Write(c.CgroupsPath, "cpu.shares", "512")
	h.tree.Write(c.CgroupsPath, "cpu.cfs_quota_us", "100000")
	h.tree.Write(c.CgroupsPath, "memory.limit_in_bytes", "1073741824")
	return p, c
}

// sync synchronizes the agent with all containers in that class, and returns when all settings are
// written.
func (h *bed) sync(class workload.Class) {
	h.b.Helper()
	for _, p := range h.pods {
		p.Annotations = map[string]string{"class.sluice.dev": class.String()}
	}
	for len(h.ran) > 0 {
		<-h.ran
	}
	if _, err := h.Synchronize(context.Background(), h.pods, slices.Clone(h.specs)); err != nil {
		h.b.Fatal(err)
	}
	<-h.ran                             // Synchronize
	<-h.ran                             // the event reconcileAll, which Synchronize posts
	h.cpusets.RejoinUntil = time.Time{} // measures a pass as it is long after the start
}

// refused returns the number of writes that the kernel has refused.
func (h *bed) refused() int {
	_, all := h.Reconciler.WriteErrors()
	return h.Counters.WriteErrors + all
}

// dirs lists the cgroups that have settings.
func (h *bed) dirs() []string {
	var dirs []string
	for c := range h.Reconciler.Cgroups() {
		dirs = append(dirs, c.Path)
	}
	slices.Sort(dirs)
	return dirs
}

// reset undoes changes.
func (h *bed) reset(changes []knobs.Change) {
	h.b.Helper()
	back := make([]knobs.Change, 0, len(changes))
	seen := map[reconcile.Key]bool{}
	for _, c := range changes {
		if at := reconcile.KeyOf(&c); !seen[at] {
			seen[at] = true
			back = append(back, knobs.Change{Object: c.Object, Knob: c.Knob, From: c.To, To: c.From})
		}
	}
	if err := h.driver.Driver.Apply(knobs.Order(back)); err != nil {
		h.b.Fatal(err)
	}
}

// knobs counts the settings, and fails if the kernel lacks a knob.
func (h *bed) knobs() (n int) {
	h.b.Helper()
	for t := range h.Reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if k.Problem() != "" {
				h.b.Fatalf("%s of %s: %s", k.Knob, t.Path, k.Problem())
			}
			n++
		}
	}
	return n
}

// BenchmarkStartContainer measures StartContainer for an LS container with every knob: the
// computation of the settings, reading the present values, the journal of originals, and the
// writes. In turns with it, it writes the same texts to the same files by their paths.
func BenchmarkStartContainer(b *testing.B) {
	for _, others := range []int{0, 500} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			h := newBed(b, benchKnobs, others)
			pod, spec := h.add(others)
			pod.Annotations = map[string]string{"class.sluice.dev": "LS"}
			spec.State = workload.Created
			dirs := []string{pod.CgroupParent, spec.CgroupsPath}
			before := h.tree.Dump(dirs...)
			var writes []cgroups.Setting
			var ours, plain []time.Duration
			b.ResetTimer()
			for i := 0; b.Loop(); i++ {
				if _, _, err := h.CreateContainer(context.Background(), pod, spec); err != nil {
					b.Fatal(err)
				}
				h.driver.changes = nil
				began := time.Now()
				err := h.StartContainer(context.Background(), pod, spec)
				ours = append(ours, time.Since(began))
				if err != nil {
					b.Fatal(err)
				}
				changes := h.driver.changes
				if i == 0 {
					h.knobs()
					writes = cgroups.Changed(before, h.tree.Dump(dirs...))
				}
				h.reset(changes)
				began = time.Now()
				err = cgroups.Write(writes)
				plain = append(plain, time.Since(began))
				if err != nil {
					b.Fatal(err)
				}
				if err := h.RemoveContainer(spec.ID); err != nil {
					b.Fatal(err)
				}
				h.reset(changes)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(len(writes)), "files")
			compare(b, "start", ours, plain)
		})
	}
}

// compare reports the quantiles of two series of times, and their ratio.
func compare(b *testing.B, what string, ours, plain []time.Duration) {
	slices.Sort(ours)
	slices.Sort(plain)
	for _, percent := range []int{50, 99} {
		o, p := ours[min(len(ours)-1, len(ours)*percent/100)], plain[min(len(plain)-1, len(plain)*percent/100)]
		b.ReportMetric(float64(o.Nanoseconds())/1000, fmt.Sprintf("%s-p%d-µs", what, percent))
		b.ReportMetric(float64(p.Nanoseconds())/1000, fmt.Sprintf("plain-p%d-µs", percent))
		b.ReportMetric(float64(o)/float64(p), fmt.Sprintf("p%d-ratio", percent))
	}
}

// BenchmarkClassChange changes 500 containers from LS to BE and back. It measures the whole of a
// new connection with pods of another class, and the part of knobs.Order and the driver; in turns
// with these it writes the same texts to the same files by their paths. One operation consists of
// both directions.
func BenchmarkClassChange(b *testing.B) {
	b.Run("usual", func(b *testing.B) { classChange(b, usualKnobs) })
	b.Run("every", func(b *testing.B) { classChange(b, benchKnobs) })
}

func classChange(b *testing.B, text string) {
	h := newBed(b, text, 500)
	classes := []workload.Class{workload.BE, workload.LS}
	dirs := h.dirs()
	dump := h.tree.Dump(dirs...)
	var whole, lane, plain []time.Duration
	writes := map[workload.Class][]cgroups.Setting{}
	count := 0
	for _, class := range classes { // a first round reads the files
		h.sync(class)
		h.knobs()
		now := h.tree.Dump(dirs...)
		writes[class], dump = cgroups.Changed(dump, now), now
	}
	b.ResetTimer()
	for b.Loop() {
		for _, class := range classes {
			h.driver.changes, h.driver.took = nil, 0
			runtime.GC()
			began := time.Now()
			h.sync(class)
			whole = append(whole, time.Since(began))
			changes := h.driver.changes
			count += len(changes)

			h.reset(changes)
			runtime.GC()
			began = time.Now()
			err := h.driver.Driver.Apply(knobs.Order(changes))
			lane = append(lane, time.Since(began))
			if err != nil {
				b.Fatal(err)
			}
		}
		for _, class := range classes {
			runtime.GC()
			began := time.Now()
			err := cgroups.Write(writes[class])
			plain = append(plain, time.Since(began))
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(count)/float64(len(whole)), "changes")
	b.ReportMetric(float64(len(writes[workload.BE])), "files")
	for _, of := range []struct {
		name string
		took []time.Duration
	}{{"sync", whole}, {"lane", lane}, {"plain", plain}} {
		slices.Sort(of.took)
		b.ReportMetric(float64(of.took[len(of.took)/2].Microseconds())/1000, of.name+"-ms")
	}
}

// BenchmarkPass measures what happens every driftInterval for 500 containers in 250 pods with
// every knob. The baseline opens, reads and closes the same files by their paths.
func BenchmarkPass(b *testing.B) {
	b.Run("usual", func(b *testing.B) { pass(b, usualKnobs) })
	b.Run("every", func(b *testing.B) { pass(b, benchKnobs) })
}

func pass(b *testing.B, text string) {
	h := newBed(b, text, 500)
	settings := h.knobs()
	var files []string
	for t := range h.Reconciler.Cgroups() {
		for _, k := range t.Settings() {
			files = append(files, h.tree.Files(t.Path, cgroupfs.Describe(k.Knob).V1...)...)
		}
		if t.Level == knobs.ContainerLevel && text == benchKnobs {
			files = append(files, h.tree.Files(t.Path, "cpuset.cpus")...)
		}
	}
	if text == benchKnobs {
		settings += len(h.Order) // one for the container's CPUs
	}
	b.Run("agent", func(b *testing.B) {
		used := processor(b)
		for b.Loop() {
			if err := h.events.Do("pass", func() error { h.pass(); return nil }); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64((processor(b)-used).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
		b.ReportMetric(float64(settings), "knobs")
		b.ReportMetric(float64(len(files)), "files")
		b.ReportAllocs()
	})
	b.Run("plain", func(b *testing.B) {
		used := processor(b)
		for b.Loop() {
			for _, file := range files {
				if _, err := os.ReadFile(file); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64((processor(b)-used).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
	})
	if drifts, refused := h.Counters.Drift+h.Reconciler.Drift(), h.refused(); drifts+refused > 0 {
		b.Errorf("%d drifts, %d failed writes", drifts, refused)
	}
}

// processor returns the CPU time of this process.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
