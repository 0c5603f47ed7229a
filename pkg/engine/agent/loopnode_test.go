package agent

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/engine/restore"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// loopNode is a node of 8 CPUs whose loop the test steps.
type loopNode struct {
	*knobNode
	audit *trail
	life  *fakeFailsafe

	uses      map[string]float64 // CPUs used, by container; system includes those of a host application, by cgroup
	system    float64
	throttled map[string]bool
	waits     map[string]float64 // CPU pressure, by container; that of others is not known
	ready     map[string]float64 // threads that wait for a CPU, by container; those of others are not known
	cycles    func() float64     // per instruction, of containers whose cycles are counted
	memory    observe.NodeMemory
	holds     map[string]int64 // bytes held, by container or by the cgroup of a host application
	blind     bool             // there are no measurements
	frozen    time.Time        // time at which the clock stands; zero while it runs
	skew      time.Duration    // of the measurements' clock
	counted   map[string]observe.CPI
}

// trail is the audit trail of a test.
type trail struct {
	mu  sync.Mutex
	all []control.Decision
	by  map[control.Mode]int
}

func (*trail) Dropped() int { return 0 }

func (r *trail) Record(_ time.Time, mode control.Mode, d *control.Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, *d)
	if r.by == nil {
		r.by = map[control.Mode]int{}
	}
	r.by[mode]++
}

// has counts the decisions of a controller with an action, or with any if action is "".
func (r *trail) has(controller, action string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.all {
		if d := &r.all[i]; d.Controller == controller && (action == "" || d.Action == action) {
			n++
		}
	}
	return n
}

// of lists the actions of a controller.
func (r *trail) of(controller string) (actions []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.all {
		if d := &r.all[i]; d.Controller == controller {
			actions = append(actions, d.Action+" "+d.Object)
		}
	}
	return actions
}

type fakeFailsafe struct {
	mu    sync.Mutex
	plan  []knobs.Change
	kept  int
	beats int
	acted *failsafe.Report
}

func (l *fakeFailsafe) Replace(changes []knobs.Change) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.plan, l.kept = changes, l.kept+1
	return nil
}

func (l *fakeFailsafe) Beat() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beats++
}

func (l *fakeFailsafe) TakeReport() (failsafe.Report, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acted == nil {
		return failsafe.Report{}, false
	}
	a := *l.acted
	l.acted = nil
	return a, true
}

// act carries the plan out as the failsafe's process does.
func (l *fakeFailsafe) act(h *loopNode) {
	h.t.Helper()
	l.mu.Lock()
	changes := slices.Clone(l.plan)
	l.acted = &failsafe.Report{Time: time.Now(), Why: "the plugin has given no sign of life for 5s", Changes: len(changes)}
	l.mu.Unlock()
	if err := failsafe.Carry(h.spy.Driver, changes); err != nil {
		h.t.Errorf("the failsafe's plan: %v", err)
	}
}

// withLoop adds to a setup what a loop needs.
func withLoop(s knobSetup, h **loopNode) knobSetup {
	more := s.options
	s.options = func(n *knobNode, o *Options) {
		*h = &loopNode{
			knobNode: n, audit: &trail{}, life: &fakeFailsafe{},
			uses: map[string]float64{}, throttled: map[string]bool{}, holds: map[string]int64{}, counted: map[string]observe.CPI{},
			memory: observe.NodeMemory{Total: 8 << 30, Available: 7 << 30, Free: 6 << 30},
		}
		o.Audit, o.Failsafe = (*h).audit, (*h).life
		o.Memory.Use = n.spy.MemoryUse
		if o.Node.Features.Reclaim {
			o.Memory.Reclaim = n.spy.Reclaim
		}
		if more != nil {
			more(n, o)
		}
	}
	return s
}

// onLoops runs a test of the loop on each kernel, in virtual time.
func onLoops(t *testing.T, s knobSetup, test func(t *testing.T, h *loopNode)) {
	t.Helper()
	t.Parallel()
	for _, f := range fakekernel.Flavours() {
		t.Run(f.Name, func(t *testing.T) { onLoop(t, f, s, test) })
	}
}

func onLoop(t *testing.T, f fakekernel.Flavour, s knobSetup, test func(t *testing.T, h *loopNode)) {
	t.Helper()
	f.NoWayBack = false
	var h *loopNode
	onFlavour(t, f, withLoop(s, &h), func(t *testing.T, _ *knobNode) {
		test(t, h)
		if s, err := h.agent.Status(); err != nil || s.Counters.Panics > 0 {
			t.Errorf("%v; log:\n%s", err, h.log.text.String())
		}
		if len(h.spy.refused) > 0 {
			t.Errorf("refused: %v", h.spy.refused)
		}
	})
}

// onBothLoops runs a test of the loop on mainline kernels only, with cgroup v1 and v2.
func onBothLoops(t *testing.T, s knobSetup, test func(t *testing.T, h *loopNode)) {
	t.Helper()
	t.Parallel()
	for _, f := range mainlines() {
		t.Run(f.Name, func(t *testing.T) { onLoop(t, f, s, test) })
	}
}

func mainlines() []fakekernel.Flavour {
	return []fakekernel.Flavour{fakekernel.MainlineV1(), fakekernel.MainlineV2()}
}

// snapshot returns what a sampler would measure now.
func (h *loopNode) snapshot() *observe.Snapshot {
	now := time.Now().Add(h.skew)
	if !h.frozen.IsZero() {
		now = h.frozen
	}
	s := &observe.Snapshot{Now: now}
	if h.blind {
		return s
	}
	var busy [fakekernel.CPUs]float64
	for i := range busy {
		busy[i] = h.system / fakekernel.CPUs
	}
	for name, spec := range h.specs {
		if spec.State != workload.Running {
			continue
		}
		set := h.set(name)
		for cpu := range set.All() {
			busy[cpu] += h.uses[name] / float64(set.Size())
		}
	}
	total := 0.0
	for i := range busy {
		busy[i] = min(busy[i], 1)
		total += busy[i]
	}
	s.Node.CPU = observe.NodeCPU{At: now, Interval: 100 * time.Millisecond, Usage: workload.MilliCPU(total * 1000)}
	s.Node.Memory = h.memory
	s.Node.Memory.At = now
	for _, b := range busy {
		s.CPUs = append(s.CPUs, observe.CPU{Busy: b, Known: true})
	}
	for _, target := range h.agent.Targets() {
		c := observe.Container{ID: target.ID, CPU: observe.ContainerCPU{At: now, Interval: 100 * time.Millisecond, StatAt: now, Periods: 10}}
		used, held := h.uses[target.Path], h.holds[target.Path] // of a host application
		for name, spec := range h.specs {
			if name == target.ID || strings.HasPrefix(spec.CgroupsPath, target.Path+"/") {
				used += h.uses[name]
				held += h.holds[name]
			}
		}
		c.CPU.Usage = workload.MilliCPU(used * 1000)
		if h.cycles != nil && target.CPI { // the latest count is kept, as by the meter
			over := 10 * time.Second
			if target.CPIAlways {
				over = time.Second
			}
			if now.Sub(h.counted[target.ID].At) >= over {
				h.counted[target.ID] = observe.CPI{At: now, Over: over, Cycles: h.cycles(), Usage: c.CPU.Usage}
			}
			c.CPI = h.counted[target.ID]
		}
		if h.throttled[target.ID] {
			c.CPU.Throttled = 5
		}
		if waits, ok := h.waits[target.ID]; ok {
			c.Pressure = observe.Pressure{At: now, CPU: waits}
		}
		if ready, ok := h.ready[target.ID]; ok {
			c.RunDelay = observe.RunDelay{At: now, Waiting: ready}
		}
		c.Memory = observe.ContainerMemory{At: now, Current: held, WorkingSet: held, Anon: held / 2, Cache: held / 2}
		s.Containers = append(s.Containers, c)
	}
	return s
}

func (h *loopNode) tick() {
	h.agent.Tick(h.snapshot())
	synctest.Wait()
}

// steps lets time pass, with a measurement every 100 ms.
func (h *loopNode) steps(d time.Duration) {
	for range int(d / (100 * time.Millisecond)) {
		time.Sleep(100 * time.Millisecond)
		h.tick()
	}
}

// quotaOf returns the quota of a cgroup in CPUs, or -1 if it is unlimited.
func (h *loopNode) quotaOf(dir string) float64 {
	h.t.Helper()
	v, err := h.spy.Read(dir, knobs.Quota)
	if err != nil {
		h.t.Fatal(err)
	}
	if q := v.(knobs.CPUQuota); !q.Unlimited() {
		return float64(q.Quota) / float64(q.Period)
	}
	return -1
}

func (h *loopNode) expectQuota(dir string, want float64) {
	h.t.Helper()
	if got := h.quotaOf(dir); got < want-0.02 || got > want+0.02 {
		h.t.Errorf("%s has %v CPUs, want %v", dir, got, want)
	}
}

// giveBack ends the plugin, restores everything, and checks that the kernel is in the state of a
// node without Sluice on which the same was done.
func (h *loopNode) giveBack(do func(h *knobNode)) {
	h.t.Helper()
	want := bare(h.t, h.Flavour, do)
	h.stop()
	book := readJournal(h.t, h.o.Originals)
	if r, err := restore.Run(&restore.Host{Kernel: h.spy}, book, false); err != nil || len(r.Newer) > 0 {
		h.t.Errorf("newer %v, %v", r.Newer, err)
	}
	if diff := differences(want, h.state()); diff != "" {
		h.t.Errorf("not as before:\n%s", diff)
	}
	h.launch(h.text)
	synctest.Wait()
}

func service(name string, milli int) ask {
	return ask{name: name, milli: milli, annotations: map[string]string{"class.sluice.dev": "LS"}}
}

func batch(name string) ask {
	return ask{name: name, qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "BE"}}
}

func loopOf(cpus float64) qos.Loop {
	return qos.Loop{Quota: colocation.Quota(workload.MilliCPU(cpus * 1000)), Why: "the test"}
}

func dirFS(dir string) fs.FS { return os.DirFS(dir) }

// meet adds the files of another agent's processes to a host; leave removes them.
func meet(t *testing.T, dir string, files fstest.MapFS) {
	t.Helper()
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
}

func leave(t *testing.T, dir string, files fstest.MapFS) {
	t.Helper()
	for name := range files {
		if err := os.RemoveAll(filepath.Join(dir, filepath.Dir(name))); err != nil {
			t.Fatal(err)
		}
	}
}
