package memorylimit

import (
	"errors"
	"maps"
	"path/filepath"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	mib = 1 << 20

	group   = "/kubepods/besteffort" // a batch cgroup
	podPath = group + "/pod-a"
	cgroup  = podPath + "/a"
)

// rig is a Limiter on a kernel in memory, with a container that is being created in a batch
// cgroup. The test decides when a job runs.
type rig struct {
	*Limiter
	t      *testing.T
	kernel *fakekernel.Kernel
	driver *cgroupfs.Driver
	view   *colocation.NodeView
	log    *logtest.Hook
	work   []func() // work of waiting jobs
	events []func() // events posted by the work
}

// lateKernel runs a function before a job's write.
type lateKernel struct {
	*cgroupfs.Driver
	first func()
}

func (k *lateKernel) Apply(changes []knobs.Change) error {
	k.first()
	return k.Driver.Apply(changes)
}

func newRig(t *testing.T, f fakekernel.Flavour) *rig {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	r := &rig{t: t, kernel: fakekernel.New(f), view: &colocation.NodeView{}}
	r.kernel.Mkdir(cgroup)
	var err error
	r.driver, err = r.kernel.Driver()
	must(err)
	features, err := r.driver.Probe()
	must(err)
	cfg, err := config.Parse([]byte("control: {mode: on}\n"))
	must(err)
	j, err := journal.Open(filepath.Join(t.TempDir(), "journal"), "boot")
	must(err)
	t.Cleanup(func() { j.Close() })
	log, hook := logtest.NewNullLogger()
	r.log = hook
	n := &node.Node{
		Inventory: node.NewInventory(0, 0, 0), Config: cfg, Kernel: r.driver, QoS: qos.Node{Features: features}, Log: log, Journal: j,
		Spawn: func(work func()) { r.work = append(r.work, work) },
		Post:  func(_ string, event func()) { r.events = append(r.events, event) },
	}
	n.Reconciler = reconcile.New(reconcile.Options{
		Kernel: r.driver, Journal: j, Features: &n.QoS.Features, Log: log, Now: n.Now,
		MayWrite: func() bool { return true }, DriftInterval: func() time.Duration { return time.Hour },
		Carried:  func(reconcile.Key) (knobs.Value, bool) { return nil, false },
		Updating: func(string) bool { return false }, Starting: func(string) bool { return false },
		Suspect: n.Suspect, Blocking: true,
	})
	host := Host{Use: r.driver.MemoryUse}
	if features.Reclaim {
		host.Reclaim = r.driver.Reclaim
	}
	r.Limiter = New(n, host, r.view, func(string) bool { return false })
	n.Containers["a"] = &node.Container{Container: workload.Container{ID: "a"}, Pod: &workload.Pod{}, Path: cgroup, PodPath: podPath, Above: group}
	r.view.BatchCgroups.Limited = []string{group}
	return r
}

// want makes the controller allow batch work that many bytes.
func (r *rig) want(bytes int64) {
	d := control.MemoryDesired{Known: true, BatchLimit: bytes, Goal: bytes, Room: bytes}
	r.Apply(&colocation.Desired{Memory: &d, ActsMemory: true})
}

// start creates and starts the container.
func (r *rig) start() {
	r.t.Helper()
	c, request := r.Containers["a"], &workload.Request{Class: workload.BE}
	if err := r.MayStart(c, request); err != nil {
		r.t.Fatal(err)
	}
	r.Reserve(c, request)
	r.Start("a")
}

// finishJob runs the waiting job and the events that it posts.
func (r *rig) finishJob() {
	r.t.Helper()
	if len(r.work) != 1 || !r.IsBusy() {
		r.t.Fatalf("%d jobs wait, want one", len(r.work))
	}
	r.work[0]()
	r.work = nil
	for _, event := range r.events {
		event()
	}
	r.events = nil
}

// expect compares the kernel's limit and the Limiter's report of it; -1 is none.
func (r *rig) expect(when string, want knobs.Bytes) {
	r.t.Helper()
	have, err := r.driver.Read(group, knobs.MemoryMax)
	if err != nil {
		r.t.Fatal(err)
	}
	if !r.driver.Same(knobs.MemoryMax, want, have) {
		r.t.Errorf("%s: the limit is %v, want %v", when, have, want)
	}
	limits := maps.Collect(r.Limits())
	if limit, ok := limits[group]; ok != (want >= 0) || ok && limit != want {
		r.t.Errorf("%s: the Limiter has set %v, want %v", when, limits, want)
	}
	if at := (reconcile.Key{Path: group, Knob: knobs.MemoryMax}); r.Owns(at) != (want >= 0) {
		r.t.Errorf("%s: the limit is the Limiter's: %t", when, r.Owns(at))
	}
	if _, kept := r.Journal.Entry(group, knobs.MemoryMax); kept != (want >= 0) {
		r.t.Errorf("%s: the journal keeps the original: %t", when, kept)
	}
}

// A container finds room to start although a job that lowers the limit began before its start and
// ends after it.
func TestStartWhileAJobRuns(t *testing.T) {
	t.Parallel()
	for _, f := range []fakekernel.Flavour{fakekernel.MainlineV1(), fakekernel.MainlineV2()} {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, f)
			r.kernel.Use(group, 512*mib, 0)
			r.want(2048 * mib)
			r.finishJob()
			r.expect("at first", 2048*mib)
			r.want(600 * mib) // the job is waiting
			r.start()
			if owed := r.Owed(); owed != colocation.LeastStart {
				t.Errorf("%d bytes are owed, want %d", owed, colocation.LeastStart)
			}
			r.expect("as it starts", (512+128)*mib)
			r.finishJob()
			r.expect("after the job", (512+128)*mib)
			delete(r.Containers, "a")
			r.Owed()
			r.want(600 * mib)
			r.finishJob()
			r.expect("after the container has gone", 600*mib)
			r.Release()
			r.expect("released", -1)
		})
	}
}

// The limit is raised again if a job lowers it right after it was raised for a starting container.
func TestStartBeforeAJobWrites(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakekernel.MainlineV2())
	r.kernel.Use(group, 512*mib, 0)
	r.want(2048 * mib)
	r.finishJob()
	r.want(600 * mib)
	r.Kernel = &lateKernel{r.driver, r.start}
	r.finishJob()
	r.expect("after the job", (512+128)*mib)
}

// On cgroup v2, a limit below the memory in use is not set, because the kernel would kill
// containers. If the first limit can't be set, nothing is left behind.
func TestLimitBelowUse(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakekernel.MainlineV2())
	r.kernel.Use(group, 100*mib, 0)
	r.want(256 * mib)
	r.kernel.Use(group, 300*mib, 0) // before the job runs
	r.finishJob()
	r.expect("it holds more", -1)
	r.want(256 * mib)
	r.finishJob()
	r.expect("the next step", 300*mib)
}

// A limit of an earlier run stays while one is wanted, and is restored when none is.
func TestInheritAndRelease(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakekernel.MainlineV2())
	r.want(256 * mib)
	r.finishJob()
	next := New(r.Node, r.host, r.view, r.resizing)
	next.Inherit(group, 256*mib)
	r.Limiter = next
	r.want(256 * mib)
	if len(r.work) != 0 {
		t.Error("a job writes the limit that the kernel has already")
	}
	r.expect("inherited", 256*mib)
	r.Release()
	r.expect("released", -1)
}

// A request to reclaim that fails is logged once, and again after a success.
func TestFailedReclaimIsLoggedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakekernel.MainlineV2())
	var fails error
	r.host.Reclaim = func(string, knobs.Bytes) error { return fails }
	reclaim := func() {
		t.Helper()
		r.Apply(&colocation.Desired{Reclaim: []control.Reclaim{{ID: "a", Bytes: mib}}})
		r.finishJob()
	}
	for _, fails = range []error{errors.New("no"), errors.New("no"), nil, errors.New("no")} {
		reclaim()
	}
	if n := len(r.log.AllEntries()); n != 2 {
		t.Errorf("logged %d times, want twice", n)
	}
}

// While the kernel takes long to set the limit of a container that starts, no job sets another one: the
// kernel would have the older limit in the end, which would count as another program's.
func TestJobAfterASlowWrite(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakekernel.MainlineV2())
	var slow, answers []func()
	r.Reconciler = reconcile.New(reconcile.Options{
		Kernel: r.driver, Journal: r.Journal, Features: &r.QoS.Features, Log: r.Log, Now: r.Now,
		MayWrite: func() bool { return true }, DriftInterval: func() time.Duration { return time.Hour },
		Carried:  func(reconcile.Key) (knobs.Value, bool) { return nil, false },
		Updating: func(string) bool { return false }, Starting: func(string) bool { return false },
		Suspect: r.Suspect,
		Spawn:   func(work func()) { slow = append(slow, work) },
		Post:    func(_ string, answer func()) { answers = append(answers, answer) },
	})
	r.Apply(&colocation.Desired{Memory: &control.MemoryDesired{Known: true, Goal: 2048 * mib, Room: 2048 * mib}, ActsMemory: true})
	r.start() // the first limit
	if len(slow) != 1 {
		t.Fatalf("%d slow writes", len(slow))
	}
	r.want(3072 * mib)
	if r.IsBusy() {
		r.finishJob()
	}
	slow[0]()
	answers[0]()
	for range 2 {
		if r.want(3072 * mib); r.IsBusy() {
			r.finishJob()
		}
	}
	r.expect("in the end", 3072*mib)
	if original, _ := r.Journal.Original(group, knobs.MemoryMax); original != knobs.Value(knobs.Max) {
		t.Errorf("%v counts as another program's limit", original)
	}
}

// watchingKernel keeps the count of a cgroup's OOM kills until the cgroup is forgotten, as the driver does
// on cgroup v1.
type watchingKernel struct {
	*cgroupfs.Driver
	watched map[string]bool
}

func (k *watchingKernel) OOMs(dir string) (int64, error) {
	k.watched[dir] = true
	return 0, nil
}

func (k *watchingKernel) Forget(dir string) {
	delete(k.watched, dir)
	k.Driver.Forget(dir)
}

// The OOM kills of a cgroup are not counted once it has no limit of Sluice's, neither where its pod has
// ended, nor where the first limit could not be set.
func TestKillsAreCountedNoLonger(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakekernel.MainlineV2())
	k := &watchingKernel{r.driver, map[string]bool{}}
	r.Kernel, r.host.OOMs = k, k.OOMs
	r.kernel.Use(group, 100*mib, 0)
	expect := func(when string, watched bool) {
		t.Helper()
		if k.watched[group] != watched {
			t.Errorf("%s: the OOM kills are counted: %t", when, !watched)
		}
	}
	r.want(256 * mib)
	r.finishJob()
	r.want(256 * mib)
	expect("with a limit", true)
	r.view.BatchCgroups.Limited = nil
	k.Forget(group) // as the end of its pod does
	r.want(256 * mib)
	r.expect("ended", -1)
	expect("ended", false)

	r.view.BatchCgroups.Limited = []string{group}
	r.want(256 * mib)
	r.kernel.Use(group, 300*mib, 0)
	r.want(256 * mib)
	expect("while the limit is being set", true)
	r.finishJob()
	r.expect("not set", -1)
	expect("not set", false)
}
