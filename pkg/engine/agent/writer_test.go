package agent

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

// hangingKernel takes a minute for the writes that a test chooses. As in the kernel, they take
// effect at once; with late, they do at the end.
type hangingKernel struct {
	node.Kernel
	mu    sync.Mutex
	hangs func(knobs.Change) bool
	late  bool
	hung  []knobs.Change
}

const hangs = time.Minute

func (k *hangingKernel) hanging(hangs func(knobs.Change) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hangs, k.hung = hangs, nil
}

func (k *hangingKernel) Apply(changes []knobs.Change) error {
	var errs []error
	for _, c := range changes {
		k.mu.Lock()
		slow := k.hangs != nil && k.hangs(c)
		if slow {
			k.hung = append(k.hung, c)
		}
		late := k.late
		k.mu.Unlock()
		if slow && late {
			time.Sleep(hangs)
		}
		errs = append(errs, cgroupfs.Refusals(k.Kernel.Apply([]knobs.Change{c}))...)
		if slow && !late {
			time.Sleep(hangs)
		}
	}
	return errors.Join(errs...)
}

// waits returns the writes that have hung since the last call of hanging.
func (k *hangingKernel) waits() []knobs.Change {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.hung)
}

// slow reports whether the knob of a write is one for which the kernel may take long.
func slow(c knobs.Change) bool {
	switch c.Knob {
	case knobs.Mems, knobs.MemoryMax, knobs.MemoryHigh, knobs.PageCache, knobs.PageCacheMax, knobs.IOWeight, knobs.BFQWeight, knobs.IOMax:
		return true
	}
	return false
}

// answerTime is how long another pod's creation or start may wait.
const answerTime = 100 * time.Millisecond

// asking returns a pod that requests settings which may take long to write.
func asking(name string) ask {
	return ask{name: name, qos: "burstable", milli: 1000, memory: 512, annotations: map[string]string{
		"memory-qos.sluice.dev": "{highPercent: 50}", "io.sluice.dev": "{weight: 50, readBPS: 1000000}", "memory-nodes.sluice.dev": "0",
	}}
}

// disturb writes values as another program would whose repair may take long.
func (h *knobNode) disturb(pod string) {
	dir := "/kubepods/burstable/pod-" + pod + "/c"
	h.put(dir, "cpuset.mems", "0-1")
	if h.V2 {
		h.put(dir, "memory.high", "max")
	}
}

// While a write of any event hangs, other pods are created and started at once. The last write is
// the last value that was wanted.
func TestNothingWaitsForTheKernel(t *testing.T) {
	t.Parallel()
	const with = "classes: {LS: {memory-qos: {highPercent: 40}, io: {weight: 70}}}\n"
	events := map[string]func(h *knobNode){
		"create and start": func(h *knobNode) { h.run(asking("late/c")) },
		"start of another container of the pod": func(h *knobNode) {
			a := asking("victim/d")
			a.pod = 2000
			h.run(a)
		},
		"resize":      func(h *knobNode) { h.resize("victim/c", 1000, 2000) },
		"reload":      func(h *knobNode) { _ = h.reload(with) },
		"reload back": func(h *knobNode) { _ = h.reload(with); _ = h.reload("") },
		"drift": func(h *knobNode) {
			h.disturb("victim")
			h.pass()
		},
		"synchronize": func(h *knobNode) {
			h.disturb("victim")
			h.synchronize()
		},
		"stop": func(h *knobNode) { h.end("victim/c") },
		"remove": func(h *knobNode) {
			h.Rmdir("/kubepods/burstable/pod-victim/c")
			if err := h.agent.RemovePod("sandbox-victim", ""); err != nil {
				h.t.Errorf("remove: %v", err)
			}
		},
		"hotplug": func(h *knobNode) {
			m, err := synth.Machine(twoNodes)
			if err != nil {
				h.t.Fatal(err)
			}
			h.agent.SetMachine(m)
		},
	}
	for name, event := range events {
		for _, f := range []fakekernel.Flavour{fakekernel.MainlineV1(), fakekernel.MainlineV2()} {
			t.Run(name+" on "+f.Name, func(t *testing.T) {
				var kernel *hangingKernel
				s := knobSetup{options: func(h *knobNode, o *Options) {
					kernel = &hangingKernel{Kernel: h.spy, late: !h.V2}
					o.Kernel = kernel
				}}
				onFlavour(t, f, s, func(t *testing.T, h *knobNode) {
					h.run(asking("victim/c"), ask{name: "running/c", milli: 1000})
					h.pass()
					kernel.hanging(slow)
					lane := watchLane(h.agent)
					event(h)
					for i, other := range []string{"a/c", "b/c", "c/c"} {
						asked := time.Now()
						if err := h.create(ask{name: other, milli: 500}); err != nil {
							t.Errorf("create: %v", err)
						}
						h.begin(other)
						if took := time.Since(asked); took > answerTime {
							t.Errorf("pod %d was created and started in %s", i, took)
						}
						h.sleep(time.Second)
					}
					if longest := lane(); longest > answerTime {
						t.Errorf("an event waited for %s", longest)
					}
					if len(kernel.waits()) == 0 && h.V2 && name != "stop" && name != "remove" && name != "hotplug" {
						t.Error("nothing was written that may take long")
					}
					kernel.hanging(nil)
					h.sleep(3 * hangs)
					h.pass()
					for _, c := range h.agent.Order {
						for _, k := range settingsOf(h.agent, c.Path) {
							if have, err := h.spy.Read(c.Path, k.Knob); err != nil || !h.spy.Same(k.Knob, k.Value, have) {
								t.Errorf("%s of %s is %v, want %v (%v)", k.Knob, c.Ref, have, k.Value, err)
							}
						}
					}
					if s, err := h.agent.Status(); err != nil || len(s.SlowWrites) > 0 || s.Counters.Panics > 0 {
						t.Errorf("in the end: %+v, %v", s, err)
					}
				})
			})
		}
	}
}

// watchLane queries the event loop until stop is called, which returns the longest time that an
// answer took.
func watchLane(a *Agent) (stop func() time.Duration) {
	end, longest := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for {
			asked := time.Now()
			_, err := a.Pulse()
			most = max(most, time.Since(asked))
			select {
			case <-end:
				longest <- most
				return
			case <-time.After(20 * time.Millisecond):
			}
			if err != nil {
				most = time.Hour
			}
		}
	}()
	return func() time.Duration { close(end); return <-longest }
}

// settingsOf returns the settings of a cgroup. The event loop must be idle.
func settingsOf(a *Agent, path string) []*reconcile.Setting {
	if c := a.Reconciler.Cgroup(path); c != nil {
		return c.Settings()
	}
	return nil
}

// onHangingKernel runs a test with one running pod whose pages take a minute to move.
func onHangingKernel(t *testing.T, test func(t *testing.T, h *knobNode, kernel *hangingKernel)) {
	t.Helper()
	var kernel *hangingKernel
	s := knobSetup{options: func(h *knobNode, o *Options) {
		kernel = &hangingKernel{Kernel: h.spy}
		o.Kernel = kernel
	}}
	onFlavour(t, fakekernel.MainlineV2(), s, func(t *testing.T, h *knobNode) { test(t, h, kernel) })
}

// The status shows a slow write, which does not count as drift. Values are written in order, one
// at a time, and intermediate ones are skipped.
func TestWritesKeepTheirOrder(t *testing.T) {
	onHangingKernel(t, func(t *testing.T, h *knobNode, kernel *hangingKernel) {
		h.run(asking("victim/c"))
		h.pass()
		drift := h.container("victim/c").Drift
		kernel.hanging(func(c knobs.Change) bool { return c.Knob == knobs.MemoryHigh })
		for _, percent := range []string{"40", "30", "20"} {
			h.podOfName("victim/c").Annotations["memory-qos.sluice.dev/container.c"] = "{highPercent: " + percent + "}"
			h.synchronize()
			h.sleep(2 * time.Second)
		}
		s, err := h.agent.Status()
		if err != nil || len(s.SlowWrites) != 1 {
			t.Fatalf("%+v, %v", s.SlowWrites, err)
		}
		if w := s.SlowWrites[0]; w.Object != "ns/victim/c" || w.Knob != "memory.high" || w.ElapsedSeconds < 5 || w.Waiting {
			t.Errorf("%+v", w)
		}
		h.sleep(3 * hangs)
		wrote := kernel.waits()
		if len(wrote) != 2 || wrote[0].To.String() == wrote[1].To.String() {
			t.Fatalf("wrote %v, want the first and the last value", wrote)
		}
		if have, err := h.spy.Read(wrote[1].Object.Path, knobs.MemoryHigh); err != nil || have != wrote[1].To || have.(knobs.Bytes) >= wrote[0].To.(knobs.Bytes) {
			t.Errorf("memory.high is %v (%v) after %v", have, err, wrote)
		}
		if got := h.container("victim/c").Drift; got != drift {
			t.Errorf("%d changes by somebody else were seen, before %d", got, drift)
		}
	})
}

// A write that the kernel refuses in the end is tried again, and the journal has what the kernel
// has.
func TestSlowWriteFails(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		n.run("web", "LS", 1)
		n.run("db", "LSR", 2)
		n.pass()
		n.kernel.refusing(func(c knobs.Change) error {
			if c.Knob == knobs.Mems {
				return errors.New("no")
			}
			return nil
		})
		path := n.specs["db"].CgroupsPath
		n.kernel.change(path, func(g *group) { g.mems = cpuset.Range(0, 1) })
		n.pass()
		if c := n.container("db"); c.Mems.Size() != 1 || c.Drift != 1 {
			t.Errorf("%+v", c)
		}
		if n.log.count("Kernel refused a setting") != 1 {
			t.Error("the refusal isn't told once")
		}
		n.kernel.refusing(nil)
		for range 3 {
			n.pass()
		}
		if v, _ := n.kernel.Read(path, knobs.Mems); v != knobs.Value(knobs.CPUSet(cpuset.Of(0))) {
			t.Errorf("tried again, memory nodes are %v", v)
		}
	})
}

// A setting that is released while it is being written is restored after the write. A cgroup that
// ends meanwhile leaves nothing behind.
func TestLetGoDuringAWrite(t *testing.T) {
	onHangingKernel(t, func(t *testing.T, h *knobNode, kernel *hangingKernel) {
		h.run(asking("victim/c"), asking("gone/c"))
		h.pass()
		kernel.hanging(func(c knobs.Change) bool { return c.Knob == knobs.MemoryHigh })
		h.put("/kubepods/burstable/pod-victim/c", "memory.high", "max")
		h.put("/kubepods/burstable/pod-gone/c", "memory.high", "max")
		h.pass()
		h.end("gone/c")
		for name := range h.pods["victim"].Annotations {
			delete(h.pods["victim"].Annotations, name)
		}
		h.synchronize()
		h.sleep(3 * hangs)
		h.pass()
		if got := h.get("/kubepods/burstable/pod-victim/c", "memory.high"); got != "max" {
			t.Errorf("memory.high is left at %s", got)
		}
		if left := h.agent.Reconciler.Size(); left.Leaving+left.Writes > 0 {
			t.Errorf("left: %+v", left)
		}
		for _, e := range readJournal(t, h.o.Originals).All() {
			if e.Object.Path == "/kubepods/burstable/pod-gone/c" || e.Knob == knobs.MemoryHigh {
				t.Errorf("the journal keeps %+v", e)
			}
		}
	})
}

// The plugin's end waits for the kernel, and then closes the journal.
func TestEndWaitsForTheKernel(t *testing.T) {
	onHangingKernel(t, func(t *testing.T, h *knobNode, kernel *hangingKernel) {
		h.run(asking("victim/c"))
		h.pass()
		kernel.hanging(func(c knobs.Change) bool { return c.Knob == knobs.MemoryHigh })
		kernel.late = true
		h.put("/kubepods/burstable/pod-victim/c", "memory.high", "max")
		h.pass()
		began := time.Now()
		h.stop()
		if took := time.Since(began); took != shutdownTimeout {
			t.Errorf("the end took %s", took)
		}
		if h.log.count("is still under way") != 1 {
			t.Error("nothing tells why")
		}
		time.Sleep(hangs) // the pending writes end
		book := readJournal(t, h.o.Originals)
		if e, kept := book.Entry("/kubepods/burstable/pod-victim/c", knobs.MemoryHigh); !kept || e.Value != cgroupfs.Describe(knobs.MemoryHigh).Default {
			t.Errorf("the journal has %+v", e)
		}
		kernel.hanging(nil)
		h.launch(h.text)
	})
}

// Posted events run in their order.
func TestPostsKeepTheirOrder(t *testing.T) {
	inBubble(t, setup{}, func(t *testing.T, n *testNode) {
		var order []int
		for i := range 100 {
			n.agent.Post("count", func() { order = append(order, i) })
		}
		synctest.Wait()
		if !slices.IsSorted(order) || len(order) != 100 {
			t.Errorf("%v", order)
		}
	})
}
