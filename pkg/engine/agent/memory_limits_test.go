package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/runtime/evict"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/synth"
)

const memoryOn = "control: {mode: preview, memory: {mode: on}}\n"

// hold sets the memory of a container, half of which is page cache.
func (h *loopNode) hold(name string, bytes int64) {
	h.t.Helper()
	h.holds[name] = bytes
	h.Use(h.specs[name].CgroupsPath, bytes, bytes/2)
	h.Use(bestBox, bytes, bytes/2)
}

// limit returns the memory limit of the batch cgroup, or -1 for none.
func (h *loopNode) limit() knobs.Bytes {
	h.t.Helper()
	v, err := h.spy.Read(bestBox, knobs.MemoryMax)
	if err != nil {
		h.t.Fatal(err)
	}
	return v.(knobs.Bytes)
}

// TestMemoryOfAllPods checks that batch work and the others share a limit of all pods that is
// lower than the machine's memory.
func TestMemoryOfAllPods(t *testing.T) {
	onBothLoops(t, knobSetup{config: memoryOn}, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 2000), batch("job/c"))
		if err := h.spy.Apply([]knobs.Change{{Object: knobs.Object{Path: "/kubepods"}, Knob: knobs.MemoryMax, To: knobs.Bytes(2 << 30)}}); err != nil {
			t.Fatal(err)
		}
		h.hold("job/c", 512<<20)
		h.holds["web/c"] = 256 << 20
		h.steps(3 * time.Second)
		high := h.limit()
		if high < 512<<20 || high >= 2<<30*65/100 {
			t.Errorf("limit %s", high)
		}
		h.holds["web/c"] = 1 << 30
		h.steps(10 * time.Second)
		if low := h.limit(); low >= high-128<<20 {
			t.Errorf("the service holds more: limit %s, before %s", low, high)
		}
	})
}

// TestMemoryPress checks that the batch cgroup's limit follows what online work leaves, stays over
// a restart, is removed when another pod starts in the cgroup, and is restored in the end.
func TestMemoryPress(t *testing.T) {
	onLoops(t, knobSetup{config: memoryOn}, func(t *testing.T, h *loopNode) {
		asks := []ask{service("web/c", 2000), batch("job/c")}
		h.run(asks...)
		h.hold("job/c", 512<<20)
		h.steps(3 * time.Second)
		high := h.limit()
		if high < 1<<30 {
			t.Errorf("limit %s", high)
		}
		for range 10 { // online work grows
			h.memory.Available -= 400 << 20
			h.steps(3 * time.Second)
		}
		low := h.limit()
		if low >= high || low < 256<<20 {
			t.Errorf("limit %s, before %s", low, high)
		}
		h.blind = true
		h.restart(memoryOn)
		h.pass()
		if got := h.limit(); got != low {
			t.Errorf("after a restart limit %s, before %s", got, low)
		}
		h.blind = false
		h.steps(3 * time.Second)
		h.run(ask{name: "ls/c", qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "LS"}})
		h.steps(2 * time.Second)
		if got := h.limit(); got >= 0 {
			t.Errorf("an LS pod is held to %s", got)
		}
		h.end("ls/c")
		h.steps(2 * time.Second)
		if got := h.limit(); got < 0 {
			t.Error("no limit")
		}
		h.restart("control: {mode: preview}\n")
		h.pass()
		if got := h.limit(); got >= 0 {
			t.Errorf("limit %s is left behind", got)
		}
		h.giveBack(func(h *knobNode) { h.run(asks...) })
	})
}

// TestSlowReclaim checks that no event waits for a kernel that reclaims memory, that no limit is
// set below the memory in use, and that a failure is reported once.
func TestSlowReclaim(t *testing.T) {
	var mu sync.Mutex
	release := map[string]chan error{}
	s := knobSetup{config: memoryOn}
	s.options = func(h *knobNode, o *Options) {
		answers := make(chan error)
		mu.Lock()
		release[h.Name] = answers
		mu.Unlock()
		o.Memory.Reclaim = func(string, knobs.Bytes) error { return <-answers }
	}
	onLoop(t, fakekernel.MainlineV2(), s, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 2000), batch("job/c"))
		h.hold("job/c", 3<<30)
		h.memory.Available = 3 << 30
		h.steps(5 * time.Second)
		h.run(service("late/c", 1000)) // its start does not wait
		h.memory.Available = 1 << 30
		h.steps(2 * time.Second)
		mu.Lock()
		answers := release[h.Name]
		mu.Unlock()
		for range 5 {
			select {
			case answers <- errors.New("no memory.reclaim today"):
			default:
			}
			h.steps(time.Second)
		}
		if n := h.log.count("no memory.reclaim today"); n != 1 {
			t.Errorf("told %d times", n)
		}
		if got := h.limit(); got >= 0 && got < 3<<30 {
			t.Errorf("limit %s is below what is in use", got)
		}
		close(answers)
		synctest.Wait()
		h.steps(time.Second)
	})
}

// fakeEvictor evicts pods when the test says so.
type fakeEvictor struct {
	mu    sync.Mutex
	asked []string
	hangs bool
	err   error
}

func (e *fakeEvictor) Evict(ctx context.Context, pod evict.Pod) error {
	e.mu.Lock()
	e.asked = append(e.asked, pod.UID)
	hangs, err := e.hangs, e.err
	e.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// TestSwitchOff checks that the switch refuses new batch work, squeezes what runs and evicts it if
// requested, and that a broken file changes nothing.
func TestSwitchOff(t *testing.T) {
	dir := t.TempDir()
	evictor := &fakeEvictor{err: errors.New("the runtime says no")}
	s := knobSetup{config: "control: {mode: on, batch: {by: quota}, eviction: {by: cri, refuseNew: true}}\n"}
	s.options = func(_ *knobNode, o *Options) { o.StateDir, o.Evictor = dir, evictor }
	onLoop(t, fakekernel.MainlineV2(), s, func(t *testing.T, h *loopNode) {
		say := func(to batchswitch.Setting) {
			t.Helper()
			if err := batchswitch.Write(dir, to); err != nil {
				t.Fatal(err)
			}
		}
		refused := func(words string) {
			t.Helper()
			if err := h.create(batch("new/c")); err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("got %v, want a refusal with %q", err, words)
			}
		}
		h.run(service("web/c", 2000), batch("job/c"), batch("two/c"))
		h.uses["job/c"] = 2
		h.steps(3 * time.Second)
		say(batchswitch.Setting{To: control.SwitchOff})
		refused("switched off") // at once
		h.steps(1100 * time.Millisecond)
		h.expectQuota(bestBox, 0.2)
		h.run(service("more/c", 1000))
		if err := os.WriteFile(filepath.Join(dir, batchswitch.File), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		h.steps(3 * time.Second)
		refused("switched off")
		if n := h.log.count("batch switch can't be read"); n != 1 {
			t.Errorf("told %d times", n)
		}
		say(batchswitch.Setting{To: control.SwitchOff, Evict: true})
		h.steps(5 * time.Second)
		if h.audit.has("eviction", "failed") == 0 || len(evictor.asked) == 0 {
			t.Errorf("asked %v", evictor.asked)
		}
		evictor.mu.Lock()
		evictor.hangs, evictor.asked = true, nil
		evictor.mu.Unlock()
		h.steps(2 * time.Minute)
		evictor.mu.Lock()
		evictor.hangs, evictor.err, evictor.asked = false, nil, nil
		evictor.mu.Unlock()
		h.steps(5 * time.Minute)
		if len(evictor.asked) == 0 {
			t.Fatal("nobody is evicted after an evictor that hung")
		}
		gone := evictor.asked[0]
		for name := range h.specs {
			if h.specs[name].PodID == "sandbox-"+gone {
				h.end(name)
			}
		}
		say(batchswitch.Setting{})
		h.steps(2 * time.Second)
		refused("evicted")
	})
}

// TestSwitchOffApart checks that with exclusive pools the switch moves the batch pool's CPUs to
// the pool above it, and back.
func TestSwitchOffApart(t *testing.T) {
	dir := t.TempDir()
	s := knobSetup{config: "control: {mode: on, pools: {lend: false}}\n" + apart, options: func(_ *knobNode, o *Options) { o.StateDir = dir }}
	onLoop(t, fakekernel.MainlineV2(), s, func(t *testing.T, h *loopNode) {
		say := func(to batchswitch.Setting) {
			t.Helper()
			if err := batchswitch.Write(dir, to); err != nil {
				t.Fatal(err)
			}
			h.steps(1200 * time.Millisecond)
			h.exclusive()
		}
		h.run(service("web/c", 2000), batch("job/c"))
		h.uses["web/c"], h.uses["job/c"] = 1, 8
		h.steps(3 * time.Minute)
		web, job := h.set("web/c"), h.set("job/c")
		say(batchswitch.Setting{To: control.SwitchOff})
		least := h.o.Machine.ThreadsPerCore()
		if got := h.set("job/c"); got.Size() != least || job.Size() <= least || h.set("web/c").Size() != web.Size()+job.Size()-least {
			t.Errorf("switched off: web on %s, job on %s; before on %s and %s", h.set("web/c"), got, web, job)
		}
		h.loop(func() {
			if s := h.agent.loop.BatchStatus(); s.BudgetCPUs != least || int(s.Floor) != least*1000 || s.State != status.BatchClosed {
				t.Errorf("%+v", s)
			}
		})
		say(batchswitch.Setting{})
		few, err := synth.Machine("2 cores memory 8G")
		if err != nil {
			t.Fatal(err)
		}
		if h.set("web/c").Size() != web.Size() || h.set("job/c").Size() != job.Size() {
			t.Errorf("switched on again: web on %s, job on %s; before on %s and %s", h.set("web/c"), h.set("job/c"), web, job)
		}
		h.agent.SetMachine(few)
		say(batchswitch.Setting{To: control.SwitchOff})
		h.loop(func() {
			if s := h.agent.loop.BatchStatus(); !s.Unlimited {
				t.Errorf("on two CPUs %+v", s)
			}
		})
	})
}
