package runtimerecord

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/cpusets"
	"github.com/sluice-dev/sluice/pkg/engine/grantrecord"
	"github.com/sluice-dev/sluice/pkg/engine/groups"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/podsettings"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

// fakeRuntime answers an update when the test lets it.
type fakeRuntime struct {
	mu      sync.Mutex
	got     []node.Update
	answers chan error
}

func (r *fakeRuntime) Update(u node.Update) error {
	r.mu.Lock()
	r.got = append(r.got, u)
	r.mu.Unlock()
	return <-r.answers
}

// bed is a Recorder of a node with 8 CPUs, whose event loop is the test's goroutine.
type bed struct {
	*Recorder
	t       *testing.T
	kernel  *fakekernel.Kernel
	runtime *fakeRuntime
	mu      sync.Mutex
	posted  []func()
}

// in runs a test in virtual time, with a connected runtime that has sent its containers.
func in(t *testing.T, test func(b *bed)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.Connected(b.runtime, status.Runtime{Name: "containerd"}, "")
		b.Synchronize()
		test(b)
		b.Disconnected()
		close(b.runtime.answers)
		synctest.Wait()
	})
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, kernel: fakekernel.New(fakekernel.MainlineV2()), runtime: &fakeRuntime{answers: make(chan error)}}
	machine, err := synth.Machine("2 nodes 4 cores memory 8G")
	if err != nil {
		t.Fatal(err)
	}
	driver, err := b.kernel.Driver()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { driver.Close() })
	book, err := journal.Open("", "")
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	cfg := config.Default()
	cfg.Mode = config.On
	n := &node.Node{
		Inventory: node.NewInventory(0, 0, 0), Config: cfg, Kernel: driver, Log: log,
		Ledger: placement.New(cfg.Policy(), machine), Journal: book, Grants: grantrecord.New(nil, true, log),
		Spawn: func(work func()) { go work() },
		Post: func(_ string, event func()) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.posted = append(b.posted, event)
		},
	}
	n.Reconciler = reconcile.New(reconcile.Options{
		Kernel: driver, Journal: book, Features: &n.QoS.Features, Log: log, Now: n.Now,
		MayWrite: func() bool { return true }, DriftInterval: func() time.Duration { return time.Second },
		Carried:  func(reconcile.Key) (knobs.Value, bool) { return nil, false },
		Updating: func(string) bool { return false }, Starting: func(string) bool { return false },
		Suspect: n.Suspect, Blocking: true,
	})
	g := groups.New(n, nil, nil, nil, "no RDT here")
	b.Recorder = New(n, cpusets.New(n), podsettings.New(n, g.Lacks, true), g)
	return b
}

// pin starts a container with CPUs of its own, which the runtime's record lacks.
func (b *bed) pin(name string, cpus int) *node.Container {
	b.t.Helper()
	c := b.track(name)
	r := workload.Request{Class: workload.LSR, CPUs: cpus, Milli: workload.MilliCPU(cpus) * 1000}
	as, err := b.Ledger.Place(c.Identity(), r, cpuset.Set{}, b.Now())
	if err != nil {
		b.t.Fatal(err)
	}
	c.Has, c.Touched = as, true
	b.Ledger.Hold(name, b.Now())
	return c
}

func (b *bed) track(name string) *node.Container {
	pod := &workload.Pod{ID: name, UID: name, Namespace: "ns", Name: name, CgroupParent: "/kubepods/pod-" + name}
	path := pod.CgroupParent + "/" + name
	b.kernel.Mkdir(path)
	return b.Track(pod, workload.Container{ID: name, PodID: name, Name: "c", CgroupsPath: path, State: workload.Running})
}

// after lets time pass and runs the events that were posted meanwhile.
func (b *bed) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	b.mu.Lock()
	events := b.posted
	b.posted = nil
	b.mu.Unlock()
	for _, event := range events {
		event()
	}
	synctest.Wait()
}

// answer answers the update under way.
func (b *bed) answer(err error) {
	b.runtime.answers <- err
	b.after(0)
}

// sent lists the containers whose updates were sent since the last call, with the CPUs.
func (b *bed) sent() (all []string) {
	synctest.Wait()
	b.runtime.mu.Lock()
	defer b.runtime.mu.Unlock()
	for _, u := range b.runtime.got {
		all = append(all, u.ContainerID+" "+u.CPUs.String())
	}
	b.runtime.got = nil
	return all
}

func (b *bed) expect(want ...string) {
	b.t.Helper()
	if got := b.sent(); !slices.Equal(got, want) {
		b.t.Errorf("sent %q, want %q", got, want)
	}
}

const delay = 5 * time.Second

// An update waits until nothing has changed for recordUpdates.delay, and there is one at a time.
func TestOneUpdateAtATime(t *testing.T) {
	in(t, func(b *bed) {
		b.Config.RecordUpdates.Delay = delay
		first, second := b.pin("first", 2), b.pin("second", 1)
		b.Postpone()
		b.after(delay - time.Millisecond)
		b.Postpone()
		b.after(delay - time.Millisecond)
		b.expect()
		b.after(time.Millisecond)
		b.expect("first 0-1")
		b.Update()
		b.expect()
		b.answer(nil)
		b.expect("second 2")
		b.answer(nil)
		b.expect()
		if first.Recorded.CPUs.String() != "0-1" || !second.Recorded.Unlimited || b.Counters.RecordUpdates != 2 || b.Counters.RecordUpdateFailures != 0 {
			t.Errorf("%+v, %+v, %+v", first.Recorded, second.Recorded, b.Counters)
		}
	})
}

// While an update is under way, its CPUs may return to its container.
func TestPendingUpdate(t *testing.T) {
	in(t, func(b *bed) {
		c := b.pin("db", 2)
		b.Update()
		if in := b.InFlight("other"); in.String() != "0-1" || !b.InFlight("db").IsEmpty() || !b.Updating(c.Path) || b.Updating("/other") {
			t.Errorf("in flight: %s", in)
		}
		b.Ledger.Release("db")
		next := b.pin("next", 2)
		awaited := b.Awaited("next")
		if awaited == nil || b.Awaited("nobody") != nil || next.Has.CPUs.String() != "0-1" {
			t.Fatalf("%s waits for nothing", next.Has.CPUs)
		}
		b.answer(nil)
		select {
		case <-awaited:
		default:
			t.Error("the answer is not told")
		}
		if b.Awaited("next") != nil {
			t.Error("after the answer it waits still")
		}
		b.expect("db 0-1", "next 0-1")
	})
}

// What the runtime refuses is sent three times; another update of the same container is sent
// again.
func TestRefusedUpdate(t *testing.T) {
	in(t, func(b *bed) {
		c := b.pin("db", 2)
		b.Update()
		for range maxAttempts - 1 {
			b.expect("db 0-1")
			b.answer(errors.New("no"))
		}
		b.expect("db 0-1")
		b.answer(errors.New("no"))
		b.after(time.Hour)
		b.Update()
		b.expect()
		if b.Counters.RecordUpdateFailures != maxAttempts || (c.Recorded != node.Settings{}) {
			t.Errorf("%d failures, the record is taken for %+v", b.Counters.RecordUpdateFailures, c.Recorded)
		}
		if _, err := b.Ledger.Resize("db", workload.Request{Class: workload.LSR, CPUs: 1, Milli: 1000}, cpuset.Set{}); err != nil {
			t.Fatal(err)
		}
		b.Update()
		b.expect("db 0")
		b.answer(nil)
	})
}

// An answer from an earlier connection, or about a container that is gone, changes nothing.
func TestLateAnswer(t *testing.T) {
	for name, change := range map[string]func(*bed){
		"another connection":    func(b *bed) { b.Disconnected(); b.Connected(b.runtime, status.Runtime{}, "") },
		"another list":          func(b *bed) { b.Synchronize() },
		"the container is gone": func(b *bed) { b.Ledger.Release("db"); b.Forget("db") },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(b *bed) {
				c := b.pin("db", 2)
				b.Update()
				b.expect("db 0-1")
				change(b)
				b.answer(nil)
				if (c.Recorded != node.Settings{}) || b.pending != nil {
					t.Errorf("recorded %+v", c.Recorded)
				}
			})
		})
	}
}

// A list of containers that could not be processed leaves the connection as it was.
func TestSynchronizeUndone(t *testing.T) {
	in(t, func(b *bed) {
		b.pin("db", 2)
		b.Update()
		undo := b.Synchronize()
		if !b.InFlight("other").IsEmpty() {
			t.Error("an update of the earlier list is still expected")
		}
		undo()
		if b.InFlight("other").String() != "0-1" {
			t.Error("the update under way is forgotten")
		}
		b.answer(nil)
	})
}

// No update is sent where one could do harm, or would say what isn't in force yet.
func TestNoUpdate(t *testing.T) {
	for name, prepare := range map[string]func(b *bed, c *node.Container){
		"no runtime":  func(b *bed, _ *node.Container) { b.Disconnected() },
		"no list yet": func(b *bed, _ *node.Container) { b.Connected(b.runtime, status.Runtime{}, "") },
		"unsafe runtime": func(b *bed, _ *node.Container) {
			b.Connected(b.runtime, status.Runtime{}, "it may deadlock")
			b.Synchronize()
		},
		"switched off":         func(b *bed, _ *node.Container) { b.Config.RecordUpdates.Enabled = false },
		"preview":              func(b *bed, _ *node.Container) { b.Config.Mode = config.Preview },
		"not quiet":            func(b *bed, _ *node.Container) { b.Config.RecordUpdates.Delay = delay; b.Postpone() },
		"not started":          func(_ *bed, c *node.Container) { c.Started = false },
		"never set":            func(_ *bed, c *node.Container) { c.Touched = false },
		"not placed":           func(b *bed, c *node.Container) { b.Ledger.Release(c.ID) },
		"in a virtual machine": func(_ *bed, c *node.Container) { c.Uncontrolled = true },
		"up to date": func(_ *bed, c *node.Container) {
			c.Recorded = node.Settings{CPUs: c.Has.CPUs, Mems: c.Has.Mems, Unlimited: true}
		},
		"a quota would be dropped": func(b *bed, c *node.Container) { b.share(c); c.Recorded.Unlimited = true },
		"pools change":             func(b *bed, c *node.Container) { b.share(c); b.PoolsResized() },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(b *bed) {
				prepare(b, b.pin("db", 2))
				b.Update()
				b.expect()
			})
		})
	}
}

// share replaces a pin by a request for shared CPUs.
func (b *bed) share(c *node.Container) {
	b.Ledger.Release(c.ID)
	b.Ledger.PlaceShared(c.Identity(), workload.Request{Class: workload.LS, Milli: 1000}, "", b.Now())
	b.Ledger.Hold(c.ID, b.Now())
}

// Pools' sizes reach the record once they have been the same for a minute.
func TestSteadyPools(t *testing.T) {
	in(t, func(b *bed) {
		b.share(b.pin("web", 1))
		b.PoolsResized()
		b.after(steadyPools - time.Second)
		b.PoolsResized()
		b.after(steadyPools - time.Second)
		b.Update()
		b.expect()
		b.after(time.Second)
		b.Update()
		b.expect("web 0-7")
		b.answer(nil)
	})
}

// The status says whether the runtime is sent updates, and why not.
func TestWhyOff(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*bed)
		unsafe  string
		state   status.RecordUpdates
		why     string
	}{
		"on":           {func(*bed) {}, "", status.RecordUpdatesOn, ""},
		"unsafe":       {func(*bed) {}, "it may deadlock", status.RecordUpdatesOff, "it may deadlock"},
		"switched off": {func(b *bed) { b.Config.RecordUpdates.Enabled = false }, "it may deadlock", status.RecordUpdatesOff, switchedOff},
		"no cgroups":   {func(b *bed) { b.Kernel = nil }, "", status.RecordUpdatesOff, "no cgroups here"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(b *bed) {
				test.prepare(b)
				b.Connected(b.runtime, status.Runtime{Name: "cri-o"}, test.unsafe)
				r := &b.Runtime
				if r.Name != "cri-o" || !r.Connected || r.RecordUpdates != test.state || !strings.HasPrefix(r.RecordUpdatesWhy, test.why) || (r.RecordUpdatesWhy == "") != (test.why == "") {
					t.Errorf("%+v", r)
				}
				if b.Disconnected(); r.Connected || b.Counters.Reconnects != 1 {
					t.Errorf("disconnected: %+v, %d reconnects", r, b.Counters.Reconnects)
				}
			})
		})
	}
}
